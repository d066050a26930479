// The public API over gRPC: converts, starts a session, streams its output.

#ifndef COORDINATOR_INFERENCE_SERVICE_H_
#define COORDINATOR_INFERENCE_SERVICE_H_

#include <limits>

#include "coordinator/authenticator.h"
#include "coordinator/client_streams.h"
#include "coordinator/dispatcher.h"
#include "coordinator/generate_call.h"
#include "coordinator/observer.h"
#include "coordinator/request.h"
#include "coordinator/work_pool.h"
#include "proto/inference.grpc.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

struct InferenceLimits {
  int max_streams_per_client = 0;          // choices at once; 0: no limit
  WorkPool::Options parsing;               // where prompts are tokenized
  speculation::PolicySpec default_policy;  // of requests that name none
};

// Thread-safe. What it is given must outlive it; without an observer nobody
// watches, without an authenticator anybody may call. It must outlive its
// server.
class InferenceService final : public v1::Inference::CallbackService {
 public:
  InferenceService(Dispatcher* dispatcher,
                   const tokenizer::Tokenizer* tokenizer,
                   Observer* observer = nullptr, InferenceLimits limits = {},
                   const Authenticator* authenticator = nullptr)
      : dispatcher_(dispatcher),
        tokenizer_(tokenizer),
        observer_(observer != nullptr ? observer : &unobserved_),
        authenticator_(authenticator != nullptr ? authenticator : &open_),
        default_policy_(limits.default_policy),
        streams_(limits.max_streams_per_client),
        parsing_(limits.parsing) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const v1::GenerateRequest* request) override;

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  absl::StatusOr<RequestSpec> Parse(const v1::GenerateRequest& request,
                                    const GenerateCall& call) const;

  Dispatcher* const dispatcher_;
  const tokenizer::Tokenizer* const tokenizer_;
  Observer unobserved_;
  Observer* const observer_;
  const Authenticator open_;
  const Authenticator* const authenticator_;
  const speculation::PolicySpec default_policy_;
  ClientStreams streams_;
  // Ends what is left of calls that failed; each call needs it once.
  WorkPool cancels_{WorkPool::Options{
      .threads = 1, .max_tasks = std::numeric_limits<int>::max()}};
  WorkPool parsing_;  // goes first: its tasks use the rest
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_INFERENCE_SERVICE_H_
