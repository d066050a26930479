// One Generate call: the output of its choices' sessions in one queue towards
// the client.

#ifndef COORDINATOR_GENERATE_CALL_H_
#define COORDINATOR_GENERATE_CALL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/client_call.h"
#include "coordinator/dispatcher.h"
#include "coordinator/observer.h"
#include "coordinator/request.h"
#include "coordinator/work_pool.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::coordinator {

// Thread-safe. Keeps itself alive until gRPC is done with it. Lock order: the
// dispatcher's lock before this one; the dispatcher is called without it.
//
// It ends when its last session has ended and all output is written. The first
// session that fails decides the status; the others are cancelled before the
// client hears of it.
class GenerateCall final : public ClientCall<v1::GenerateResponse> {
 public:
  // All but the context outlive the call. `cancels` is where sessions are
  // cancelled that must not be on the thread that finds out: it may hold the
  // dispatcher's lock. It takes any number of tasks.
  struct Environment {
    grpc::CallbackServerContext* context = nullptr;
    Dispatcher* dispatcher = nullptr;
    Observer* observer = nullptr;
    WorkPool* cancels = nullptr;
  };
  static std::shared_ptr<GenerateCall> Create(const Environment& environment);

  // The client's name for it, for errors that come before Start.
  void SetRequestId(std::string request_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts a session for each choice of the request, unless the call has ended
  // before. Once.
  void Start(const RequestSpec& request);

 private:
  class Sink;  // of one choice's session
  struct Choice {
    uint64_t session_id = 0;  // 0: not started
    bool ended = false;
    int pending = 0;  // responses in the queue
  };

  explicit GenerateCall(const Environment& environment)
      : environment_(environment) {}

  // False, and the call is to be cancelled or has failed: start no more.
  bool StartChoice(const RequestSpec& request, int index);

  // What the sessions say and ask, under the dispatcher's lock.
  void OnChunk(int index, const Chunk& chunk);
  void OnComplete(int index, const RequestSpec& request,
                  const Completion& completion);
  void OnError(int index, const absl::Status& status);
  int PendingChunks(int index) const;
  int64_t TakenChunks() const;
  void Abandon() { TryCancel(environment_.context); }

  void Push(int index, v1::GenerateResponse response);
  // The first failure is the call's status; whether this is the first.
  bool Fail(const absl::Status& status);
  // Without the dispatcher's lock.
  void CancelSessions();
  // One of num_open_ has ended.
  void Release();
  // All sessions have ended, and what they said is not written: the client has
  // --client-timeout for each part that it takes of it.
  void AwaitReader(int64_t taken);

  void OnRefused(const absl::Status& status) override;
  void OnWriteDone(bool ok) override;
  void OnCancelled() override;

  std::shared_ptr<GenerateCall> self() {
    return std::static_pointer_cast<GenerateCall>(shared_from_this());
  }

  const Environment environment_;  // the context is gone once gRPC is done
  mutable absl::Mutex mu_;
  std::string request_id_ ABSL_GUARDED_BY(mu_);
  std::vector<Choice> choices_ ABSL_GUARDED_BY(mu_);
  // Sessions that have not ended, and whoever may still start some. Nothing
  // more comes when it is 0.
  int num_open_ ABSL_GUARDED_BY(mu_) = 1;
  int num_completed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::optional<coordinator::Finish> first_finish_
      ABSL_GUARDED_BY(mu_);  // of choice 0
  // The front is being written while writing_.
  std::deque<v1::GenerateResponse> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_taken_ ABSL_GUARDED_BY(mu_) = 0;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  // What ended it was neither its client nor its deadline.
  bool failed_by_itself_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_;  // set before num_open_ is 0
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_GENERATE_CALL_H_
