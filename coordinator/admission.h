// Who may start, and who waits: at most max_running requests run at once, and
// none without room; the others queue, first come first served.
//
// A request that fits may pass one before it that does not (a small one, where
// only a large one's room is missing), but each is passed at most kMaxPasses
// times: then nothing starts before it where it could run. Since running
// requests end, it gets its room. So a large request is never passed forever,
// and the workers do not stand idle for it either.
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

  void Push(uint64_t id) { queue_.push_back({id, 0}); }
  // False if it does not wait.
  bool Remove(uint64_t id);

  // Takes the next request that may start, nullopt if none may: the caller
  // starts it. `has_room` says whether a target has room for a request now.
  // `keep_free` names one that was passed often enough: until Pop returns,
  // has_room must leave out the targets that could take it.
  absl::optional<uint64_t> Pop(absl::FunctionRef<bool(uint64_t id)> has_room,
                               absl::FunctionRef<void(uint64_t id)> keep_free);
  // A request that Pop gave has ended.
  void OnEnded() { --running_; }

  int running() const { return running_; }
  int waiting() const { return static_cast<int>(queue_.size()); }
  // In order: the first is next.
  std::vector<uint64_t> queue() const;

 private:
  struct Entry {
    uint64_t id = 0;
    int passes = 0;
  };

  const int max_running_;
  std::deque<Entry> queue_;
  int running_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_ADMISSION_H_
