// The coordinators behind the gateway: which of them answer, and calls of
// nacre.v1.Inference on them. Calls hold no thread.
//
// Events come on the thread of the event loop. The client's own functions are
// for that thread too, but for model().

#ifndef GATEWAY_INFERENCE_CLIENT_H_
#define GATEWAY_INFERENCE_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "gateway/event_loop.h"
#include "gateway/served_model.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

// What a call shows the coordinator besides its request.
struct CallHeaders {
  std::string token;        // bearer token; empty: none
  std::string traceparent;  // of the client; empty: none
};

// One running Generate.
class GenerationCall {
 public:
  virtual ~GenerationCall() = default;
  // Asks for the next response: on_response or on_done follows. One at a time.
  virtual void Next() = 0;
  // on_done follows unless it has been.
  virtual void Cancel() = 0;
};

class InferenceClient {
 public:
  // A call to a coordinator after a request's first one: before its first
  // response, or to go on with its answer.
  enum class FurtherCall { kRetry, kResume };

  struct Options {
    std::vector<std::string> addresses;  // host:port of coordinators
    rpc::ChannelSecurity security;
    // The gateway's own token for GetModel, asked for each time; null: none.
    // On the loop.
    std::function<std::string()> token;
    absl::Duration poll_period = absl::Seconds(1);
    absl::Duration poll_timeout = absl::Seconds(5);
    // Of a call, whatever the number of coordinators that are tried; 0: none.
    absl::Duration request_timeout = absl::ZeroDuration();
    // How long a request that all coordinators failed, or whose answer was cut
    // off, waits for a coordinator that takes it; 0: it ends.
    absl::Duration resume_timeout = absl::Seconds(30);
    absl::Duration resume_period = absl::Milliseconds(200);  // about, of looks
    std::function<void(FurtherCall)> on_further_call;  // on the loop; or null
  };
  struct Events {
    std::function<void(v1::GenerateResponse)> on_response;
    std::function<void(const absl::Status&)> on_done;
  };

  // Asks every coordinator for its model from then on. The loop must outlive
  // the client.
  InferenceClient(Options options, EventLoop* loop);
  // Closes.
  ~InferenceClient();

  // Cancels what runs and waits for its end; later calls end with UNAVAILABLE.
  // The loop must run: it takes part in the end of a call. Calls without a
  // pending Next must have been cancelled. Not on the loop's thread; on_done
  // may come after it. Idempotent.
  void Close();

  // What the coordinators serve together: those whose last answer was a model,
  // or, where there is none, those of before. Thread-safe. Else UNAVAILABLE
  // with what the last one said.
  absl::StatusOr<ServedModel> model() const;
  // Whether a coordinator has answered to the last question. Thread-safe.
  bool ready() const { return health().ok(); }
  // OK where it is ready; else UNAVAILABLE with the status that the last
  // failure had, and whose. Thread-safe.
  absl::Status health() const;

  // Waits until each coordinator has answered, or failed to, once; at most
  // `timeout`. Not on the loop's thread.
  void AwaitFirstAnswers(absl::Duration timeout) const;

  // Starts a call on one of the coordinators that answer, in turn. Where it
  // fails with UNAVAILABLE before its first response the next one is tried,
  // each once. After that, and where an answer is cut off, the call waits for a
  // coordinator that answers. It tries at most three times without a new
  // response. Tries do not count that meet a full queue, or no target of the
  // right size or numerics_id: one may come. Only a call that lost no
  // coordinator ends with these. Nothing is missing or comes twice. INTERNAL
  // where a coordinator goes on at another token. Call Next for the first
  // response.
  std::shared_ptr<GenerationCall> Generate(v1::GenerateRequest request,
                                           CallHeaders headers, Events events);

 private:
  class State;  // keeps gRPC out of this header

  const std::shared_ptr<State> state_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_INFERENCE_CLIENT_H_
