// How many sessions one coordinator has on one worker.
//
// A plain value.

#ifndef TESTS_SIMULATION_PROTOCOL_OPEN_SESSIONS_H_
#define TESTS_SIMULATION_PROTOCOL_OPEN_SESSIONS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "wire/session_events.h"

namespace nacre::protocol {

// As the worker sees it, where openings are noted as they reach it and events
// as it says them; as the coordinator does, where both are noted there. An
// opening lasts until the worker says its end.
class OpenSessions {
 public:
  void Open(uint64_t session_id) {
    ++openings_[session_id];
    ++count_;
  }
  void Note(const wire::SessionEvents& events) {
    for (const uint64_t session_id : events.closed) Close(session_id);
    for (const wire::SessionFailure& failure : events.failures) {
      Close(failure.session_id);
    }
  }
  int count() const { return count_; }

 private:
  void Close(uint64_t session_id) {
    const auto it = openings_.find(session_id);
    if (it == openings_.end()) return;
    --count_;
    if (--it->second == 0) openings_.erase(it);
  }

  absl::flat_hash_map<uint64_t, int> openings_;
  int count_ = 0;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_OPEN_SESSIONS_H_
