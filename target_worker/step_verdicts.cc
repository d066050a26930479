#include "target_worker/step_verdicts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "target_worker/engine_session.h"
#include "worker/engine/soundness.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using wire::Span;

namespace {

// What one part of a step's verdict says of its rows.
void AddVerdict(const speculation::Verdict& verdict, Span* span) {
  span->rows += verdict.window;
  span->matched += verdict.matched;
  span->accepted += verdict.accepted;
}

}  // namespace

void StepVerdicts::FinishStep(const Step& step, int64_t start_ns,
                              int64_t end_ns) {
  Span span;
  span.start_ns = start_ns;
  span.duration_ns = end_ns - start_ns;
  span.batch_rows = step.num_rows;
  span.batch_sessions = static_cast<int>(step.sessions.size());
  for (Session* session : step.sessions) FinishSession(*session, span);
}

void StepVerdicts::FinishSession(Session& session, Span span) {
  if (session.unsound) {
    if (!session.closing) {
      parts_.table->Fail(session,
                         worker::UnsoundLogits(session.sequence->length()));
    }
    return;
  }
  if (session.prefill_rows > 0) {
    span.kind = Span::Kind::kPrefill;
    span.rows = session.prefill_rows;
    parts_.accounts->AddSpan(session, span);
    span.rows = 0;
  }
  if (session.prompt.rows > 0) SendPromptLogprobs(session);
  if (!std::exchange(session.verifies, false)) {
    session.sequence->Share(session.schedule.committed());
    return;
  }
  const absl::Span<const float> last_row = std::exchange(session.last_row, {});
  if (!last_row.empty()) {
    if (!session.closing &&
        session.schedule.HoldsLastRow(span.start_ns + span.duration_ns)) {
      HoldLastRow(session, last_row, span);
      return;
    }
    parts_.sampler->JudgeLastRow(session, last_row);
  }
  const int num_tokens = FinishVerify(session, span);
  parts_.hidden->ShowStep(session, num_tokens, /*is_held=*/false);
}

void StepVerdicts::SendPromptLogprobs(Session& session) {
  const int first = session.prompt.next;
  session.prompt.next += std::exchange(session.prompt.rows, 0);
  if (session.closing) return;
  parts_.events->For(session.stream)
      .prompt_logprobs.push_back(
          {session.id, first, std::move(session.prompt.logprobs)});
}

void StepVerdicts::HoldLastRow(Session& session, absl::Span<const float> logits,
                               Span span) {
  const int row = static_cast<int>(session.drawn.size());
  // Its step may end after the model has computed others.
  const kernels::FloatView hidden = parts_.hidden->RowToHold(session, row);
  std::vector<float> kept_hidden(hidden.size());
  hidden.CopyTo(kept_hidden.data());
  absl::optional<speculation::Verdict> accepted =
      session.schedule.CommitAccepted();
  if (accepted.has_value()) {
    AddVerdict(*accepted, &span);
    session.sequence->Share(session.schedule.committed());
    SendVerdict(session, *std::move(accepted));
    session.drawn.clear();
    session.logprobs.clear();
    parts_.hidden->ShowStep(session, row, /*is_held=*/true);
  }
  session.hold = EngineSession::Hold{
      {logits.begin(), logits.end()}, std::move(kept_hidden), span};
}

void StepVerdicts::EndHolds(int64_t now_ns) {
  for (Session& session : worker::TypedSessions<Session>(parts_.table)) {
    if (!session.hold.has_value() || session.closing ||
        session.schedule.HoldsLastRow(now_ns)) {
      continue;
    }
    parts_.accounts->EndWait(session, now_ns);
    EngineSession::Hold hold = *std::exchange(session.hold, absl::nullopt);
    parts_.sampler->JudgeLastRow(session, hold.logits);
    FinishVerify(session, hold.verify);
    parts_.hidden->ShowRows(session, kernels::FloatView(hold.hidden), 1,
                            /*is_held=*/true);
  }
}

int StepVerdicts::FinishVerify(Session& session, Span span) {
  TargetSession& schedule = session.schedule;
  speculation::Verdict verdict = schedule.FinishStep(session.drawn);
  session.history.Truncate(verdict.base_length);
  for (const int32_t id : verdict.token_ids) session.history.Push(id);
  AddVerdict(verdict, &span);
  span.kind = Span::Kind::kVerify;
  ++span.rows;  // the last one
  span.length = schedule.committed_length();
  parts_.accounts->AddSpan(session, span);
  KeepRows(session, verdict.base_length, verdict.matched);
  parts_.accounts->TruncateKv(session, schedule.kv_length());
  session.sequence->Share(schedule.committed());
  if (schedule.finished()) session.sequence.reset();
  parts_.accounts->counts().suffix_proposed +=
      static_cast<uint64_t>(verdict.suffix_proposed);
  parts_.accounts->counts().suffix_accepted +=
      static_cast<uint64_t>(verdict.suffix_accepted);
  const int num_tokens = static_cast<int>(verdict.token_ids.size());
  // What suffixes said no look has earned.
  const int looked =
      verdict.suffix_accepted -
      speculation::NumSaid(session.ahead.suffixes, verdict.token_ids);
  session.own_account.OnStep(num_tokens, verdict.suffix_accepted,
                             std::max(0, looked));
  SendVerdict(session, std::move(verdict));
  return num_tokens;
}

void StepVerdicts::KeepRows(Session& session, int base_length, int matched) {
  if (session.nodes.empty()) return;
  // Rows 1 to `path` stand at positions, the next ones in the slots from 0 on.
  const int path = session.schedule.step().path_length();
  int on_path = 0;
  while (on_path < matched && session.walked[on_path + 1] <= path) ++on_path;
  std::vector<int32_t> slots;
  for (int i = on_path + 1; i <= matched; ++i) {
    slots.push_back(session.walked[i] - path - 1);
  }
  parts_.accounts->TruncateKv(session, base_length + on_path);
  const absl::Status kept =
      session.sequence->KeepPath(base_length + on_path, slots);
  NACRE_CHECK(kept.ok(), "the rows of a walk are a path");
}

void StepVerdicts::SendVerdict(Session& session, speculation::Verdict verdict) {
  if (session.closing) return;
  // The verdict ends at EOS and at max_tokens, the step may not.
  if (session.logprobs.size() > verdict.token_ids.size()) {
    session.logprobs.resize(verdict.token_ids.size());
  }
  parts_.events->For(session.stream)
      .verdicts.push_back(
          {session.id, std::move(verdict), std::move(session.logprobs)});
}

}  // namespace nacre::target_worker
