// One Generate call: the session's output queue towards the client.

#ifndef COORDINATOR_GENERATE_CALL_H_
#define COORDINATOR_GENERATE_CALL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/dispatcher.h"
#include "coordinator/observer.h"
#include "coordinator/request.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::coordinator {

// Thread-safe. Keeps itself alive until gRPC is done with it. Lock order: the
// dispatcher's lock before this one; the dispatcher is called without it.
class GenerateCall final
    : public grpc::ServerWriteReactor<v1::GenerateResponse>,
      public ResponseSink {
 public:
  // Dispatcher and observer outlive the call. `on_done` is called once, when
  // gRPC is done with it.
  static std::shared_ptr<GenerateCall> Create(
      grpc::CallbackServerContext* context, Dispatcher* dispatcher,
      Observer* observer, std::function<void()> on_done);

  // Names the responses. Call before the session starts.
  void SetRequestId(const std::string& request_id) { request_id_ = request_id; }

  // The session that feeds this call; a cancellation that came first ends it.
  void SetSession(uint64_t session_id);

  void OnChunk(const Chunk& chunk) override;
  void OnComplete(const RequestSpec& request,
                  const Completion& completion) override;
  void OnError(const absl::Status& status) override;
  int pending_chunks() const override;
  void Abandon() override { context_->TryCancel(); }

  // By its client, or by its deadline.
  bool cancelled() const;

 private:
  GenerateCall(grpc::CallbackServerContext* context, Dispatcher* dispatcher,
               Observer* observer, std::function<void()> on_done)
      : context_(context),
        dispatcher_(dispatcher),
        observer_(observer),
        on_done_(std::move(on_done)) {}

  void Push(v1::GenerateResponse response, bool last);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  grpc::CallbackServerContext* const context_;  // gone once gRPC is done
  Dispatcher* const dispatcher_;
  Observer* const observer_;
  const std::function<void()> on_done_;
  std::shared_ptr<GenerateCall> self_;
  std::string request_id_;
  mutable absl::Mutex mu_;
  // The front is being written while writing_.
  std::deque<v1::GenerateResponse> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // nothing more will come
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t session_id_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::Status status_;  // set before finishing_
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_GENERATE_CALL_H_
