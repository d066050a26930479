// Which requests start, and which wait: none starts without room. The others
// queue, first come first served.
//
// A request that fits may pass one before it that does not (a small one, where
// only a large one's room is missing). But each is passed at most kMaxPasses
// times. Then nothing starts before it where it could run. Since running
// requests end, it gets its room. So a large request is never passed forever,
// and the workers do not stand idle for it either.
//
// Requests that go on with an answer come ahead of the others, in their own
// order, and no other passes them.
//
// Requests of one class find room, or keep targets free, alike: only the first
// of each class is looked at. So what a free place costs grows with the number
// of classes in the queue, not with its length.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_ADMISSION_H_
#define COORDINATOR_DISPATCH_ADMISSION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"

namespace nacre::coordinator {

class Admission {
 public:
  static constexpr int kMaxPasses = 16;

  // `request_class`: of all requests for which has_room and keep_free of a Pop
  // would say and do the same.
  // `ahead`: of those that come ahead of the others.
  void Push(uint64_t id, std::string request_class, bool ahead = false);
  // False if it does not wait.
  bool Remove(uint64_t id);

  // Takes the next request that may start, nullopt if none may: the caller
  // starts it. `has_room` says whether a target has room for a request now.
  // `keep_free` names one that was passed often enough: until Pop returns,
  // has_room must leave out the targets that could take it.
  absl::optional<uint64_t> Pop(absl::FunctionRef<bool(uint64_t id)> has_room,
                               absl::FunctionRef<void(uint64_t id)> keep_free);
  // The first in the queue that `suits`.
  absl::optional<uint64_t> First(
      absl::FunctionRef<bool(uint64_t id)> suits) const;
  int waiting() const { return static_cast<int>(queue_.size()); }
  // In order: the first is next.
  std::vector<uint64_t> queue() const;
  // How many are before it. Quick for the last that came. Requires: it waits.
  int PlaceOf(uint64_t id) const;

 private:
  // Places of requests that come ahead of the others are below this one.
  static constexpr uint64_t kFirstPlace = uint64_t{1} << 63;

  // The places in the queue of the requests of one class, in order.
  using Places = std::set<uint64_t>;
  struct Entry {
    uint64_t id = 0;
    std::map<std::string, Places>::iterator of_class;
  };
  using Queue = std::map<uint64_t, Entry>;

  void Erase(Queue::iterator entry);
  // Whether nothing behind this place may pass it: it is ahead, or kMaxPasses
  // requests behind it have started.
  bool IsPassedOften(uint64_t place) const;

  Queue queue_;  // by place; those of a kind only rise
  absl::flat_hash_map<uint64_t, uint64_t> places_;  // by id
  std::map<std::string, Places> classes_;           // none is empty
  std::map<uint64_t, Queue::iterator> firsts_;      // of each class, by place
  // The kMaxPasses greatest places from which a request has started. A request
  // that waits at a lesser place waited there already when that happened.
  std::set<uint64_t> started_;
  uint64_t next_ahead_ = 0;
  uint64_t next_place_ = kFirstPlace;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_ADMISSION_H_
