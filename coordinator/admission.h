// Who may start, and who waits: at most max_running requests run at once, and
// none without room; the others queue, first come first served.
//
// A request that fits may pass one before it that does not (a small one, where
// only a large one's room is missing), but each is passed at most kMaxPasses
// times: then nobody starts before it. Since running requests end, it gets its
// room. So a large request is never passed forever, and the workers do not
// stand idle for it either.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_ADMISSION_H_
#define COORDINATOR_ADMISSION_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"

namespace nacre::coordinator {

class Admission {
 public:
  static constexpr int kMaxPasses = 16;

  explicit Admission(int max_running) : max_running_(max_running) {}

  // Appends a request that needs `need` tokens of KV.
  void Push(uint64_t id, int64_t need) { queue_.push_back({id, need, 0}); }
  // False if it does not wait.
  bool Remove(uint64_t id);

  // Takes the next request that may start, nullopt if none may: `has_room` says
  // for a need whether a target has it now. The caller starts it.
  absl::optional<uint64_t> Pop(absl::FunctionRef<bool(int64_t need)> has_room);
  // A request that Pop gave has ended.
  void OnEnded() { --running_; }

  int running() const { return running_; }
  int waiting() const { return static_cast<int>(queue_.size()); }
  // In order: the first is next.
  std::vector<uint64_t> queue() const;

 private:
  struct Entry {
    uint64_t id = 0;
    int64_t need = 0;
    int passes = 0;
  };

  const int max_running_;
  std::deque<Entry> queue_;
  int running_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_ADMISSION_H_
