// How the target engine turns the logits of a step into tokens and verdicts.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "model/logit_row.h"
#include "model/logprobs.h"
#include "speculation/ratio_test.h"
#include "target_worker/engine_session.h"
#include "target_worker/target_engine.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using speculation::Verification;
using wire::Span;

namespace {

// What one part of a step's verdict says of its rows.
void AddVerdict(const speculation::Verdict& verdict, Span* span) {
  span->rows += verdict.window;
  span->matched += verdict.matched;
  span->accepted += verdict.accepted;
}

bool IsSound(absl::Span<const float> row) {
  return model::IsSoundRow(row.data(), static_cast<int>(row.size()));
}

}  // namespace

void TargetEngine::PlanDraws(Session& session, int rows) {
  session.draws.clear();
  if (rows == 0 && options_.model->draws_tokens()) {
    session.draws.push_back(
        model::DrawToLookAt(options_.model->info().vocab_size));
    return;
  }
  if (!options_.model->draws_tokens() || session.num_logprobs.has_value() ||
      session.schedule.verification() == Verification::kRatio) {
    return;
  }
  const int base_length = session.schedule.committed_length();
  for (int row = 0; row < rows; ++row) {
    session.draws.push_back(
        session.sampler.DeviceDraw(base_length + session.row_depths[row]));
  }
}

void TargetEngine::SampleAll(absl::Span<const float> logits) {
  const size_t vocab_size =
      static_cast<size_t>(options_.model->info().vocab_size);
  absl::Span<const int32_t> drawn = options_.model->drawn_tokens();
  for (size_t i = 0; i < stepping_.size(); ++i) {
    const model::SequenceRows& rows = batch_[i];
    const size_t num_drawn = static_cast<size_t>(
        std::count_if(rows.draws.begin(), rows.draws.end(),
                      [](const auto& draw) { return draw.has_value(); }));
    const size_t num_logits =
        (static_cast<size_t>(rows.num_logits) - num_drawn) * vocab_size;
    Session& session = *stepping_[i];
    const RowOutputs outputs = {drawn.subspan(0, num_drawn),
                                logits.subspan(0, num_logits)};
    if (session.verifies) {
      SampleRows(session, outputs);
    } else {
      session.unsound = num_drawn > 0 ? drawn.front() == kUnsoundDraw
                                      : !IsSound(outputs.logits);
    }
    soundness_.Add(!session.unsound);
    drawn.remove_prefix(num_drawn);
    logits.remove_prefix(num_logits);
  }
}

void TargetEngine::SampleRows(Session& session, const RowOutputs& outputs) {
  session.drawn.clear();
  session.walked.clear();
  session.logprobs.clear();
  session.unsound = false;
  if (session.schedule.verification() == Verification::kRatio) {
    JudgeRows(session, outputs.logits);
    return;
  }
  const size_t vocab_size =
      static_cast<size_t>(options_.model->info().vocab_size);
  const int base_length = session.schedule.committed_length();
  auto [drawn, logits] = outputs;
  const auto is_drawn = [&session](int row) {
    return !session.draws.empty() && session.draws[row].has_value();
  };
  int row = 0;
  while (true) {
    session.walked.push_back(row);
    int32_t token_id = 0;
    absl::Span<const float> row_logits;
    if (is_drawn(row)) {
      token_id = drawn.front();
      session.unsound = token_id == kUnsoundDraw;
    } else {
      row_logits = logits.subspan(0, vocab_size);
      session.unsound = !IsSound(row_logits);
      token_id = session.sampler.Sample(
          row_logits, base_length + session.row_depths[row], session.history);
    }
    if (session.unsound) return;
    AddDrawn(session, token_id, row_logits);
    const absl::optional<int> next =
        session.schedule.step().RowBehind(row, token_id);
    if (!next.has_value()) return;
    session.history.Push(token_id);
    // Rows beside the walk are passed over.
    for (; row < *next; ++row) {
      if (is_drawn(row)) {
        drawn.remove_prefix(1);
      } else {
        logits.remove_prefix(vocab_size);
      }
    }
  }
}

void TargetEngine::JudgeRows(Session& session, absl::Span<const float> logits) {
  const size_t vocab_size =
      static_cast<size_t>(options_.model->info().vocab_size);
  const TargetSession& schedule = session.schedule;
  const int base_length = schedule.committed_length();
  const int window =
      static_cast<int>(session.fed.size()) - session.prefill_rows - 1;
  for (int row = 0; row < window; ++row) {
    const absl::Span<const float> row_logits =
        logits.subspan(static_cast<size_t>(row) * vocab_size, vocab_size);
    session.unsound = !IsSound(row_logits);
    if (session.unsound) return;
    session.sampler.FillWeights(row_logits, base_length + row, session.history,
                                &weights_);
    const TargetSession::Drafted drafted = *schedule.DraftedAt(row);
    const int32_t token_id = speculation::JudgeByRatio(
        {weights_.token_ids, weights_.weights}, drafted.token_id,
        *drafted.distribution, session.seed, base_length + row);
    AddDrawn(session, token_id, row_logits);
    if (token_id != drafted.token_id || schedule.text().IsEnd(token_id)) return;
    session.history.Push(token_id);
  }
  session.last_row =
      logits.subspan(static_cast<size_t>(window) * vocab_size, vocab_size);
  // Before its KV is shared with that of the others.
  session.unsound = !IsSound(session.last_row);
}

