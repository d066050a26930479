// The requests that wait for room, in order (admission.h says which may go
// next), and which of them has waited too long.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_REQUEST_QUEUE_H_
#define COORDINATOR_DISPATCH_REQUEST_QUEUE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/dispatch/admission.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/placer.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/status_board.h"
#include "coordinator/fleet/fleet.h"

namespace nacre::coordinator {

class Answer;

struct WaitingRequest {
  std::shared_ptr<SessionCell> cell;
  std::shared_ptr<Answer> answer;
  TensorChannels channels = {};
  int64_t since_ns = 0;

  const RequestSpec& request() const { return *cell->request; }
};

class RequestQueue {
 public:
  // Each waits at most `timeout_ns` (kNever: for ever). The fleet and the
  // placer outlive it.
  RequestQueue(const Fleet* fleet, const Placer* placer, int64_t timeout_ns)
      : fleet_(*fleet), placer_(*placer), timeout_ns_(timeout_ns) {}

  // Ahead of those that resume nothing, if it resumes an answer.
  void Push(uint64_t session_id, WaitingRequest waiting);
  // Takes it out: it will not run. Requires: it waits.
  WaitingRequest Leave(uint64_t session_id);

  bool contains(uint64_t session_id) const {
    return waiting_.contains(session_id);
  }
  const RequestSpec& request(uint64_t session_id) const {
    return waiting_.at(session_id).request();
  }
  int size() const { return admission_.waiting(); }
  // KV that all of them need on targets, in tokens.
  int64_t needed_tokens() const { return needed_tokens_; }
  // The first for which `suits` is true.
  absl::optional<uint64_t> First(
      absl::FunctionRef<bool(const RequestSpec&)> suits) const;
  // In order: the first is next.
  std::vector<uint64_t> ids() const { return admission_.queue(); }

  // Of one that has just come: how many are before it.
  int PlaceOf(uint64_t session_id) const {
    return admission_.PlaceOf(session_id);
  }

  // When the one that came first has waited long enough; kNever for an empty
  // queue.
  int64_t next_timeout_ns() const;
  // That one, if that is by now.
  absl::optional<uint64_t> TimedOut(int64_t now_ns) const;

  struct Start {
    uint64_t session_id = 0;
    uint64_t target_id = 0;
    WaitingRequest waiting;
  };
  // One pass over the queue for what may start. While it lives, room on targets
  // only shrinks: it remembers what asked for room in vain.
  class Pass {
   public:
    // Nothing starts on `kept_free`. The queue outlives it.
    Pass(RequestQueue* queue, WorkerIds kept_free)
        : queue_(*queue), kept_free_(std::move(kept_free)) {}

    // Takes the next request that may start out of the queue, with the target
    // that has room for it; nullopt if none may.
    absl::optional<Start> Next();

   private:
    // By kind of targets ("": any) the most KV that a request may still ask for
    // with success. One that needs more need not ask each target: so however
    // many wait, targets are looked at only as often as one of them changes.
    class MostNeed {
     public:
      // `kinds`: those that the request takes (Placer::KindsFor).
      bool Excludes(absl::Span<const std::string> kinds, int64_t need) const;
      void Note(const std::string& kind, int64_t most) { most_[kind] = most; }

     private:
      bool Excludes(const std::string& kind, int64_t need) const;

      absl::flat_hash_map<std::string, int64_t> most_;
    };

    RequestQueue& queue_;
    const WorkerIds kept_free_;
    MostNeed with_room_;
  };

 private:
  // Takes it out of what is kept of it here.
  WaitingRequest Take(uint64_t session_id);
  // Targets that could take the request, if they had nothing else.
  void AddTargetsFor(const RequestSpec& request, WorkerIds* targets) const;

  const Fleet& fleet_;
  const Placer& placer_;
  const int64_t timeout_ns_;
  Admission admission_;
  absl::flat_hash_map<uint64_t, WaitingRequest> waiting_;
  std::set<std::pair<int64_t, uint64_t>> arrivals_;  // of all that wait
  int64_t needed_tokens_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_REQUEST_QUEUE_H_
