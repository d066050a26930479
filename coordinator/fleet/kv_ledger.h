// How much KV of each worker is promised to which session. The workers reserve
// the same when they open a session, so what the ledger grants they have, and a
// running request never fails for KV. A worker may also have a limit of
// sessions: one more has no room there, whatever KV is free.
//
// The room of an ended session comes back only when its worker says that it has
// closed it. Before that the worker would refuse an opening that is already on
// its way.
//
// A worker that several coordinators share grants each a part of its KV, and
// what is promised stays within that.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_FLEET_KV_LEDGER_H_
#define COORDINATOR_FLEET_KV_LEDGER_H_

#include <cstdint>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace nacre::coordinator {

class KvLedger {
 public:
  static constexpr int kBlockTokens = 16;  // the workers' model::KvPool blocks

  // What a session takes that may become `tokens` long: whole blocks. Prompt
  // and max_tokens together are all it ever holds. The window needs no room:
  // the tail of a step is never longer than what remains to be generated.
  static int64_t Need(int64_t tokens) {
    return (tokens + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
  }

  // `capacity_tokens` 0: not known, everything fits. `grants`: nothing may be
  // promised before SetGrant. `max_sessions` 0: no such limit.
  void AddWorker(uint64_t worker_id, int64_t capacity_tokens,
                 bool grants = false, int max_sessions = 0);
  // What may be promised from now on; what is promised stays. Requires: the
  // worker grants.
  void SetGrant(uint64_t worker_id, int64_t tokens);
  // With all that was reserved there.
  void RemoveWorker(uint64_t worker_id);

  // `need` as of Need; false for an unknown worker. CouldHold: if nothing else
  // was there.
  bool CouldHold(uint64_t worker_id, int64_t need) const;
  // How many sessions of that need it could hold at once, if nothing else was
  // there: kAnyNumber where nothing says.
  static constexpr int64_t kAnyNumber = std::numeric_limits<int32_t>::max();
  int64_t MostSessions(uint64_t worker_id, int64_t need) const;
  bool HasRoom(uint64_t worker_id, int64_t need) const {
    return need <= room_tokens(worker_id);
  }
  // The largest need that has room; -1: none has, kAnyNeed: it does not tell.
  static constexpr int64_t kAnyNeed = std::numeric_limits<int64_t>::max();
  int64_t room_tokens(uint64_t worker_id) const;

  // False without room. A session that was closed and opened again on the same
  // worker has reserved twice until the first close is confirmed.
  bool Reserve(uint64_t worker_id, uint64_t session_id, int64_t need);
  // Gives back the session's oldest reservation there; false if it has none.
  bool Release(uint64_t worker_id, uint64_t session_id);

  // How often the session was opened there without having been closed since, as
  // far as the worker has said. All but the last are to be closed.
  int num_open(uint64_t worker_id, uint64_t session_id) const;
  // It has as many sessions as it may.
  bool is_full(uint64_t worker_id) const;
  int64_t capacity_tokens(uint64_t worker_id) const;
  int64_t granted_tokens(uint64_t worker_id) const;
  int64_t reserved_tokens(uint64_t worker_id) const;

 private:
  struct Worker {
    int64_t capacity_tokens = 0;
    int64_t granted_tokens = 0;  // of them, to us: all, unless it grants
    int64_t reserved_tokens = 0;
    int max_sessions = 0;  // 0: any number
    int num_sessions = 0;  // opened and not closed
    // What each has reserved, the oldest first: mostly once.
    absl::flat_hash_map<uint64_t, absl::InlinedVector<int64_t, 1>> sessions;
  };

  static bool IsFull(const Worker& worker);
  const Worker* Find(uint64_t worker_id) const;

  absl::flat_hash_map<uint64_t, Worker> workers_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_KV_LEDGER_H_
