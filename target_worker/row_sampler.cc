#include "target_worker/row_sampler.h"

#include <algorithm>
#include <cstddef>

#include "model/logit_row.h"
#include "model/logprobs.h"
#include "speculation/ratio_test.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using speculation::Verification;

namespace {

bool IsSound(absl::Span<const float> row) {
  return model::IsSoundRow(row.data(), static_cast<int>(row.size()));
}

}  // namespace

void RowSampler::PlanDraws(Session& session, int rows) const {
  session.draws.clear();
  if (session.prompt.rows > 0) return;
  if (rows == 0 && model_->draws_tokens()) {
    session.draws.push_back(model::DrawToLookAt(model_->info().vocab_size));
    return;
  }
  if (!model_->draws_tokens() || session.num_logprobs.has_value() ||
      session.schedule.verification() == Verification::kRatio) {
    return;
  }
  const int base_length = session.schedule.committed_length();
  for (int row = 0; row < rows; ++row) {
    session.draws.push_back(
        session.sampler.DeviceDraw(base_length + session.row_depths[row]));
  }
}

void RowSampler::SampleAll(const Step& step, absl::Span<const float> logits) {
  const size_t vocab_size = static_cast<size_t>(model_->info().vocab_size);
  absl::Span<const int32_t> drawn = model_->drawn_tokens();
  for (size_t i = 0; i < step.sessions.size(); ++i) {
    const model::SequenceRows& rows = step.batch[i];
    const size_t num_drawn = static_cast<size_t>(
        std::count_if(rows.draws.begin(), rows.draws.end(),
                      [](const auto& draw) { return draw.has_value(); }));
    const size_t num_logits =
        (static_cast<size_t>(rows.num_logits) - num_drawn) * vocab_size;
    Session& session = *step.sessions[i];
    const RowOutputs outputs = {drawn.subspan(0, num_drawn),
                                logits.subspan(0, num_logits)};
    if (session.verifies) {
      SampleRows(session, outputs);
    } else if (session.prompt.rows > 0) {
      ScorePrompt(session, outputs.logits);
    } else {
      session.unsound = num_drawn > 0 ? drawn.front() == kUnsoundDraw
                                      : !IsSound(outputs.logits);
    }
    soundness_->Add(!session.unsound);
    drawn.remove_prefix(num_drawn);
    logits.remove_prefix(num_logits);
  }
}

void RowSampler::SampleRows(Session& session, const RowOutputs& outputs) {
  session.drawn.clear();
  session.walked.clear();
  session.logprobs.clear();
  session.unsound = false;
  if (session.schedule.verification() == Verification::kRatio) {
    JudgeRows(session, outputs.logits);
    return;
  }
  const size_t vocab_size = static_cast<size_t>(model_->info().vocab_size);
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

void RowSampler::ScorePrompt(Session& session, absl::Span<const float> logits) {
  session.unsound = false;
  session.prompt.logprobs.clear();
  const size_t vocab_size = static_cast<size_t>(model_->info().vocab_size);
  for (int i = 0; i < session.prompt.rows; ++i) {
    const absl::Span<const float> row =
        logits.subspan(static_cast<size_t>(i) * vocab_size, vocab_size);
    session.unsound = !IsSound(row);
    if (session.unsound) return;
    const int position = session.prompt.next + i;
    session.prompt.logprobs.push_back(
        model::ComputeLogprobs(row, session.schedule.committed()[position],
                               session.prompt.num_top, scratch_));
  }
}

void RowSampler::JudgeRows(Session& session, absl::Span<const float> logits) {
  const size_t vocab_size = static_cast<size_t>(model_->info().vocab_size);
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

void RowSampler::JudgeLastRow(Session& session,
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

void RowSampler::AddDrawn(Session& session, int32_t token_id,
                          absl::Span<const float> row) {
  session.drawn.push_back(token_id);
  if (!session.num_logprobs.has_value()) return;
  session.logprobs.push_back(
      model::ComputeLogprobs(row, token_id, *session.num_logprobs, scratch_));
}

}  // namespace nacre::target_worker
