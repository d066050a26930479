// What both workers' engines are to the rest of the process: a loop on one
// thread that takes commands, runs batched steps and reports. START HERE in
// worker/, then target_worker/target_engine.h and draft_worker/draft_engine.h.

#ifndef WORKER_ENGINE_ENGINE_H_
#define WORKER_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/watchdog.h"
#include "worker/engine/clock.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/time_partition.h"
#include "worker/engine/warm_up.h"

namespace nacre::worker {

// As of one moment.
struct EngineStats {
  uint64_t steps = 0;            // forwards
  uint64_t abandoned_steps = 0;  // cut short, not among `steps`
  // Forwards that the model began before they were asked for, and that were
  // (among `steps`), or were not.
  uint64_t queued_steps_used = 0;
  uint64_t queued_steps_dropped = 0;
  int sessions = 0;
  int64_t kv_free_tokens = 0;
  uint64_t rejected_messages = 0;  // stale, repeated or malformed
  uint64_t rollback_tokens = 0;    // cut from the KV cache
  uint64_t reaped_sessions = 0;    // whose close was lost
  uint64_t kept_lists = 0;         // KeptSessions applied
  uint64_t messages = 0;           // applied, ends of streams included
  // Tokens of all sessions opened, how many of them the prefix cache had, and
  // of these, how many were kept beside the KV cache.
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;
  uint64_t prefix_brought = 0;
  // Tokens that a target proposed to itself, from suffixes or heads, those it
  // verified, and of these the right ones.
  uint64_t suffix_proposed = 0;
  uint64_t suffix_accepted = 0;
  // What became of the nodes that drafts sent to a target, tokens of chains
  // among them. They came before their place was committed, or late. Or they
  // are stale: below what was dropped, or out of turn.
  uint64_t placed_nodes = 0;
  uint64_t late_nodes = 0;
  uint64_t stale_nodes = 0;
  // Sessions that failed because their logits were NaN or infinite, and whether
  // it is the device that is not to be trusted (worker/engine/soundness.h).
  uint64_t nonfinite_logits = 0;
  bool computes_wrongly = false;
  TimePartition::Totals time;
};

// The engine's thread writes, others read. Thread-safe.
class EngineMonitor {
 public:
  explicit EngineMonitor(int64_t start_ns) : time_(start_ns) {}

  void Enter(WorkerState state, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    time_.Enter(state, now_ns);
  }
  // All but `time`.
  void Publish(const EngineStats& stats) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    stats_ = stats;
  }
  EngineStats Read(int64_t now_ns) const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    EngineStats stats = stats_;
    stats.time = time_.At(now_ns);
    return stats;
  }

 private:
  mutable absl::Mutex mu_;
  EngineStats stats_ ABSL_GUARDED_BY(mu_);
  TimePartition time_ ABSL_GUARDED_BY(mu_);
};

// What one call of RunOnce did.
struct StepOutcome {
  bool stepped = false;
  // When idle: look again at this time even if nothing arrives.
  absl::optional<int64_t> deadline_ns;
  // When idle: a session waits for what the other worker is about to send.
  bool waits_for_peer = false;
};

// Thread-compatible but for Stop, stats and progress, which any thread may
// call.
class Engine {
 public:
  explicit Engine(Clock now_ns)
      : now_ns_(std::move(now_ns)), monitor_(now_ns_()) {}
  virtual ~Engine() = default;

  // Once before the first RunOnce, on its thread: what it wants to know of the
  // device while that is well. An error: the device is not.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // Before that: what the first forwards took, for an engine that weighs rows.
  virtual void LearnStepTimes(absl::Span<const StepTime>) {}

  // Takes what has arrived and runs at most one step. An error is the device's:
  // the sessions of the step have failed and the engine is of no further use.
  virtual absl::StatusOr<StepOutcome> RunOnce() = 0;

  // RunOnce until Stop (OK) or an error.
  absl::Status Run();
  void Stop() {
    stopped_.store(true);
    Wake();
  }

  EngineStats stats() const { return monitor_.Read(now_ns_()); }
  Progress progress() const;

 protected:
  virtual void Wake() = 0;
  virtual void WaitForCommands(const StepOutcome& idle) = 0;
  // Sends on its way what has been reported so far.
  virtual void Deliver(Delivery) {}
  // Of any thread: whether there is something that WaitForCommands would not
  // wait for, and a count that rises while a forward makes progress.
  virtual bool HasCommands() const = 0;
  virtual uint64_t forward_progress() const { return 0; }

  const Clock now_ns_;
  EngineMonitor monitor_;

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> loops_{0};
  std::atomic<bool> waiting_{true};
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_ENGINE_H_
