#include "tests/simulation/protocol/world_client.h"

#include <algorithm>
#include <utility>

namespace nacre::protocol {

using coordinator::WorkerRole;

SessionOnWorker& World::Client::Opened(uint64_t session_id,
                                       const coordinator::RequestSpec& request,
                                       int length, uint32_t epoch) {
  world_->counts_.returned +=
      std::any_of(link_->sessions.begin(), link_->sessions.end(),
                  [session_id](const SessionOnWorker* session) {
                    return session->session_id == session_id;
                  });
  SessionOnWorker& session = world_->sessions_.emplace_back();
  session.request = world_->FindRequest(request);
  session.session_id = session_id;
  session.role = is_target_ ? WorkerRole::kTarget : WorkerRole::kDraft;
  session.epoch = epoch;
  session.opened_length = session.committed = length;
  link_->sessions.push_back(&session);
  return session;
}

void World::Client::OpenTarget(const coordinator::TargetOpening& opening) {
  const coordinator::RequestSpec& request = *opening.request;
  SessionOnWorker& session =
      Opened(opening.session_id, request,
             static_cast<int>(opening.token_ids().size()), opening.epoch);
  world_->OnOpened(
      *session.request,
      world_->processes_[static_cast<size_t>(link_->worker)].options->numerics);
  world_->checks_.OnOpened(session, opening.token_ids());
  target_worker::OpenTarget open;
  open.session_id = opening.session_id;
  open.token_ids = opening.token_ids();
  open.prompt_length = static_cast<int>(request.prompt_ids.size());
  open.max_tokens = request.max_tokens;
  open.sampling = request.sampling;
  open.stop_token_ids = request.stop_token_ids;
  open.ignore_eos = request.ignore_eos;
  open.min_tokens = request.min_tokens;
  open.verification = request.verification;
  open.plan = opening.plan;
  open.epoch = opening.epoch;
  open.has_draft = opening.has_draft;
  open.hidden_channel = opening.hidden_channel;
  Target().open.push_back(std::move(open));
}

void World::Client::OpenDraft(const coordinator::DraftOpening& opening) {
  const coordinator::RequestSpec& request = *opening.request;
  SessionOnWorker& session =
      Opened(opening.session_id, request,
             static_cast<int>(opening.token_ids().size()), opening.epoch);
  session.perfect = world_->processes_[static_cast<size_t>(link_->worker)]
                            .options->draft_kind == DraftKind::kPerfect &&
                    session.request->numerics == 0;
  session.table =
      &LogitTable::Draft(world_->schedule_.table,
                         world_->processes_[static_cast<size_t>(link_->worker)]
                             .options->draft_kind);
  session.request->perfect_drafts &= session.perfect;
  ++session.request->num_drafts;
  world_->checks_.OnOpened(session, opening.token_ids());
  draft_worker::OpenDraft open;
  open.session_id = opening.session_id;
  open.epoch = opening.epoch;
  open.token_ids = opening.token_ids();
  open.prompt_length = static_cast<int>(request.prompt_ids.size());
  open.max_length = open.prompt_length + request.max_tokens - 1;
  open.sampling = request.sampling;
  open.end_token_ids = opening.end_ids;
  open.min_tokens = request.min_tokens;
  open.verification = request.verification;
  open.vocab_limit = opening.vocab_limit;
  open.plan = opening.plan;
  if (request.policy.has_own_rule()) open.policy = request.policy.text();
  open.oracle_token_ids = request.oracle_ids;
  open.target_fingerprint = request.fingerprint;
  open.hidden_address = opening.hidden_address;
  open.hidden_channel = opening.hidden_channel;
  Draft().open.push_back(std::move(open));
}

void World::Client::Close(uint64_t session_id) {
  (is_target_ ? Target().close : Draft().close).push_back(session_id);
  // What a target says of a session that was taken from it is void.
  for (const SessionOnWorker* session : link_->sessions) {
    if (session->session_id == session_id &&
        session->request->target == session) {
      session->request->target = nullptr;
    }
  }
}

void World::Client::Cut() {
  if (!std::exchange(pending_, false)) return;
  ++world_->commands_sent_;
  if (!link_->carries_commands) {
    target_ = {};
    draft_ = {};
    return;
  }
  if (is_target_) {
    target_.stream = static_cast<uint64_t>(link_->index) + 1;
    link_->target_commands.push_back(std::exchange(target_, {}));
  } else {
    draft_.stream = static_cast<uint64_t>(link_->index) + 1;
    link_->draft_commands.push_back(std::exchange(draft_, {}));
  }
  link_->last_command_ns =
      std::max(link_->last_command_ns, world_->now_ns_ + world_->Delay());
  world_->At(link_->last_command_ns, Event::Kind::kCommand, link_->index);
}

}  // namespace nacre::protocol
