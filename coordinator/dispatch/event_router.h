// What workers say, and where it goes: tails to targets, commits to drafts,
// text and spans to answers, failures to the relocator.
//
// A part of the dispatcher, under its lock. The events are shared with the
// answers' tasks, which read them when the lock is free.

#ifndef COORDINATOR_DISPATCH_EVENT_ROUTER_H_
#define COORDINATOR_DISPATCH_EVENT_ROUTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/pairing.h"
#include "coordinator/dispatch/relocator.h"
#include "coordinator/dispatch/request_desk.h"
#include "coordinator/dispatch/session.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

class EventRouter {
 public:
  template <typename Events>
  using Shared = std::shared_ptr<const Events>;

  EventRouter(DispatcherState* state, Pairing* pairing, RequestDesk* desk,
              Relocator* relocator)
      : state_(*state),
        pairing_(*pairing),
        desk_(*desk),
        relocator_(*relocator) {}

  // Of a target, of a draft. Requires: it is in service.
  void OnEvents(uint64_t target_id, const Shared<wire::TargetEvents>& events);
  void OnEvents(uint64_t draft_id, const Shared<wire::DraftEvents>& events);

 private:
  // Whether what the worker says of the session is of an earlier opening there.
  // A session may come back before the worker has heard that it had left. A
  // worker closes before it opens again. All that it says of an opening comes
  // before the word that it is closed, or in the same message.
  bool IsOfEarlierOpening(uint64_t session_id, uint64_t worker_id) const {
    return state_.fleet.ledger().num_open(worker_id, session_id) > 1;
  }
  void OnSpans(uint64_t worker_id, const Shared<wire::SessionEvents>& events);
  void OnPrompts(uint64_t target_id, const wire::SessionEvents& events);
  void OnTails(uint64_t draft_id, const Shared<wire::DraftEvents>& events);
  void OnNotes(uint64_t draft_id, const wire::DraftEvents& events);
  void ShowNote(uint64_t session_id, uint64_t draft_id,
                const std::string& note);
  void OnPromptLogprobs(uint64_t target_id,
                        const Shared<wire::TargetEvents>& events);
  void OnVerdicts(uint64_t target_id, const Shared<wire::TargetEvents>& events);
  // Sessions that are closed or have failed, and messages left out.
  void OnEnds(uint64_t worker_id, WorkerRole role,
              const wire::SessionEvents& events);
  void OnFailure(uint64_t worker_id, WorkerRole role,
                 const wire::SessionFailure& failure);
  // The session's KV on the worker is free.
  void ReleaseRoom(uint64_t worker_id, uint64_t session_id);

  DispatcherState& state_;
  Pairing& pairing_;
  RequestDesk& desk_;
  Relocator& relocator_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_EVENT_ROUTER_H_
