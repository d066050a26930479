// What the dispatcher has decided under its lock and others are yet to be told.

#ifndef COORDINATOR_OUTBOX_H_
#define COORDINATOR_OUTBOX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "coordinator/answer.h"
#include "coordinator/clock.h"
#include "coordinator/worker_client.h"
#include "speculation/estimators.h"
#include "speculation/plan.h"

namespace nacre::coordinator {

// A session that is to be planned anew.
struct PlanTask {
  uint64_t session_id = 0;
  uint64_t target_worker = 0;
  speculation::PlanInputs inputs;
  std::shared_ptr<const speculation::StepTimeCurve> step_times;  // of inputs
  // What its workers follow now, if anything.
  absl::optional<speculation::PipelinePlan> plan;
};

// What one turn at the dispatcher leaves to be done without its lock.
struct Leftovers {
  std::vector<std::shared_ptr<WorkerClient>> clients;  // that have messages
  std::vector<std::shared_ptr<Answer>> answers;        // that have tasks
  std::vector<PlanTask> plans;
  int64_t wake_at_ns = kNever;
};

// Under the dispatcher's lock, but for AwaitLastWords.
class Outbox {
 public:
  // The client was told something.
  void Note(const std::shared_ptr<WorkerClient>& client, uint64_t* noted_in) {
    if (std::exchange(*noted_in, turn_) != turn_) {
      left_.clients.push_back(client);
    }
  }
  // What each worker was told ends a message.
  void Cut() {
    for (const auto& client : left_.clients) client->Cut();
  }
  // A task of the answer.
  void Later(const std::shared_ptr<Answer>& answer, OutputQueue::Task task) {
    if (std::exchange(answer->noted_in, turn_) != turn_) {
      left_.answers.push_back(answer);
    }
    answer->queue().Add(std::move(task));
  }
  // The last one of the answer.
  void LastWord(const std::shared_ptr<Answer>& answer, OutputQueue::Task task) {
    CountLastWords(1);
    Later(answer, [this, task = std::move(task)] {
      task();
      CountLastWords(-1);
    });
  }
  void Plan(PlanTask task) { left_.plans.push_back(std::move(task)); }
  void WakeAt(int64_t at_ns) { left_.wake_at_ns = at_ns; }

  // Ends the turn.
  Leftovers Take() {
    Cut();
    ++turn_;
    return std::exchange(left_, {});
  }

  // Waits until all last words so far are said; false if that takes longer.
  bool AwaitLastWords(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto all_said = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return unsaid_ == 0;
    };
    return mu_.AwaitWithDeadline(absl::Condition(&all_said), deadline);
  }

 private:
  void CountLastWords(int more) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    unsaid_ += more;
  }

  uint64_t turn_ = 1;
  Leftovers left_;
  absl::Mutex mu_;
  int unsaid_ ABSL_GUARDED_BY(mu_) = 0;
};

// A worker's client: who calls it leaves something to be sent.
class ClientLink {
 public:
  ClientLink(std::shared_ptr<WorkerClient> client, Outbox* outbox)
      : client_(std::move(client)), outbox_(outbox) {}

  WorkerClient* operator->() {
    outbox_->Note(client_, &noted_in_);
    return client_.get();
  }
  // To ask it something.
  const WorkerClient* operator->() const { return client_.get(); }

 private:
  std::shared_ptr<WorkerClient> client_;
  Outbox* outbox_;
  uint64_t noted_in_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OUTBOX_H_
