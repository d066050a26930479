#include "coordinator/dispatch/pairing.h"

#include <algorithm>
#include <limits>

#include "coordinator/dispatch/draft_needs.h"

namespace nacre::coordinator {

Placement Pairing::PlacementOf(const Session& session) const {
  Placement placement;
  if (const auto* target = state_.fleet.Find(session.target_worker)) {
    placement.target_address = target->info.address;
    placement.target_incarnation = target->info.incarnation;
  }
  if (const auto* draft = state_.fleet.Find(session.draft_worker)) {
    placement.draft_address = draft->info.address;
    placement.draft_incarnation = draft->info.incarnation;
  }
  return placement;
}

void Pairing::TellMoved(Session& session) {
  state_.outbox.Later(session.answer(), [answer = session.answer().get(),
                                         placement = PlacementOf(session)] {
    answer->OnMoved(placement);
  });
}

absl::optional<TraceLane> Pairing::LaneOf(uint64_t worker_id) const {
  const FleetWorker* worker = state_.fleet.Find(worker_id);
  if (worker == nullptr) return absl::nullopt;
  TraceLane lane;
  lane.role = worker->role;
  lane.address = worker->info.address;
  lane.clock_offset_ns = links_.at(worker_id)->clock_offset_ns();
  return lane;
}

speculation::StepCosts Pairing::Costs(const Session& session) {
  const uint64_t target_id = session.target_worker;
  const uint64_t draft_id = session.draft_worker;
  speculation::StepCosts costs =
      state_.fleet.CostsOn(target_id, draft_id, session.follows_load());
  costs.own_rows = session.own_rows();
  costs.other_rows = session.other_rows().value_or(costs.other_sessions);
  if (target_id != 0 && draft_id != 0) {
    const auto& links = links_;
    const int64_t round_trips_ns = links.at(target_id)->round_trip_ns() +
                                   links.at(draft_id)->round_trip_ns();
    // Half of each is one way from the draft to the target.
    if (round_trips_ns > 0) costs.hop_ns = 0.5 * round_trips_ns;
  }
  return costs;
}

speculation::PlanInputs Pairing::PlanInputsOf(const Session& session) {
  speculation::PlanInputs inputs =
      session.schedule().plan_inputs(Costs(session));
  const FleetWorker* draft = state_.fleet.Find(session.draft_worker);
  if (draft == nullptr) return inputs;
  inputs.latest_pair_alpha = draft->acceptance.alpha();
  // Without slots it drafts a chain, also once it has the workers for itself.
  if (session.draft_slots == 0) inputs.draft_rows = 1;
  return inputs;
}

void Pairing::PlanLater(const Session& session) {
  const FleetWorker* target = state_.fleet.Find(session.target_worker);
  if (target == nullptr || !session.schedule().wants_draft()) return;
  PlanTask task;
  task.session_id = session.id();
  task.target_worker = session.target_worker;
  task.inputs = PlanInputsOf(session);
  task.step_times = target->step_times;
  if (session.schedule().has_plan()) task.plan = session.schedule().plan();
  state_.outbox.Plan(std::move(task));
}

void Pairing::Adopt(const PlanTask& task) {
  // Another target has a plan of its own. A search may end after a later one,
  // or its session may have another draft by now: what it found is adopted all
  // the same. Only speed follows a plan, and the next verdict asks for the
  // next.
  Session* session = state_.FindOn(task.session_id, task.target_worker);
  if (session == nullptr) return;
  const auto plan = session->schedule().Adopt(*task.plan);
  if (!plan.has_value()) return;
  link(task.target_worker).target().UpdateTarget(task.session_id, plan->target);
  if (session->draft_worker != 0) {
    link(session->draft_worker)
        .draft()
        .UpdateDraft(task.session_id, plan->draft);
  }
}

void Pairing::TakeTarget(Session& session, uint64_t worker_id) {
  const Placer::Share share =
      state_.placer.ShareOf(worker_id, session.request());
  state_.fleet.Seat(worker_id, session.id(), share.kv_tokens,
                    session.follows_load());
  session.target_worker = worker_id;
  session.target_slots = share.num_slots;
}

void Pairing::Open(Session& session) {
  if (session.schedule().wants_draft()) {
    const uint64_t draft_id = state_.placer.LeastLoaded(
        WorkerRole::kDraft, session.request(), session.failover.refused_by,
        session.schedule().committed_length());
    if (draft_id != 0) {
      TakeDraft(session, draft_id);
      session.schedule().AttachDraft();
    }
  }
  NoteDraft(session);
  // The first plan is searched for here, under the lock: a target that is
  // opened without one would step alone until it comes. A later one follows at
  // once.
  if (session.schedule().wants_draft() && !session.schedule().has_plan()) {
    session.schedule().Adopt(speculation::MakePlan(PlanInputsOf(session)));
  } else {
    PlanLater(session);
  }

  TargetOpening opening;
  opening.session_id = session.id();
  opening.request = session.shared_request();
  opening.generated = session.schedule().committed();
  opening.plan = session.schedule().plan().target;
  opening.epoch = session.schedule().epoch();
  opening.has_draft = session.draft_worker != 0;
  opening.channels = session.channels();
  opening.num_slots = session.target_slots;
  opening.prompt_logprobs = session.prompt_logprobs();
  link(session.target_worker).target().OpenTarget(opening);
  if (session.draft_worker != 0) OpenDraft(session, session.draft_worker);
}

void Pairing::OpenDraft(Session& session, uint64_t worker_id) {
  const WorkerInfo& draft = state_.fleet.at(worker_id).info;
  const WorkerInfo& target = state_.fleet.at(session.target_worker).info;
  DraftOpening opening;
  opening.session_id = session.id();
  opening.request = session.shared_request();
  opening.generated = session.schedule().committed();
  opening.end_ids = session.request().stop_token_ids;
  if (!session.request().ignore_eos) {
    opening.end_ids.insert(opening.end_ids.end(), target.eos_token_ids.begin(),
                           target.eos_token_ids.end());
  }
  opening.vocab_limit = std::min(
      {draft.model_vocab_size, target.model_vocab_size,
       draft.tokenizer_vocab_size, state_.options.tokenizer->vocab_size()});
  opening.num_slots = session.draft_slots;
  opening.kv_length = session.draft_length;
  opening.plan = session.schedule().plan().draft;
  // The plan may be of a draft before, which had no slots. A shape by
  // probability is for good.
  if (opening.num_slots > 0 && session.request().tree.ranks_by_q()) {
    opening.plan.tree = session.request().tree;
  }
  opening.epoch = session.schedule().epoch();
  opening.hidden_address = target.address;
  opening.channels = session.channels();
  link(worker_id).draft().OpenDraft(opening);
}

void Pairing::AttachDraft(Session& session) {
  if (!session.schedule().wants_draft() || session.draft_worker != 0) return;
  const uint64_t id = state_.placer.LeastLoaded(
      WorkerRole::kDraft, session.request(), session.failover.refused_by,
      session.schedule().committed_length());
  if (id == 0 || session.target_worker == 0) return;
  TakeDraft(session, id);
  const uint32_t epoch = session.schedule().AttachDraft();
  OpenDraft(session, id);
  link(session.target_worker)
      .target()
      .AttachDraft(session.id(), epoch, session.schedule().committed_length());
  TellMoved(session);
}

void Pairing::TakeDraft(Session& session, uint64_t worker_id) {
  const FleetWorker& draft = state_.fleet.at(worker_id);
  const Placer::Share share = state_.placer.ShareOf(
      worker_id, session.request(), session.schedule().committed_length());
  state_.fleet.Seat(worker_id, session.id(), share.kv_tokens,
                    session.follows_load());
  session.draft_worker = worker_id;
  session.draft_slots = share.num_slots;
  session.draft_length = share.text_tokens;
  session.schedule().SetPairAlpha(draft.acceptance.alpha(),
                                  draft.ranks.shares());
  NoteDraft(session);
}

void Pairing::NoteDraft(const Session& session) {
  if (session.schedule().wants_draft() && session.target_worker != 0 &&
      session.draft_worker == 0) {
    undrafted_.insert(session.id());
  } else {
    undrafted_.erase(session.id());
  }
}

void Pairing::AttachDrafts() {
  // Where one finds no room, those that need as much find none either, unless
  // it was the session that was too particular.
  int64_t hopeless = std::numeric_limits<int64_t>::max();
  // For a longer text there is no draft, whatever room they have.
  int64_t longest = 0;
  for (const auto& [load, id] : state_.fleet.by_load(WorkerRole::kDraft)) {
    longest =
        std::max<int64_t>(longest, state_.fleet.Find(id)->info.context_length);
  }
  for (auto it = undrafted_.begin(); it != undrafted_.end();) {
    Session& session = *state_.sessions.at(*it++);  // attaching takes it out
    const int64_t length = session.schedule().committed_length();
    const int64_t need = LeastDraftNeed(session.request(), length);
    if (length > longest || need >= hopeless) continue;
    AttachDraft(session);
    if (session.draft_worker == 0 && session.failover.refused_by.empty() &&
        !session.request().policy.needs_file()) {
      hopeless = need;
      if (need <= KvLedger::kBlockTokens) return;
    }
  }
}

void Pairing::LoseDraft(Session& session) {
  const uint64_t draft_id = session.draft_worker.exchange(0);
  NoteDraft(session);
  state_.fleet.Unseat(draft_id, session.id(), session.follows_load());
  WorkerLeft(session, draft_id, WorkerRole::kDraft);
  session.schedule().OnDraftLost();
  if (session.target_worker != 0) {
    link(session.target_worker).target().LoseDraft(session.id());
  }
  TellMoved(session);
}

void Pairing::WorkerLeft(Session& session, uint64_t worker_id,
                         WorkerRole role) {
  session.OnWorkerLeft(role);
  state_.outbox.Later(session.answer(), [answer = session.answer().get(),
                                         lane = *LaneOf(worker_id)] {
    answer->OnWorkerLeft(lane);
  });
}

void Pairing::TakeOff(Session& session) {
  const uint64_t target_id = session.target_worker.exchange(0);
  state_.fleet.Unseat(target_id, session.id(), session.follows_load());
  WorkerLeft(session, target_id, WorkerRole::kTarget);
  if (session.draft_worker != 0) {
    link(session.draft_worker)->Close(session.id());
    LoseDraft(session);
  }
  NoteDraft(session);
  // Its client has nothing to take until the session goes on.
  state_.stalls.End(session.id());
  const bool holds_step = session.schedule().ended_step() == nullptr;
  session.schedule().OnTargetLost();
  if (holds_step) {
    state_.outbox.Later(session.answer(), [answer = session.answer().get(),
                                           step = session.schedule().step()] {
      answer->EndHeldStep(step);
    });
  }
}

void Pairing::Close(Session& session) {
  const uint64_t session_id = session.id();
  for (uint64_t worker_id :
       {session.target_worker.load(), session.draft_worker.load()}) {
    if (worker_id == 0) continue;
    link(worker_id)->Close(session_id);
    state_.fleet.Unseat(worker_id, session_id, session.follows_load());
  }
  undrafted_.erase(session_id);
}

}  // namespace nacre::coordinator
