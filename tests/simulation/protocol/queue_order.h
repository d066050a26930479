// Which calls wait at a coordinator, and which of them others may pass: the
// order of docs/load.md, counted plainly.
//
// - What goes on with an answer is passed by nothing where it could run, but by
//   what goes on and came before it.
// - Any other is passed at most Admission::kMaxPasses times by those behind it,
//   then by none of them where it could run.

#ifndef TESTS_SIMULATION_PROTOCOL_QUEUE_ORDER_H_
#define TESTS_SIMULATION_PROTOCOL_QUEUE_ORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace nacre::protocol {

// Of one coordinator.
class QueueOrder {
 public:
  struct Call {
    int request = 0;
    int number = 0;  // of the request's calls
    bool resumes = false;
    int64_t kv_need = 0;
    std::string numerics_id = {};  // empty: any
    int passes = 0;
  };
  struct Target {
    int64_t kv_capacity = 0;
    std::string numerics_id;
  };

  // Before it is admitted: perhaps it starts at once, or is refused.
  void Arrive(Call call) { waiting_.push_back(std::move(call)); }
  // Forgets those that wait no more, but for a start.
  void Prune(absl::FunctionRef<bool(const Call&)> is_gone);
  // It starts there. Those that it must not have passed, if they still wait
  // when the coordinator has done all that it does at this moment.
  std::vector<Call> Start(int request, int number, const Target& target);

  int64_t num_overtaken() const { return num_overtaken_; }

 private:
  std::vector<Call> waiting_;  // in the order in which they came
  int64_t num_overtaken_ = 0;  // as often as they may be
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_QUEUE_ORDER_H_
