// The requests that wait or run: their names, and which deadline is next.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_OPEN_REQUESTS_H_
#define COORDINATOR_DISPATCH_OPEN_REQUESTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/request.h"

namespace nacre::coordinator {

class OpenRequests {
 public:
  // The choices of a call are requests of one name.
  bool Has(const std::string& request_id) const {
    return names_.contains(request_id);
  }
  void Add(uint64_t session_id, const RequestSpec& request) {
    ++names_[request.request_id];
    if (request.deadline_ns != kNever) {
      deadlines_.emplace(request.deadline_ns, session_id);
    }
  }
  // It has ended. Requires: it was added.
  void Remove(uint64_t session_id, const RequestSpec& request) {
    deadlines_.erase({request.deadline_ns, session_id});
    const auto it = names_.find(request.request_id);
    if (--it->second == 0) names_.erase(it);
  }

  int64_t next_deadline_ns() const {
    return deadlines_.empty() ? kNever : deadlines_.begin()->first;
  }
  // The session whose deadline passed first, if one has by now.
  absl::optional<uint64_t> Overdue(int64_t now_ns) const {
    if (deadlines_.empty() || deadlines_.begin()->first > now_ns) {
      return absl::nullopt;
    }
    return deadlines_.begin()->second;
  }

 private:
  absl::flat_hash_map<std::string, int> names_;       // how many have it
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // of those that have one
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_OPEN_REQUESTS_H_
