// What the target worker and the draft worker do.

#include <algorithm>
#include <utility>

#include "tests/speculation/simulated_pipeline.h"

namespace nacre::speculation {

// ---- Target worker ----

void SimulatedPipeline::DeliverTail(Session& s, SimulatedTail tail,
                                    bool again) {
  if (!s.target.has_value()) return;
  if (options_.mutation == Mutation::kRewriteBase) {
    tail.tail.base_length = s.target->committed_length();
  }
  if (again) tail.kind = DraftedKind::kNone;
  const std::string before =
      HasFaults() ? s.TargetFingerprint(queue_.now_ns()) : "";
  const auto outcome = s.target->OnTail(tail.tail);
  Note(s, "target: tail at ", tail.tail.first_position, " [",
       Ids(tail.tail.token_ids), "] base ", tail.tail.base_length, " epoch ",
       tail.tail.epoch, " stop ", static_cast<int>(tail.tail.stop),
       again ? " again" : "", " -> ", static_cast<int>(outcome), ", committed ",
       s.target->committed_length());
  s.Require(outcome != TargetSession::TailOutcome::kMalformed,
            "a message of the draft looks malformed");
  s.CheckTailOutcome(tail, outcome);
  if (HasFaults() && (again || outcome == TargetSession::TailOutcome::kStale)) {
    s.Require(s.TargetFingerprint(queue_.now_ns()) == before,
              "a stale or repeated tail changed the target");
  }
  if (!again && HasFaults()) s.delivered.push_back(tail);
}

void SimulatedPipeline::DeliverMalformedTail(Session& s) {
  if (!s.target.has_value() || s.target->finished()) return;
  const TargetSession& target = *s.target;
  Tail tail;
  tail.epoch = s.schedule.epoch();
  tail.base_length = target.committed_length();
  tail.first_position = target.committed_length();
  tail.token_ids = {3, 4};
  tail.stop = StopMark::kLead;
  if (s.is_ratio()) {
    tail.distributions = {{{3}, {1.0f}}, {{4}, {1.0f}}};
  }
  switch (random_.Between(0, s.is_ratio() ? 8 : 4)) {
    case 0:
      tail.epoch += 1;
      break;
    case 1:
      tail.base_length += 1 + static_cast<int>(random_.Between(0, 9));
      break;
    case 2:
      tail.first_position += kMaxLead + 2;
      break;
    case 3:
      tail.token_ids.assign(kMaxLead + 2, 5);
      break;
    case 5:
      tail.distributions.pop_back();
      break;
    case 6:
      tail.distributions[1].token_ids[0] = 5;
      break;
    case 7:
      tail.distributions[1].weights[0] = 0.0f;
      break;
    case 8:
      tail.distributions[1] = {{4, 4}, {1.0f, 1.0f}};
      break;
    default:
      tail.first_position = -1;
  }
  const std::string before = s.TargetFingerprint(queue_.now_ns());
  const auto outcome = s.target->OnTail(tail);
  s.Require(outcome == TargetSession::TailOutcome::kMalformed ||
                outcome == TargetSession::TailOutcome::kStale,
            "a malformed tail was applied");
  s.Require(s.TargetFingerprint(queue_.now_ns()) == before,
            "a malformed tail changed the target");
}

void SimulatedPipeline::StartTargetStep() {
  if (target_busy_) return;
  EndHeldSteps();
  const int64_t now_ns = queue_.now_ns();
  int rows = 0;
  for (auto& session : sessions_) {
    Session& s = *session;
    if (!s.target.has_value() || now_ns < s.target_ready_ns || s.held) continue;
    const absl::optional<int64_t> deadline =
        s.target->wait().gate_deadline_ns();
    switch (s.target->CheckReady(now_ns)) {
      case TargetSession::Readiness::kReady:
        if (deadline.has_value() && now_ns >= *deadline) {
          ++result_.gate_timeouts;
          Note(s, "target: the gate timed out");
        }
        s.BeginTargetStep();
        Note(s, "target: step of ", s.step_rows.size() + 1, " rows at ",
             s.target->committed_length());
        rows += static_cast<int>(s.step_rows.size()) + 1;
        target_batch_.push_back(&s);
        break;
      case TargetSession::Readiness::kWaitDraft:
        SetTimer(s, *s.target->wait().gate_deadline_ns());
        break;
      case TargetSession::Readiness::kWaitAcknowledge:
      case TargetSession::Readiness::kFinished:
        break;
    }
  }
  if (target_batch_.empty()) return;
  target_busy_ = true;
  const int64_t duration_ns =
      StepNs(options_.target_step_ns, options_.target_row_ns, rows);
  queue_.Post(now_ns + duration_ns, [this, duration_ns, rows] {
    FinishTargetStep(duration_ns, rows);
  });
}

void SimulatedPipeline::FinishTargetStep(int64_t duration_ns, int rows) {
  target_busy_ = false;
  result_.target_busy_ns += duration_ns;
  target_curve_.Add(rows, duration_ns);
  for (Session* session : std::exchange(target_batch_, {})) {
    Session& s = *session;
    if (s.target_closing) {
      s.target.reset();
      continue;
    }
    if (s.IsHeld(queue_.now_ns())) {
      Note(s, "target: holds its last row");
      ++result_.holds;
      s.held = true;
      if (const auto accepted = s.CommitAccepted()) SendVerdict(s, *accepted);
      SetTimer(s, *s.target->wait().last_row_deadline_ns());
    } else {
      EndStep(s);
    }
  }
}

void SimulatedPipeline::SetTimer(Session& s, int64_t timer_ns) {
  if (s.timer_ns != timer_ns) queue_.Post(timer_ns, [] {});
  s.timer_ns = timer_ns;
}

void SimulatedPipeline::EndHeldSteps() {
  for (auto& session : sessions_) {
    Session& s = *session;
    if (!s.held || !s.target.has_value()) continue;
    const absl::optional<int64_t> deadline =
        s.target->wait().last_row_deadline_ns();
    if (s.IsHeld(queue_.now_ns())) continue;
    if (deadline.has_value() && queue_.now_ns() >= *deadline) {
      ++result_.gate_timeouts;
      Note(s, "target: the hold timed out");
    }
    s.held = false;
    EndStep(s);
  }
}

void SimulatedPipeline::EndStep(Session& s) {
  SendVerdict(s,
              s.FinishTargetStep(options_.mutation == Mutation::kKeepTargetKv));
}

void SimulatedPipeline::SendVerdict(Session& s, Verdict verdict) {
  Note(s, "target: verdict at ", verdict.base_length, " [",
       Ids(verdict.token_ids), "] matched ", verdict.matched, " verified ",
       verdict.verified, " accepted ", verdict.accepted);
  if (options_.mutation == Mutation::kSwapVerdictTokens &&
      verdict.token_ids.size() >= 2) {
    std::swap(verdict.token_ids[0], verdict.token_ids[1]);
  }
  target_to_coordinator_.Send(
      [this, &s, verdict] { ReceiveVerdict(s, verdict); });
}

// ---- Draft worker ----

void SimulatedPipeline::DeliverCommit(Session& s, const Commit& commit) {
  if (options_.mutation == Mutation::kLoseCommit && !lost_one_commit_) {
    lost_one_commit_ = true;
    return;
  }
  const int length = s.draft->length();
  const bool is_known =
      commit.first_position + static_cast<int>(commit.token_ids.size()) <=
      s.draft->committed_length();
  const DraftSession::CommitOutcome outcome = s.draft->OnCommit(commit);
  s.Require(outcome != DraftSession::CommitOutcome::kMalformed,
            "a commit left a gap");
  s.Require((outcome == DraftSession::CommitOutcome::kRepeated) == is_known,
            "a commit was not recognised as known");
  if (s.length != nullptr && !is_known &&
      outcome != DraftSession::CommitOutcome::kMalformed) {
    s.length->OnCommit(s.draft->last_commit());
  }
  if (outcome == DraftSession::CommitOutcome::kMismatch ||
      s.draft->length() != length) {
    s.draft_cut = true;
  }
  const size_t kept = std::min(s.draft->kept_length(), s.draft->kv_limit());
  if (kept < s.draft_kv.size()) s.draft_kv.resize(kept);
  s.CheckDraftKv();
  SendStopNotice(s);
}

void SimulatedPipeline::SendTail(Session& s, Tail tail, DraftedKind kind) {
  draft_to_coordinator_.Send([this, &s, instance = s.draft_instance,
                              message = SimulatedTail{std::move(tail), kind}] {
    ReceiveTail(s, instance, message);
  });
}

void SimulatedPipeline::SendStopNotice(Session& s) {
  if (Hangs()) return;
  const absl::optional<Tail> notice = s.draft->TakeStopNotice();
  s.Require(!s.draft->TakeStopNotice().has_value(),
            "the draft repeats its stop notice");
  if (notice.has_value() && options_.mutation != Mutation::kDropStopNotices) {
    SendTail(s, *notice, DraftedKind::kNone);
  }
}

LengthDecision SimulatedPipeline::Decide(Session& s, int32_t token_id) {
  if (s.length == nullptr) return LengthDecision::kContinue;
  DraftRow row;
  row.generated = s.draft->length() - s.prompt_length;
  row.entropy = static_cast<float>(4.0 * random_.Unit());
  row.token = DrawnToken{token_id, static_cast<float>(random_.Unit())};
  return s.length->Decide(row);
}

void SimulatedPipeline::StartDraftStep() {
  if (draft_busy_ || Hangs()) return;
  const int64_t now_ns = queue_.now_ns();
  for (auto& session : sessions_) {
    Session& s = *session;
    if (!s.draft.has_value() || now_ns < s.draft_ready_ns ||
        !s.draft->WantsStep()) {
      continue;
    }
    s.draft_cut = false;
    s.FeedDraft();
    draft_batch_.push_back({&s, s.draft_instance});
  }
  if (draft_batch_.empty()) return;
  draft_busy_ = true;
  const int rows = static_cast<int>(draft_batch_.size());
  const int64_t duration_ns =
      StepNs(options_.draft_step_ns, options_.draft_row_ns, rows);
  queue_.Post(now_ns + duration_ns, [this, duration_ns, rows] {
    FinishDraftStep(duration_ns, rows);
  });
}

void SimulatedPipeline::FinishDraftStep(int64_t duration_ns, int rows) {
  draft_busy_ = false;
  result_.draft_busy_ns += duration_ns;
  draft_curve_.Add(rows, duration_ns);
  for (const auto& [session, instance] : std::exchange(draft_batch_, {})) {
    Session& s = *session;
    if (!s.draft.has_value() || s.draft_instance != instance || s.draft_cut ||
        !s.draft->WantsStep()) {
      continue;
    }
    const std::vector<int32_t>& tokens = s.draft->tokens();
    DraftDistribution distribution;
    int32_t token_id;
    if (s.is_ratio()) {
      distribution = s.ratio_models.Draft(tokens);
      token_id = DrawToken(
          Weighted(distribution), s.noise_seed, static_cast<int>(tokens.size()),
          options_.mutation == Mutation::kReuseNumbers ? NoisePurpose::kAccept
                                                       : NoisePurpose::kDraft);
    } else {
      token_id = s.models.DraftToken(
          tokens, s.models.Matches(tokens.size(), options_.alpha));
    }
    const DraftedKind kind = s.Classify(tokens, token_id);
    s.Require(
        s.draft->length() < options_.prompt_length + options_.max_tokens - 1,
        "the draft drafts the target's own last token");
    const LengthDecision decision = Decide(s, token_id);
    if (decision == LengthDecision::kDiscard) {
      s.Require(kind != DraftedKind::kMatch, "the oracle discards a match");
      s.draft->OnDiscarded();
      s.Require(!s.draft->WantsStep(), "the draft draws what it discarded");
      SendStopNotice(s);
      continue;
    }
    Tail tail = s.draft->OnDrafted(token_id, decision == LengthDecision::kStop);
    if (s.is_ratio()) tail.distributions.push_back(std::move(distribution));
    if (tail.stop == StopMark::kChunk || tail.stop == StopMark::kPolicy) {
      ++result_.policy_stops;
      s.Require(s.draft->WantsStep() == (tail.stop == StopMark::kChunk),
                "a draft goes on behind a chunk's end, or waits at a stop");
    }
    if (options_.mutation == Mutation::kDropStopNotices) {
      tail.stop = StopMark::kNone;
    }
    SendTail(s, std::move(tail), kind);
    s.CheckDraftKv();
  }
}

}  // namespace nacre::speculation
