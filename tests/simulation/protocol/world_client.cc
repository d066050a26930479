#include "tests/simulation/protocol/world_client.h"

#include <vector>

namespace nacre::protocol {

using coordinator::WorkerRole;

void World::TargetClient::OpenTarget(
    const coordinator::TargetOpening& opening) {
  const std::vector<int32_t> token_ids = opening.token_ids();
  SessionOnWorker& session =
      Opened(opening.session_id, WorkerRole::kTarget, *opening.request,
             static_cast<int>(token_ids.size()), opening.epoch);
  world_->OnOpened(*session.request, options().numerics);
  world_->checks_.OnOpened(session, token_ids);
  CollectingTargetLink::OpenTarget(opening);
}

void World::DraftClient::OpenDraft(const coordinator::DraftOpening& opening) {
  const std::vector<int32_t> token_ids = opening.token_ids();
  SessionOnWorker& session =
      Opened(opening.session_id, WorkerRole::kDraft, *opening.request,
             static_cast<int>(token_ids.size()), opening.epoch);
  const DraftKind kind = options().draft_kind;
  session.perfect =
      kind == DraftKind::kPerfect && session.request->numerics == 0;
  session.table = &LogitTable::Draft(world_->schedule_.table, kind);
  session.request->perfect_drafts &= session.perfect;
  ++session.request->num_drafts;
  world_->checks_.OnOpened(session, token_ids);
  CollectingDraftLink::OpenDraft(opening);
}

}  // namespace nacre::protocol
