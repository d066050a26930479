// The answer to one Generate call, whatever protocol carries it. It starts a
// session for each choice and passes their output to the client's AnswerWriter.
// It lets the client set each session's pace, and decides how the call ends.
//
// The first session that fails decides the status. The other sessions are
// cancelled before the client hears of it. The call ends when its last session
// has ended and the client has taken everything.

#ifndef COORDINATOR_API_CALL_ANSWER_H_
#define COORDINATOR_API_CALL_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/answer_writer.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/work_pool.h"

namespace nacre::coordinator {

// Thread-safe. Lock order: the dispatcher's lock before this one. The
// dispatcher and the writer are called without this lock.
class CallAnswer final : public std::enable_shared_from_this<CallAnswer> {
 public:
  // All of it outlives the answer. `cancels` runs the cancels of sessions that
  // the thread that finds out must not run itself: it may hold the dispatcher's
  // lock. `cancels` takes any number of tasks.
  struct Environment {
    Dispatcher* dispatcher = nullptr;
    Observer* observer = nullptr;
    WorkPool* cancels = nullptr;
    Clock now_ns = MonotonicNs;
    // How long the client may take none of a finished answer.
    int64_t client_timeout_ns = kNever;
  };

  // The answer keeps the writer until it has called Finish.
  static std::shared_ptr<CallAnswer> Create(
      const Environment& environment, std::shared_ptr<AnswerWriter> writer);

  // The client's name for the call, for errors that come before Start.
  void SetRequestId(std::string request_id) ABSL_LOCKS_EXCLUDED(mu_);
  // One of the two, once. Start starts a session for each choice of the
  // request, but for those that a resumed answer has ended, unless the client
  // has cancelled before. Refuse ends the call without any session.
  void Start(const RequestSpec& request);
  void Refuse(const absl::Status& status);

  // The transport took a part of this choice, or dropped it.
  void OnTaken(int choice) ABSL_LOCKS_EXCLUDED(mu_);
  // The client has cancelled the call, or its deadline has passed.
  void OnCancelled() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Sink;  // of one choice's session
  struct Choice {
    uint64_t session_id = 0;  // 0: not started
    bool ended = false;
    int pending = 0;  // parts that the transport has not taken
  };

  CallAnswer(const Environment& environment,
             std::shared_ptr<AnswerWriter> writer)
      : environment_(environment), writer_(std::move(writer)) {}

  // Counts the choices that are done: nothing is said of them.
  void SkipDone(const std::vector<ResumedChoice>& choices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The completion of a choice that the resumed tokens end.
  void CompleteResumed(const RequestSpec& request, int index,
                       const Completion& ended);
  // Sessions for these choices, counted in num_open_, and what is said at once
  // of those of them that the resumed tokens end.
  void StartChoices(const RequestSpec& request,
                    const std::vector<int>& choices);
  void OnStarted(int index, uint64_t session_id);

  // What the sessions say and ask, some of it under the dispatcher's lock.
  void OnComplete(int index, const RequestSpec& request,
                  const Completion& completion);
  void OnError(int index, const absl::Status& status);
  int PendingChunks(int index) const;
  int64_t TakenChunks() const;
  void Abandon();

  void Write(AnswerPart part);
  // The first failure is the call's status; whether this is the first.
  bool Fail(const absl::Status& status);
  // Without the dispatcher's lock.
  void CancelSessions();
  // One of num_open_ has ended.
  void Release();
  // All sessions have ended, and the client has not taken all they said: it has
  // the client timeout for each part.
  void AwaitReader(int64_t taken);
  // Ends the call if nothing is left to say or to take.
  void FinishIfDone();

  const Environment environment_;
  mutable absl::Mutex mu_;
  // Null once the call has ended: its transport may be gone.
  std::shared_ptr<AnswerWriter> writer_ ABSL_GUARDED_BY(mu_);
  std::string request_id_ ABSL_GUARDED_BY(mu_);
  std::vector<Choice> choices_ ABSL_GUARDED_BY(mu_);
  // Sessions that have not ended, and the caller that may still start some.
  // Nothing more is written when it is 0.
  int num_open_ ABSL_GUARDED_BY(mu_) = 1;
  int num_completed_ ABSL_GUARDED_BY(mu_) = 0;
  int num_untaken_ ABSL_GUARDED_BY(mu_) = 0;  // parts
  int64_t num_taken_ ABSL_GUARDED_BY(mu_) = 0;
  int first_choice_ ABSL_GUARDED_BY(mu_) = 0;                 // that it answers
  absl::optional<Finish> first_finish_ ABSL_GUARDED_BY(mu_);  // of that one
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::optional<absl::Status> failure_ ABSL_GUARDED_BY(mu_);
  // What failed was neither the client nor its deadline.
  bool failed_by_itself_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_CALL_ANSWER_H_
