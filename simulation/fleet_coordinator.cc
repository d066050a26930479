#include "simulation/fleet_coordinator.h"

#include <cmath>
#include <utility>

#include "common/check.h"

namespace nacre::simulation {

using speculation::Commit;
using speculation::SessionSchedule;
using speculation::StepCosts;
using speculation::Tail;
using speculation::Verdict;

namespace {

constexpr int kVocabulary = 1 << 20;  // chance matches are rare

template <typename Worker>
Worker* LeastLoaded(const std::vector<Worker*>& workers) {
  Worker* best = nullptr;
  for (Worker* worker : workers) {
    if (worker->known_up && (best == nullptr || worker->load < best->load)) {
      best = worker;
    }
  }
  return best;
}

}  // namespace

FleetCoordinator::FleetCoordinator(FleetWorld* world,
                                   const FleetOptions& options)
    : world_(*world),
      options_(options),
      acceptance_(options.recorded.empty() && options.replay.empty()
                      ? options.alpha
                      : 0.7) {
  // A fleet that has run for a while knows its step times.
  for (int rows = 1; rows <= speculation::StepTimeCurve::kMaxRows; ++rows) {
    target_step_.Add(rows, options_.target_step.At(rows));
    draft_step_.Add(rows, options_.draft_step.At(rows));
  }
}

void FleetCoordinator::Start() {
  running_streams_ = options_.streams;
  for (int i = 0; i < options_.streams; ++i) {
    Stream stream;
    stream.requests_left = options_.requests;
    const uint64_t seed = MixBits(options_.seed) + static_cast<uint64_t>(i);
    const size_t count = options_.recorded.size();
    stream.matches = count == 0 ? IndependentMatches(options_.alpha, seed)
                                : RecordedMatches(options_.recorded[i % count],
                                                  // Not all streams in step.
                                                  MixBits(seed) >> 1);
    streams_.push_back(std::move(stream));
  }
  for (int i = 0; i < options_.streams; ++i) StartRequest(i);
}

absl::optional<FleetCoordinator::Request> FleetCoordinator::NextRequest(
    Stream& stream) {
  if (!options_.replay.empty()) {
    if (next_replayed_ == options_.replay.size()) return absl::nullopt;
    const ReplayedRequest& replayed = options_.replay[next_replayed_++];
    return Request{replayed.prompt_tokens, replayed.output_tokens,
                   RecordedMatches(replayed.matches, /*first=*/0), 0};
  }
  if (stream.requests_left == 0) return absl::nullopt;
  --stream.requests_left;
  const int64_t first_match = stream.next_match;
  stream.next_match += options_.output_tokens;
  return Request{options_.prompt_tokens, options_.output_tokens, stream.matches,
                 first_match};
}

void FleetCoordinator::StartRequest(int stream_index) {
  const absl::optional<Request> request = NextRequest(streams_[stream_index]);
  if (!request.has_value()) {
    --running_streams_;
    return;
  }
  const uint64_t id = next_id_++;
  SessionModels models = {
      FakeModels(MixBits(options_.seed) ^ MixBits(id), kVocabulary),
      request->matches, request->first_match, request->prompt_tokens};
  std::vector<int32_t> prompt(request->prompt_tokens);
  for (int32_t& token_id : prompt) {
    token_id = static_cast<int32_t>(world_.random.Between(0, kVocabulary - 1));
  }
  Session session = {
      .id = id,
      .stream = stream_index,
      .schedule = SessionSchedule(
          {options_.method.method, options_.method.window, acceptance_.alpha(),
           /*always_drafts=*/id % speculation::kMeasuredSessions == 0},
          std::move(prompt)),
      .models = std::make_shared<const SessionModels>(std::move(models)),
      .output_tokens = request->output_tokens};
  OpenTarget(sessions_.emplace(id, std::move(session)).first->second);
}

void FleetCoordinator::OpenTarget(Session& s) {
  FleetTarget* target = LeastLoaded(targets_);
  if (target == nullptr) return;  // until one is up again
  s.target = target;
  ++target->load;
  if (s.schedule.wants_draft()) s.draft = LeastLoaded(drafts_);
  if (s.draft != nullptr) s.schedule.AttachDraft();
  s.schedule.Replan(Costs(s));
  result_.window = BasePlan(s).window;
  s.acknowledged = static_cast<int>(s.schedule.committed().size());
  speculation::TargetSession::Options options;
  options.prompt_length = s.schedule.prompt_length();
  options.max_tokens = s.output_tokens;
  options.plan = Ablate(options_.method.ablation, BasePlan(s), nullptr).target;
  options.epoch = s.schedule.epoch();
  options.has_draft = s.draft != nullptr;
  target->Tell([target, options, plan = BasePlan(s), id = s.id,
                committed = s.schedule.committed(), models = s.models] {
    target->Open(id, options, plan, committed, models);
  });
  if (s.draft != nullptr) {
    ++s.draft->load;
    OpenDraft(s);
  }
}

void FleetCoordinator::OpenDraft(Session& s) {
  speculation::DraftSession::Options options;
  options.epoch = s.schedule.epoch();
  options.max_length = s.schedule.prompt_length() + s.output_tokens - 1;
  options.plan = Ablate(options_.method.ablation, BasePlan(s), nullptr).draft;
  s.draft->Tell(
      [draft = s.draft, id = s.id, options, committed = s.schedule.committed(),
       models = s.models] { draft->Open(id, options, committed, models); });
}

void FleetCoordinator::AttachDraft(Session& s) {
  if (!s.schedule.wants_draft() || s.target == nullptr || s.draft != nullptr) {
    return;
  }
  s.draft = LeastLoaded(drafts_);
  if (s.draft == nullptr) return;
  ++s.draft->load;
  const uint32_t epoch = s.schedule.AttachDraft();
  OpenDraft(s);
  s.target->Tell([target = s.target, id = s.id, epoch,
                  length = static_cast<int>(s.schedule.committed().size())] {
    target->OnDraftAttached(id, epoch, length);
  });
}

void FleetCoordinator::LoseDraft(Session& s) {
  if (s.draft == nullptr) return;
  --s.draft->load;
  s.draft->Tell([draft = s.draft, id = s.id] { draft->Close(id); });
  s.draft = nullptr;
  s.schedule.OnDraftLost();
  if (s.target == nullptr) return;
  s.target->Tell([target = s.target, id = s.id] { target->OnDraftLost(id); });
}

void FleetCoordinator::Lose(FleetWorker* worker) {
  worker->known_up = false;
  for (auto& [id, s] : sessions_) {
    if (s.draft == worker) {
      ++result_.lost_drafts;
      LoseDraft(s);
      AttachDraft(s);
    }
    if (s.target == worker) {
      ++result_.lost_targets;
      --s.target->load;
      s.target = nullptr;
      // The tail that the old target held is lost: the draft begins anew.
      LoseDraft(s);
      OpenTarget(s);
    }
  }
}

void FleetCoordinator::OnDown(FleetWorker* worker, int incarnation) {
  if (worker->known_up && worker->known_incarnation == incarnation) {
    Lose(worker);
  }
}

void FleetCoordinator::OnUp(FleetWorker* worker) {
  if (worker->known_up) Lose(worker);
  worker->known_up = true;
  worker->known_incarnation = worker->incarnation();
  for (auto& [id, s] : sessions_) {
    if (s.target == nullptr) OpenTarget(s);
    AttachDraft(s);
  }
}

void FleetCoordinator::OnTail(FleetWorker* draft, uint64_t session_id,
                              const Tail& tail) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Session& s = it->second;
  if (s.draft != draft || !s.schedule.OnTail(tail)) return;
  s.target->Tell([target = s.target, session_id, tail] {
    target->OnTail(session_id, tail);
  });
}

