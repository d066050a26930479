#include "tests/speculation/simulated_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace nacre::speculation {
namespace {

uint64_t SessionSeed(const SimulatorOptions& options, int id) {
  return simulation::MixBits(options.seed) + static_cast<uint64_t>(id);
}

std::vector<int32_t> Prompt(const SimulatorOptions& options, int id) {
  std::vector<int32_t> prompt;
  // The law of the stream is that behind one prompt.
  if (options.verification == Verification::kRatio) {
    prompt.assign(static_cast<size_t>(options.prompt_length), 2);
    return prompt;
  }
  for (int i = 0; i < options.prompt_length; ++i) {
    prompt.push_back(static_cast<int32_t>(
        simulation::MixBits(SessionSeed(options, id) * 31 + i) %
        options.vocabulary));
  }
  return prompt;
}

PolicySpec Policy(const SimulatorOptions& options) {
  const absl::StatusOr<PolicySpec> spec = ParsePolicySpec(options.policy);
  NACRE_CHECK(spec.ok(), "a policy of the simulator's own");
  return *spec;
}

SessionSchedule::Options ScheduleOptions(const SimulatorOptions& options,
                                         const PolicySpec& policy) {
  SessionSchedule::Options schedule;
  schedule.method = options.method;
  schedule.window = options.window;
  schedule.prior_alpha = options.prior_alpha;
  schedule.policy_length = policy.max_length();
  schedule.follows_load = policy.kind() == PolicyKind::kLoad;
  schedule.verification = options.verification;
  return schedule;
}

// Only what can still have changed since the last look is compared: neither a
// lead nor a step is longer.
bool IsPrefix(absl::Span<const int32_t> prefix,
              absl::Span<const int32_t> whole) {
  constexpr size_t kLongest = 2 * kMaxLead;
  const size_t first = prefix.size() - std::min(prefix.size(), kLongest);
  return prefix.size() <= whole.size() &&
         std::equal(prefix.begin() + first, prefix.end(),
                    whole.begin() + first);
}

}  // namespace

SimulatedSession::SimulatedSession(const SimulatorOptions& options, int id)
    : id(id),
      models(SessionSeed(options, id), options.vocabulary),
      ratio_models(options.vocabulary, options.draft_kind),
      verification(options.verification),
      noise_seed(SessionSeed(options, id)),
      max_tokens(options.max_tokens),
      prompt_length(options.prompt_length),
      expected(Prompt(options, id)),
      policy(Policy(options)),
      schedule(ScheduleOptions(options, policy), Prompt(options, id)),
      checked_schedule_(prompt_length),
      checked_target_(prompt_length) {
  if (is_ratio()) return;
  for (int i = 0; i < options.max_tokens; ++i) {
    const int32_t token_id = models.TargetToken(expected);
    expected.push_back(token_id);
    if (options.has_eos && token_id == 0) {
      expected_finish = FinishReason::kEos;
      return;
    }
    if (options.has_stop_id && token_id == 1) {
      expected_finish = FinishReason::kStop;
      return;
    }
  }
  expected_finish = FinishReason::kLength;
}

void SimulatedSession::Require(bool holds, const std::string& what) {
  if (!holds && failure_.empty()) {
    failure_ = absl::StrCat("session ", id, ": ", what);
  }
}

DraftedKind SimulatedSession::Classify(absl::Span<const int32_t> prefix,
                                       int32_t token_id) const {
  if (is_ratio() || prefix.size() >= expected.size() ||
      !IsPrefix(prefix, expected)) {
    return DraftedKind::kWrongPrefix;
  }
  return expected[prefix.size()] == token_id ? DraftedKind::kMatch
                                             : DraftedKind::kMiss;
}

std::string SimulatedSession::TargetFingerprint(int64_t now_ns) const {
  TargetSession copy = *target;
  std::string text = absl::StrCat(copy.committed_length(), "/");
  absl::Span<const int32_t> rows = step_rows;
  if (!copy.step().running()) {
    absl::StrAppend(&text, copy.CheckReady(now_ns), "/");
    if (copy.finished()) return text;
    rows = copy.BeginStep();
  }
  const std::vector<int32_t> drawn = Draw(copy, rows, /*last_row=*/true);
  // Two more steps show what is buffered behind this one.
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> tokens =
        i == 0 ? drawn : Draw(copy, rows, /*last_row=*/true);
    const Verdict verdict = copy.FinishStep(tokens);
    absl::StrAppend(&text, absl::StrJoin(rows, ","), ":", verdict.matched, "/",
                    verdict.verified, "/", verdict.accepted, "/",
                    verdict.degraded, ";");
    if (copy.finished()) break;
    absl::StrAppend(&text, copy.CheckReady(now_ns), "/");
    rows = copy.BeginStep();
  }
  return text;
}

