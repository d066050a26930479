// From the JSON of a request to what nacre.v1.Inference takes. Checks types and
// what the service could not say in OpenAI's words; ranges that both know have
// the service's limits. docs/openai.md has every field.
//
// Pure functions.

#ifndef GATEWAY_REQUEST_CONVERT_H_
#define GATEWAY_REQUEST_CONVERT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gateway/api_error.h"
#include "gateway/json_body.h"
#include "proto/inference.pb.h"
#include "tokenizer/text_range.h"

namespace nacre::gateway {

// A text to be tokenized, or ids as they are.
using Prompt = std::variant<std::string, std::vector<uint32_t>>;

// What holds where a request says nothing.
struct SamplingDefaults {
  double temperature = 1.0;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};

// Reads a generation_config.json: its values, and temperature 0 where it says
// "do_sample": false. INVALID_ARGUMENT: it is malformed.
absl::StatusOr<SamplingDefaults> ReadSamplingDefaults(absl::string_view text);

struct Resumption {
  bool offered = false;  // the stream says what a resume of it needs
  // Of the answer that `generate` resumes; empty: it resumes none.
  std::vector<uint32_t> prompt;
};

struct StreamedUsage {
  bool included = false;  // in an event after the last token
  bool continuous = false;
};

// What the client sees of the answer.
struct AnswerOptions {
  bool stream = false;
  StreamedUsage usage;
  bool echo = false;
  bool wants_logprobs = false;
  // vLLM's, of the prompt: with so many of the likeliest beside.
  std::optional<int> prompt_logprobs;
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // "token_id:42" for a token of logprobs
  bool spec_stats = false;     // a value for each round
};

// What a chat's template shows beside messages, tools and documents.
struct TemplateValues {
  OrderedJson named = OrderedJson::object();
  bool add_generation_prompt = true;
};

struct ApiRequest {
  bool is_chat = false;
  std::string model;
  std::vector<Prompt> prompts;  // of a completion
  // Of a chat; content that is a list of texts is one text by now.
  OrderedJson messages;
  // The same where arguments of calls came as JSON in strings and are objects
  // in `messages`, with these strings; else null.
  OrderedJson sent_messages;
  OrderedJson tools;      // null: none
  OrderedJson documents;  // null: none
  TemplateValues template_values;
  std::optional<std::string> chat_template;  // the request's own
  // Of a chat's prompt, once it is rendered: where no special token is read.
  std::vector<tokenizer::TextRange> user_text;

  // Everything but the prompt, the model's name and max_tokens.
  v1::GenerateRequest generate;
  std::optional<uint32_t> max_tokens;  // 0: with echo only
  bool max_completion_tokens = false;  // is what that is called
  int n = 1;
  AnswerOptions answer;
  bool add_special_tokens = true;
  Resumption resumption;
  std::vector<std::string> ignored;  // names of unknown fields

  AskedAs AsAsked() const {
    return {is_chat, max_completion_tokens, generate.has_resume()};
  }
  // Whether nothing but the prompt is echoed.
  bool PromptOnly() const { return max_tokens == 0u; }
  // Whether the prompt is echoed with what the target says of its tokens.
  bool EchoesLogprobs() const { return answer.echo && answer.wants_logprobs; }
};

// Most prompts of one request, and most choices of all of them.
inline constexpr size_t kMaxPrompts = 128;
inline constexpr size_t kMaxBatchChoices = 256;

std::optional<ApiError> ConvertCompletion(const OrderedJson& body,
                                          const SamplingDefaults& defaults,
                                          ApiRequest* request);
std::optional<ApiError> ConvertChat(const OrderedJson& body,
                                    const SamplingDefaults& defaults,
                                    ApiRequest* request);

}  // namespace nacre::gateway

#endif  // GATEWAY_REQUEST_CONVERT_H_
