// A Generate call of gRPC: its request comes in as any client's call, its
// CallAnswer writes through it.

#ifndef COORDINATOR_API_GENERATE_CALL_H_
#define COORDINATOR_API_GENERATE_CALL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/api/call_answer.h"
#include "coordinator/api/client_call.h"
#include "coordinator/dispatch/answer_writer.h"
#include "coordinator/dispatch/request.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::coordinator {

// Thread-safe. Keeps itself alive until gRPC is done with it, which is after
// its answer has called Finish: the answer keeps it until then.
class GenerateCall final : public ClientCall<v1::GenerateResponse>,
                           public AnswerWriter {
 public:
  // gRPC keeps the context until it is done with the call.
  static std::shared_ptr<GenerateCall> Create(
      grpc::CallbackServerContext* context,
      const CallAnswer::Environment& environment);

  CallAnswer& answer() { return *answer_; }
  // Has the request answered, unless the call has ended before. Once.
  void Start(const RequestSpec& request);

  void Write(const AnswerPart& part) override ABSL_LOCKS_EXCLUDED(mu_);
  void Finish(const absl::Status& status) override;
  void Abandon() override { TryCancel(context_); }
  void SetTimer(int64_t at_ns, std::function<void()> on_time) override {
    ClientCall::SetTimer(at_ns, std::move(on_time));
  }

 private:
  explicit GenerateCall(grpc::CallbackServerContext* context)
      : context_(context) {}

  void OnRefused(const absl::Status& status) override {
    answer_->Refuse(status);
  }
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnCancelled() override { answer_->OnCancelled(); }

  grpc::CallbackServerContext* const context_;  // gone once gRPC is done
  std::shared_ptr<CallAnswer> answer_;          // set by Create
  absl::Mutex mu_;
  // For the first response; absent once that is written.
  absl::optional<v1::Start> start_ ABSL_GUARDED_BY(mu_);
  // The front is being written while there is one; deque keeps its address.
  std::deque<v1::GenerateResponse> queue_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_GENERATE_CALL_H_