void FleetCoordinator::OnVerdict(FleetWorker* target,
                                 const FleetVerdict& report) {
  const auto it = sessions_.find(report.session_id);
  if (it == sessions_.end() || it->second.target != target) return;
  Session& s = it->second;
  Commit commit;
  const auto outcome = s.schedule.OnVerdict(report.verdict, &commit);
  NACRE_CHECK(outcome == SessionSchedule::VerdictOutcome::kApplied,
              "a verdict was refused");
  acceptance_.Add(report.verdict.verified, report.verdict.accepted);
  s.other_rows += speculation::kRowsWeight * (report.other_rows - s.other_rows);
  if (report.verdict.finish != speculation::FinishReason::kNone) {
    End(s);
    return;
  }
  if (s.draft != nullptr) {
    // Before the commit: the lead depends on which step of an ablation it was.
    if (options_.method.ablation != Ablation::kNone) {
      SendDraftPlan(s, &report.verdict);
    }
    s.draft->Tell(
        [draft = s.draft, id = s.id, commit] { draft->OnCommit(id, commit); });
  }
  if (!options_.fixed_plan.has_value() &&
      s.schedule.Replan(Costs(s)).has_value()) {
    result_.window = BasePlan(s).window;
    s.target->Tell([target = s.target, id = s.id, plan = BasePlan(s)] {
      target->OnPlan(id, plan);
    });
    SendDraftPlan(s, &report.verdict);
  }
  const int length = static_cast<int>(s.schedule.committed().size());
  if (length - s.acknowledged < speculation::kAcknowledgeEvery) return;
  s.acknowledged = length;
  s.target->Tell([target = s.target, id = s.id, length] {
    target->OnAcknowledged(id, length);
  });
}

