// The routes of the gateway: reads a request, checks its client, and answers it
// or starts what does.
//
// Handle is for the thread of the event loop. What reads large bodies and
// tokenizes runs on threads for work.

#ifndef GATEWAY_GATEWAY_SERVICE_H_
#define GATEWAY_GATEWAY_SERVICE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/bearer_tokens.h"
#include "gateway/chat_prompt.h"
#include "gateway/completion_stream.h"
#include "gateway/event_loop.h"
#include "gateway/fleet_client.h"
#include "gateway/gateway_metrics.h"
#include "gateway/http_message.h"
#include "gateway/inference_client.h"
#include "gateway/request_convert.h"
#include "gateway/routes.h"
#include "tokenizer/tokenizer.h"

namespace nacre::gateway {

// Borrows loop, client, tokenizer, tokens and metrics, which must outlive its
// calls.
class GatewayService {
 public:
  struct Options {
    EventLoop* loop = nullptr;
    InferenceClient* client = nullptr;
    const tokenizer::Tokenizer* tokenizer = nullptr;
    const ChatPrompts* chats = nullptr;
    const rpc::BearerTokens* tokens = nullptr;  // null: all clients are served
    FleetClient* fleet = nullptr;               // null: it is not shown
    // Of operators, who may see the fleet; null: who may is for the
    // coordinators to say.
    const rpc::BearerTokens* admin_tokens = nullptr;
    bool serves_page = true;
    // Special tokens in texts of a chat's request are read as letters.
    bool escapes_special_tokens = false;
    // A chat's request may have a template of its own.
    bool trusts_request_templates = false;
    GatewayMetrics* metrics = nullptr;
    SamplingDefaults defaults;
    // Of a chat that says nothing; 0: what context and KV leave.
    uint32_t default_max_tokens = 0;
    // What clients may call the model; empty: as the coordinators do. All are
    // listed, and answers have the first.
    std::vector<std::string> served_names;
    absl::Duration ping_period = absl::Seconds(15);
  };

  explicit GatewayService(Options options) : options_(std::move(options)) {}

  void Handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply);

 private:
  // What a thread for work makes of a request: how it is answered on the loop.
  using Answer = std::function<void(const std::shared_ptr<HttpReply>&)>;

  void Dispatch(const Route& route, HttpRequest request,
                const std::shared_ptr<HttpReply>& reply);
  void Work(std::function<Answer()> read,
            const std::shared_ptr<HttpReply>& reply);
  // `tokens`: one of which the request must show; null: it need not.
  static std::optional<ApiError> CheckClient(const HttpRequest& request,
                                             const rpc::BearerTokens* tokens,
                                             CallHeaders* headers);
  std::optional<ApiError> CheckModel(const std::string& name,
                                     const ServedModel& served) const;
  // Each once; the first one is what answers call it.
  std::vector<std::string> ModelNames(const ServedModel& served) const;
  std::string ModelName(const ServedModel& served) const;

  // On a thread for work.
  Answer ReadCompletion(bool is_chat, const HttpRequest& request,
                        const CallHeaders& headers) const;
  // What the request says, and the model that is served.
  std::optional<ApiError> ReadBody(const HttpRequest& request,
                                   OrderedJson* body,
                                   ServedModel* served) const;
  Answer ReadTokenize(const HttpRequest& request) const;
  Answer ReadDetokenize(const HttpRequest& request) const;
  // Of an answer whose request does not say.
  uint32_t UnsaidMaxTokens(const ApiRequest& request, const v1::Model& model,
                           int64_t prompt_tokens) const;
  std::optional<ApiError> PromptsOf(
      const ApiRequest& request, const v1::Model& model,
      std::vector<CompletionStream::PromptIds>* prompts) const;
  // `request`: how its texts are read.
  std::optional<ApiError> EncodePrompt(const Prompt& prompt,
                                       const ApiRequest& request,
                                       int context_length,
                                       std::vector<uint32_t>* ids) const;
  // The prompt of a chat, in place of its messages.
  std::optional<ApiError> RenderChat(ApiRequest* request) const;

  // `path`: that of all models, or of one.
  void SendModels(const std::string& path, HttpReply* reply) const;
  void SendTokenizerInfo(HttpReply* reply) const;
  void SendHealth(HttpReply* reply) const;
  void SendPage(const HttpRequest& request, HttpReply* reply) const;
  void SendFleet(const HttpRequest& request, const CallHeaders& headers,
                 const std::shared_ptr<HttpReply>& reply) const;

  const Options options_;
};

// The bearer token that a request shows; nothing where it shows none. 401 where
// the header is not "Bearer TOKEN" in visible ASCII.
std::optional<ApiError> BearerOf(const HttpRequest& request,
                                 std::string* token);

}  // namespace nacre::gateway

#endif  // GATEWAY_GATEWAY_SERVICE_H_
