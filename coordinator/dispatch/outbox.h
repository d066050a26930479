// What the dispatcher has decided under its lock and others are yet to be told.

#ifndef COORDINATOR_DISPATCH_OUTBOX_H_
#define COORDINATOR_DISPATCH_OUTBOX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/check.h"
#include "coordinator/dispatch/answer.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/worker_link.h"
#include "coordinator/fleet/worker_info.h"
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
  std::vector<std::shared_ptr<WorkerLink>> links;  // that have messages
  std::vector<std::shared_ptr<Answer>> answers;    // that have tasks
  std::vector<PlanTask> plans;
  int64_t wake_at_ns = kNever;
};

// Under the dispatcher's lock, but for AwaitLastWords.
class Outbox {
 public:
  // The worker was told something.
  void Note(const std::shared_ptr<WorkerLink>& link, uint64_t* noted_in) {
    if (std::exchange(*noted_in, turn_) != turn_) left_.links.push_back(link);
  }
  // What each worker was told ends a message.
  void Cut() {
    for (const auto& link : left_.links) link->Cut();
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
  void Plan(PlanTask task) {
    // Probably as many as the last time: none is moved to make room.
    if (left_.plans.empty()) left_.plans.reserve(num_plans_);
    left_.plans.push_back(std::move(task));
  }
  void WakeAt(int64_t at_ns) { left_.wake_at_ns = at_ns; }

  // Ends the turn.
  Leftovers Take() {
    Cut();
    ++turn_;
    if (!left_.plans.empty()) num_plans_ = left_.plans.size();
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
  size_t num_plans_ = 0;  // of the last turn that had some
  Leftovers left_;
  absl::Mutex mu_;
  int unsaid_ ABSL_GUARDED_BY(mu_) = 0;
};

// A worker's link: each call leaves something to be sent.
class NotedLink {
 public:
  NotedLink(std::shared_ptr<TargetLink> link, Outbox* outbox)
      : target_(link.get()), link_(std::move(link)), outbox_(outbox) {}
  NotedLink(std::shared_ptr<DraftLink> link, Outbox* outbox)
      : draft_(link.get()), link_(std::move(link)), outbox_(outbox) {}

  // What both kinds of worker are told.
  WorkerLink* operator->() {
    outbox_->Note(link_, &noted_in_);
    return link_.get();
  }
  // What only a target, or only a draft, is told.
  TargetLink& target() {
    NACRE_CHECK(target_ != nullptr, "a draft is told what is a target's");
    outbox_->Note(link_, &noted_in_);
    return *target_;
  }
  DraftLink& draft() {
    NACRE_CHECK(draft_ != nullptr, "a target is told what is a draft's");
    outbox_->Note(link_, &noted_in_);
    return *draft_;
  }
  // To ask it something.
  const WorkerLink* operator->() const { return link_.get(); }

  WorkerRole role() const {
    return target_ != nullptr ? WorkerRole::kTarget : WorkerRole::kDraft;
  }

 private:
  // One of the two; into link_.
  TargetLink* target_ = nullptr;
  DraftLink* draft_ = nullptr;
  std::shared_ptr<WorkerLink> link_;
  Outbox* outbox_;
  uint64_t noted_in_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_OUTBOX_H_
