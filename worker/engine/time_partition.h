// How a worker spends its life. Every nanosecond since its start belongs to one
// state, so busy and waiting times add up to the elapsed time.
//
// Pure value; times are passed in, nanoseconds of one monotonic clock.

#ifndef WORKER_ENGINE_TIME_PARTITION_H_
#define WORKER_ENGINE_TIME_PARTITION_H_

#include <array>
#include <cstdint>

namespace nacre::worker {

enum class WorkerState {
  kPrefill,
  kDraft,
  kVerify,
  kWaitDraftTokens,  // target: every session's gate is closed
  kWaitVerdict,      // draft: every session has drafted all it may
  kWaitAcknowledge,  // target: too far ahead of the coordinator
  kNoWork,           // nothing to wait for: capacity, not mutual waiting
};
inline constexpr int kNumWorkerStates = 7;

class TimePartition {
 public:
  // Begins in kNoWork.
  explicit TimePartition(int64_t start_ns)
      : start_ns_(start_ns), since_ns_(start_ns) {}

  // The time since the last Enter belongs to the state before. A clock value
  // below an earlier one counts as that one.
  void Enter(WorkerState state, int64_t now_ns);

  struct Totals {
    int64_t elapsed_ns = 0;  // the sum of `by_state_ns`
    std::array<int64_t, kNumWorkerStates> by_state_ns{};
    int64_t operator[](WorkerState state) const {
      return by_state_ns[static_cast<int>(state)];
    }
  };
  // Totals as of `now_ns`, the running state included.
  Totals At(int64_t now_ns) const;

 private:
  int64_t start_ns_;
  int64_t since_ns_;
  WorkerState state_ = WorkerState::kNoWork;
  std::array<int64_t, kNumWorkerStates> by_state_ns_{};
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_TIME_PARTITION_H_