void TargetEngine::JudgeLastRow(Session& session,
                                absl::Span<const float> logits) {
  const int row = static_cast<int>(session.drawn.size());
  const int position = session.schedule.committed_length() + row;
  const absl::optional<TargetSession::Drafted> drafted =
      session.schedule.DraftedAt(row);
  if (!drafted.has_value()) {
    AddDrawn(session, session.sampler.Sample(logits, position, session.history),
             logits);
    return;
  }
  session.sampler.FillWeights(logits, position, session.history, &weights_);
  const int32_t token_id = speculation::JudgeByRatio(
      {weights_.token_ids, weights_.weights}, drafted->token_id,
      *drafted->distribution, session.seed, position);
  AddDrawn(session, token_id, logits);
}

void TargetEngine::AddDrawn(Session& session, int32_t token_id,
                            absl::Span<const float> row) {
  session.drawn.push_back(token_id);
  if (!session.num_logprobs.has_value()) return;
  session.logprobs.push_back(
      model::ComputeLogprobs(row, token_id, *session.num_logprobs, &scratch_));
}

void TargetEngine::FinishStep(Session& session, int64_t start_ns,
                              int64_t end_ns) {
  if (session.unsound) {
    if (!session.closing) {
      Fail(session, worker::UnsoundLogits(session.sequence->length()));
    }
    return;
  }
  Span span;
  span.start_ns = start_ns;
  span.duration_ns = end_ns - start_ns;
  span.batch_rows = batch_rows_;
  span.batch_sessions = static_cast<int>(stepping_.size());
  if (session.prefill_rows > 0) {
    span.kind = Span::Kind::kPrefill;
    span.rows = session.prefill_rows;
    AddSpan(session, span);
    span.rows = 0;
  }
  if (!std::exchange(session.verifies, false)) {
    session.sequence->Share(session.schedule.committed());
    return;
  }
  const absl::Span<const float> last_row = std::exchange(session.last_row, {});
  if (!last_row.empty()) {
    if (!session.closing && session.schedule.HoldsLastRow(end_ns)) {
      HoldLastRow(session, last_row, std::move(span));
      return;
    }
    JudgeLastRow(session, last_row);
  }
  const int num_tokens = FinishVerify(session, std::move(span));
  ShowStep(session, num_tokens, /*is_held=*/false);
}

void TargetEngine::HoldLastRow(Session& session, absl::Span<const float> logits,
                               Span span) {
  const int row = static_cast<int>(session.drawn.size());
  // Its step may end after the model has computed others.
  const kernels::FloatView hidden = RowToHold(session, row);
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
    ShowStep(session, row, /*is_held=*/true);
  }
  session.hold = Session::Hold{
      {logits.begin(), logits.end()}, std::move(kept_hidden), std::move(span)};
}

void TargetEngine::EndHolds(int64_t now_ns) {
  for (Session& session : sessions()) {
    if (!session.hold.has_value() || session.closing ||
        session.schedule.HoldsLastRow(now_ns)) {
      continue;
    }
    EndWait(session, now_ns);
    Session::Hold hold = *std::exchange(session.hold, absl::nullopt);
    JudgeLastRow(session, hold.logits);
    FinishVerify(session, std::move(hold.verify));
    ShowRows(session, kernels::FloatView(hold.hidden), 1, /*is_held=*/true);
  }
}

int TargetEngine::FinishVerify(Session& session, Span span) {
  TargetSession& schedule = session.schedule;
  speculation::Verdict verdict = schedule.FinishStep(session.drawn);
  session.history.Truncate(verdict.base_length);
  for (const int32_t id : verdict.token_ids) session.history.Push(id);
  AddVerdict(verdict, &span);
  span.kind = Span::Kind::kVerify;
  ++span.rows;  // the last one
  span.length = schedule.committed_length();
  AddSpan(session, span);
  KeepRows(session, verdict.base_length, verdict.matched);
  TruncateKv(session, schedule.kv_length());
  session.sequence->Share(schedule.committed());
  if (schedule.finished()) session.sequence.reset();
  suffix_proposed_ += static_cast<uint64_t>(verdict.suffix_proposed);
  suffix_accepted_ += static_cast<uint64_t>(verdict.suffix_accepted);
  const int num_tokens = static_cast<int>(verdict.token_ids.size());
  SendVerdict(session, std::move(verdict));
  return num_tokens;
}

void TargetEngine::KeepRows(Session& session, int base_length, int matched) {
  if (session.nodes.empty()) return;
  // Rows 1 to `path` stand at positions, the next ones in the slots from 0 on.
  const int path = session.schedule.step().path_length();
  int on_path = 0;
  while (on_path < matched && session.walked[on_path + 1] <= path) ++on_path;
  std::vector<int32_t> slots;
  for (int i = on_path + 1; i <= matched; ++i) {
    slots.push_back(session.walked[i] - path - 1);
  }
  TruncateKv(session, base_length + on_path);
  const absl::Status kept =
      session.sequence->KeepPath(base_length + on_path, slots);
  NACRE_CHECK(kept.ok(), "the rows of a walk are a path");
}

void TargetEngine::SendVerdict(Session& session, speculation::Verdict verdict) {
  if (session.closing) return;
  // The verdict ends at EOS and at max_tokens, the step may not.
  if (session.logprobs.size() > verdict.token_ids.size()) {
    session.logprobs.resize(verdict.token_ids.size());
  }
  outbox_.For(session.stream)
      .verdicts.push_back(
          {session.id, std::move(verdict), std::move(session.logprobs)});
}

}  // namespace nacre::target_worker