speculation::PipelinePlan FleetCoordinator::BasePlan(const Session& s) const {
  return options_.fixed_plan.value_or(s.schedule.plan());
}

void FleetCoordinator::SendDraftPlan(Session& s, const Verdict* last) {
  if (s.draft == nullptr) return;
  s.draft->Tell(
      [draft = s.draft, id = s.id,
       plan = Ablate(options_.method.ablation, BasePlan(s), last).draft] {
        draft->OnPlan(id, plan);
      });
}

StepCosts FleetCoordinator::Costs(const Session& s) const {
  StepCosts costs;
  costs.target = &target_step_;
  costs.other_rows = static_cast<int>(std::lround(s.other_rows));
  if (s.target != nullptr) {
    costs.other_sessions = costs.other_async_sessions = s.target->load - 1;
  }
  if (s.draft != nullptr) {
    costs.draft_token_ns = draft_step_.At(s.draft->load);
    costs.abandons_steps = options_.abandons_steps && s.draft->load == 1;
  }
  costs.hop_ns = options_.target_hop.mean_ns() + options_.draft_hop.mean_ns();
  return costs;
}

void FleetCoordinator::End(Session& s) {
  const speculation::SpeculationStats& stats = s.schedule.stats();
  result_.stats.rounds += stats.rounds;
  result_.stats.drafted += stats.drafted;
  result_.stats.verified += stats.verified;
  result_.stats.accepted += stats.accepted;
  result_.stats.committed += stats.committed;
  result_.stats.degraded_rounds += stats.degraded_rounds;
  result_.stats.stale_messages += stats.stale_messages;
  ++result_.requests;
  result_.output_tokens += s.schedule.generated();
  result_.virtual_ns = world_.queue.now_ns();
  --s.target->load;
  s.target->Tell([target = s.target, id = s.id] { target->Close(id); });
  if (s.draft != nullptr) {
    --s.draft->load;
    s.draft->Tell([draft = s.draft, id = s.id] { draft->Close(id); });
  }
  const int stream = s.stream;
  sessions_.erase(s.id);
  StartRequest(stream);
}

}  // namespace nacre::simulation
