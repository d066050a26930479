// How a worker shares its KV cache among several coordinators. The worker alone
// decides; each coordinator promises its sessions no more than its grant.
//
// A grant shrinks in two steps. The worker names the smaller one, and the
// coordinator answers with what it has promised by then. Only what is above
// that is granted elsewhere. So no session that a coordinator has promised room
// to is ever refused it, and at all times
//
//   sum over coordinators of max(grant in use, promised) <= capacity.
//
// Requests that wait at different coordinators take turns. What becomes free
// goes first to the coordinator whose first request has waited longest for its
// turn, until that request has its room. So none waits forever, however large.
//
// Pure: no I/O, no clock, no threads. All sizes are tokens.

#ifndef WORKER_PROCESS_KV_GRANTS_H_
#define WORKER_PROCESS_KV_GRANTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "wire/kv_report.h"

namespace nacre::worker {

// What one coordinator has and wants.
struct KvClaim {
  int64_t reserved = 0;  // promised to its sessions
  int64_t need = 0;      // of its first request that waits for room; 0: none
  int64_t wanted = 0;    // of all that wait; counts as `need` at least
};

// Divides `capacity` among `claims`, which are in order of turn: a share for
// each. Each keeps what is reserved. The rest goes to the needs in order, the
// first that does not fit getting all that is left. Then it goes to what is
// wanted beyond, and then to all, in equal parts of whole blocks. The shares
// add up to `capacity` but for less than a block, or, where more is reserved,
// to what is reserved.
std::vector<int64_t> DivideKv(int64_t capacity,
                              absl::Span<const KvClaim> claims);

class KvGrants {
 public:
  // A coordinator that leaves the room for its first request unused for so many
  // reports passes its turn on.
  static constexpr int kMaxIdleReports = 3;

  explicit KvGrants(int64_t capacity) : capacity_(capacity) {}

  // A coordinator that has promised nothing yet: it comes last. Its number must
  // not be among those that are there.
  void Join(uint64_t coordinator);
  // Its sessions here have ended: what it had is free. Unknown ones are
  // ignored.
  void Leave(uint64_t coordinator);
  bool contains(uint64_t coordinator) const {
    return Find(coordinator) != nullptr;
  }
  // What it says; unknown coordinators and grants that were never made are
  // ignored.
  void OnReport(uint64_t coordinator, const wire::KvReport& report);

  // What the coordinator is to be told now. It counts as told.
  struct Grant {
    uint64_t serial = 0;
    int64_t tokens = 0;
    int other_sessions = 0;  // that run here for other coordinators
  };
  Grant Tell(uint64_t coordinator);
  // Those that are to be told before their next heartbeat: a request waits for
  // what their grants give or take.
  std::vector<uint64_t> Urgent() const;

  // What it may have promised at most, by all that it was told.
  int64_t held(uint64_t coordinator) const;
  int64_t total_held() const;
  int64_t capacity() const { return capacity_; }

 private:
  struct Coordinator {
    uint64_t id = 0;
    int64_t held = 0;
    int64_t share = 0;    // what it is to have
    int64_t granted = 0;  // what it was told last, as grant `serial`
    uint64_t serial = 0;  // 0: nothing yet
    wire::KvReport report;
    uint64_t offered = 0;  // the request that its grant has room for; 0: none
    int idle_reports = 0;  // since then
  };

  const Coordinator* Find(uint64_t id) const;
  Coordinator* Find(uint64_t id) {
    return const_cast<Coordinator*>(std::as_const(*this).Find(id));
  }
  void Divide();
  // What it is told next.
  int64_t NextGrant(const Coordinator& coordinator) const;
  // Whether its turn is over.
  static bool HasHadTurn(Coordinator* coordinator,
                         const wire::KvReport& report);

  const int64_t capacity_;
  uint64_t last_serial_ = 0;
  std::vector<Coordinator> coordinators_;  // in order of turn
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_KV_GRANTS_H_
