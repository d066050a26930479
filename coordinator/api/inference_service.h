// The public API over gRPC: converts, starts a session, streams its output.
// The service authenticates each caller before it reads anything of the request
// (client_call.h).

#ifndef COORDINATOR_API_INFERENCE_SERVICE_H_
#define COORDINATOR_API_INFERENCE_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "coordinator/api/authenticator.h"
#include "coordinator/api/client_call.h"
#include "coordinator/api/client_streams.h"
#include "coordinator/api/generate_call.h"
#include "coordinator/api/held_answers.h"
#include "coordinator/api/receptions.h"
#include "coordinator/dispatch/call_timers.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/work_pool.h"
#include "proto/inference.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

struct InferenceLimits {
  int max_streams_per_client = 0;  // choices at once; 0: no limit
  Receptions::Options receiving;
  WorkPool::Options parsing;               // where prompts are tokenized
  speculation::PolicySpec default_policy;  // of requests that name none
  // Of finished answers that wait for their clients, in all.
  int64_t max_answer_bytes = int64_t{256} << 20;
  // For a request to come, and for a finished answer to be taken by bits.
  int64_t client_timeout_ns = kNever;
  int64_t max_request_ns = kNever;  // from its arrival, as the dispatcher's
  // Asks for a Tick at this time or before; never blocks. Without it the two
  // times above pass unnoticed until something ticks.
  std::function<void(int64_t at_ns)> wake_at = nullptr;
};

// Thread-safe. What it is given must outlive it. The observer may be missing;
// without an authenticator it serves every caller. It must outlive its server.
class InferenceService final : public grpc::Service {
 public:
  InferenceService(Dispatcher* dispatcher,
                   const tokenizer::Tokenizer* tokenizer,
                   Observer* observer = nullptr, InferenceLimits limits = {},
                   const Authenticator* authenticator = nullptr);

  // Ends calls whose time is over, or that hold too much; when to call it next,
  // if nothing asks for it before.
  int64_t Tick();

 private:
  using Context = grpc::CallbackServerContext;

  // Serves a method of nacre.v1.Inference.
  template <typename Response, typename Call>
  void Serve(const char* method,
             Call* (InferenceService::*start)(Context* context));

  GenerateCall* Generate(Context* context);
  UnaryCall<v1::TokenizeResponse>* Tokenize(Context* context);
  UnaryCall<v1::Model>* GetModel(Context* context);

  Receptions::Options ReceivingOptions();
  // How to receive the call, which holds a stream of its client from then on;
  // or it is refused unread, and nullopt.
  template <typename Response>
  absl::optional<Reception> Admit(const Context& context,
                                  ClientCall<Response>* call);
  // In a thread of parsing_.
  absl::StatusOr<RequestSpec> Parse(const grpc::ByteBuffer& bytes,
                                    GenerateCall* call);
  absl::StatusOr<v1::TokenizeResponse> TokenIds(
      const grpc::ByteBuffer& bytes) const;
  absl::StatusOr<v1::Model> Model(const grpc::ByteBuffer& bytes) const;

  Dispatcher* const dispatcher_;
  const tokenizer::Tokenizer* const tokenizer_;
  Observer unobserved_;
  Observer* const observer_;
  const Authenticator open_;
  const Authenticator* const authenticator_;
  const InferenceLimits limits_;
  int num_methods_ = 0;
  ClientStreams streams_;
  CallTimers timers_;
  Receptions receptions_;
  HeldAnswers answers_;
  // Ends what is left of calls that failed; each call needs it once.
  WorkPool cancels_{WorkPool::Options{
      .threads = 1, .max_tasks = std::numeric_limits<int>::max()}};
  WorkPool parsing_;  // goes first: its tasks use the rest
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_INFERENCE_SERVICE_H_