std::vector<int32_t> SimulatedSession::Draw(const TargetSession& session,
                                            absl::Span<const int32_t> rows,
                                            bool last_row) const {
  if (!is_ratio()) return models.TargetTokens(session.committed(), rows);
  std::vector<int32_t> prefix = session.committed();
  std::vector<int32_t> drawn;
  for (size_t row = 0; row <= rows.size(); ++row) {
    if (row == rows.size() && !last_row) break;
    const DraftDistribution target = ratio_models.Target(prefix);
    const int position = static_cast<int>(prefix.size());
    const auto drafted = session.DraftedAt(static_cast<int>(row));
    drawn.push_back(drafted.has_value()
                        ? JudgeByRatio(Weighted(target), drafted->token_id,
                                       *drafted->distribution, noise_seed,
                                       position)
                        : DrawToken(Weighted(target), noise_seed, position,
                                    NoisePurpose::kSample));
    if (row == rows.size() || drawn.back() != rows[row] ||
        session.text().IsEnd(drawn.back())) {
      break;
    }
    prefix.push_back(drawn.back());
  }
  return drawn;
}

bool SimulatedSession::IsHeld(int64_t now_ns) {
  if (!is_ratio()) return false;
  const std::vector<int32_t> drawn =
      Draw(*target, step_rows, /*last_row=*/false);
  const bool accepted = drawn == step_rows &&
                        (drawn.empty() || !target->text().IsEnd(drawn.back()));
  return accepted && target->HoldsLastRow(now_ns);
}

void SimulatedSession::CheckTailOutcome(const SimulatedTail& tail,
                                        TargetSession::TailOutcome outcome) {
  if (outcome != TargetSession::TailOutcome::kApplied &&
      outcome != TargetSession::TailOutcome::kMismatch) {
    return;
  }
  if (tail.kind == DraftedKind::kMatch) ++matches_delivered_;
  if (tail.kind == DraftedKind::kMiss) ++misses_delivered_;
  if ((tail.kind == DraftedKind::kMatch || tail.kind == DraftedKind::kMiss) &&
      tail.tail.first_position + 1 < static_cast<int>(expected.size())) {
    ++right_before_last_;
  }
}

void SimulatedSession::BeginTargetStep() {
  const absl::Span<const int32_t> rows = target->BeginStep();
  step_rows.assign(rows.begin(), rows.end());
  Require(target->text().generated() + static_cast<int>(rows.size()) + 1 <=
              max_tokens,
          "a step reaches beyond max_tokens");
  const std::vector<int32_t>& committed = target->committed();
  target_kv.insert(target_kv.end(), committed.begin() + target_kv.size(),
                   committed.end());
  target_kv.insert(target_kv.end(), step_rows.begin(), step_rows.end());
}

absl::optional<Verdict> SimulatedSession::CommitAccepted() {
  const int length_before = target->committed_length();
  const absl::optional<Verdict> verdict = target->CommitAccepted();
  Require(verdict.has_value() == !step_rows.empty(),
          "what was accepted is told, and nothing else");
  if (!verdict.has_value()) return verdict;
  Require(verdict->holds_last_row() && verdict->base_length == length_before &&
              verdict->token_ids == step_rows,
          "what is told before a last row is not the rows before it");
  expected.insert(expected.end(), step_rows.begin(), step_rows.end());
  step_rows.clear();
  Require(target_kv == target->committed(),
          "the KV of a held step is not that of the committed tokens");
  verified_ += verdict->verified;
  accepted_ += verdict->accepted;
  return verdict;
}

Verdict SimulatedSession::FinishTargetStep(bool keep_kv) {
  const int length_before = target->committed_length();
  const Verdict verdict =
      target->FinishStep(Draw(*target, step_rows, /*last_row=*/true));
  if (is_ratio()) {
    expected.insert(expected.end(), verdict.token_ids.begin(),
                    verdict.token_ids.end());
    expected_finish = verdict.finish;
  }
  if (!keep_kv && target->kv_length() < static_cast<int>(target_kv.size())) {
    target_kv.resize(target->kv_length());
  }
  Require(target->kv_length() == target->committed_length() - 1 &&
              static_cast<int>(target_kv.size()) == target->kv_length() &&
              IsPrefix(target_kv, target->committed()),
          "target KV is not that of committed_length - 1 tokens");
  const int committed = static_cast<int>(verdict.token_ids.size());
  Require(verdict.base_length == length_before && committed >= 1 &&
              verdict.window == static_cast<int>(step_rows.size()) &&
              verdict.matched <= verdict.window &&
              (committed == verdict.matched + 1 ||
               (committed == verdict.matched &&
                verdict.finish != FinishReason::kNone)),
          "a verdict does not commit matched + 1 tokens");
  verified_ += verdict.verified;
  accepted_ += verdict.accepted;
  Require(0 <= verdict.accepted && verdict.accepted <= verdict.verified,
          "accepted > verified");
  if (is_ratio()) return verdict;
  Require(accepted_ <= matches_delivered_,
          "more tokens accepted than the draft had right");
  Require(verified_ - accepted_ <= misses_delivered_,
          "a token of a wrong prefix was compared");
  return verdict;
}

void SimulatedSession::FeedDraft() {
  const std::vector<int32_t>& tokens = draft->tokens();
  draft_kv.insert(draft_kv.end(), tokens.begin() + draft_kv.size(),
                  tokens.end());
}

void SimulatedSession::CheckDraftKv() {
  Require(IsPrefix(draft_kv, draft->tokens()),
          "draft KV is not that of a prefix of its sequence");
  Require(draft->length() >= draft->committed_length(),
          "the draft's sequence is shorter than what it knows as committed");
  Require(IsPrefix({draft->tokens().data(),
                    static_cast<size_t>(draft->committed_length())},
                   expected),
          "the draft's committed tokens are not the target's");
}

void SimulatedSession::CheckCommitted() {
  const auto check = [this](const std::vector<int32_t>& committed, int* checked,
                            const char* who) {
    const int length = static_cast<int>(committed.size());
    Require(length >= *checked, absl::StrCat(who, " lost committed tokens"));
    Require(length <= static_cast<int>(expected.size()),
            absl::StrCat(who, " went on behind the end"));
    const int end = std::min(length, static_cast<int>(expected.size()));
    for (int i = *checked; i < end; ++i) {
      Require(committed[i] == expected[i],
              absl::StrCat(who, " has another token at position ", i,
                           " than the autoregressive stream"));
    }
    *checked = std::max(*checked, length);
  };
  check(schedule.committed(), &checked_schedule_, "the coordinator");
  if (target.has_value()) {
    check(target->committed(), &checked_target_, "the target");
    Require(target->committed_length() >= checked_schedule_,
            "the coordinator emitted what the target has not committed");
  }
}

void SimulatedSession::CheckEnd(bool fault_free) {
  const SpeculationStats& stats = schedule.stats();
  Require(ended, "the session has not ended and nothing is left to happen");
  Require(!target.has_value() && !draft.has_value(),
          "a worker still holds the session");
  Require(stats.accepted <= stats.verified && stats.verified <= stats.drafted,
          "not accepted <= verified <= drafted");
  Require(stats.committed == schedule.generated(),
          "committed is not what was generated");
  Require(stats.rounds <= stats.committed, "a round committed nothing");
  if (cancelled) return;
  Require(schedule.committed() == expected,
          "the stream is not the whole autoregressive stream");
  Require(stats.verified == verified_ && stats.accepted == accepted_,
          "the coordinator's account differs from the target's");
  Require(!is_ratio() || expected_finish != FinishReason::kNone,
          "the stream has no end");
  if (fault_free && !is_ratio()) {
    // Each token that was drafted behind the right prefix and had arrived is
    // compared, once.
    Require(stats.verified >= right_before_last_ &&
                stats.verified <= matches_delivered_ + misses_delivered_,
            absl::StrCat("verified ", stats.verified, " tokens of ",
                         right_before_last_));
  }
}

}  // namespace nacre::speculation
