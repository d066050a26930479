#include "draft_worker/draft_engine.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/hidden_sink.h"
#include "model/logit_row.h"
#include "worker/common_prefix.h"

namespace nacre::draft_worker {

using wire::Span;
using worker::WorkerState;

DraftEngine::DraftEngine(Options options)
    : TypedSessionEngine({.model = options.model,
                          .deliver = options.deliver,
                          .spin_ns = options.spin_ns,
                          .now_ns = options.now_ns},
                         options.send),
      options_(std::move(options)),
      hidden_sink_(std::make_shared<HiddenSink>(this)) {
  options_.model->SetInterrupt([this] { return IsStepPointless(); });
}

DraftEngine::~DraftEngine() {
  options_.model->SetInterrupt(nullptr);
  // Of sessions that nobody closed.
  for (Session& session : sessions()) {
    if (session.features.has_value()) session.features->OnClosed();
  }
  hidden_sink_->Detach();
}

WorkerState DraftEngine::Plan(int64_t now_ns, worker::StepOutcome* idle) {
  stepping_.clear();
  batch_.clear();
  num_drafting_ = 0;
  PlanDrafts(now_ns);
  PlanPrefills();
  PlanNextDraws();
  if (num_drafting_ > 0) return WorkerState::kDraft;
  if (!batch_.empty()) return WorkerState::kPrefill;
  idle->waits_for_peer = !all_sessions().empty();
  return idle->waits_for_peer ? WorkerState::kWaitVerdict
                              : WorkerState::kNoWork;
}

absl::StatusOr<bool> DraftEngine::Forward() {
  const absl::StatusOr<absl::Span<const float>> logits =
      options_.model->Forward(batch_);
  if (absl::IsAborted(logits.status())) return false;
  NACRE_RETURN_IF_ERROR(logits.status());
  logits_ = *logits;
  return true;
}

void DraftEngine::Finish(int64_t start_ns, bool abandoned) {
  // A commit that arrived meanwhile may have made a drafted token pointless.
  TakeCommandsInStep();
  if (!abandoned) {
    DraftAll(logits_);
    soundness_.EndStep();
    for (Session* session : stepping_) {
      if (session->unsound) continue;
      session->sequence->Share(session->settled());
    }
  }
  AddStepSpans(start_ns, now_ns_(), abandoned);
  SendStopNotices();
}

void DraftEngine::PlanDrafts(int64_t now_ns) {
  bool prefilling = false;
  for (Session& session : sessions()) {
    if (session.prefills() && session.unfed_rows() > 0) {
      TakeOver(session, session.settled());
    }
    if (session.unfed_rows() <= 0) session.prefilled = true;
    prefilling = prefilling || session.prefills();
  }
  const int max_rows = options_.budget.DecodeRows(prefilling);
  VisitInTurn([&](size_t index) {
    Session& session = this->session(index);
    if (!session.prefilled) return true;
    if (!session.schedule.WantsStep()) {
      NoteWait(session, Span::Kind::kWaitVerdict, now_ns);
      return true;
    }
    // The rows that catch up with commits and the one that drafts.
    const int rows = session.unfed_rows() + 1;
    if (rows > std::min(max_rows, options_.budget.prefill_chunk)) {
      session.prefilled = false;
      return true;
    }
    if (batch_rows_ + rows > max_rows) return false;
    EndWait(session, now_ns);
    AddRows(session, rows, /*drafts=*/true);
    return true;
  });
}

void DraftEngine::PlanPrefills() {
  std::vector<Session*> prefilling;
  std::vector<worker::Prefill> prompts;
  for (Session& session : sessions()) {
    if (!session.prefills()) continue;
    prefilling.push_back(&session);
    prompts.push_back(
        {session.settled(), session.sequence->length(), session.unfed_rows()});
  }
  if (prefilling.empty()) return;
  // One that waits for its verdict will want its next step soon.
  const bool decoding = prefilling.size() < all_sessions().size();
  const std::vector<int> shares = worker::SharePrefillOfCommonPrefixes(
      prompts, options_.model->shared_block_size(),
      options_.budget.PrefillRows(decoding, batch_rows_));
  for (size_t i = 0; i < prefilling.size(); ++i) {
    if (shares[i] > 0) AddRows(*prefilling[i], shares[i], /*drafts=*/false);
  }
}

void DraftEngine::AddRows(Session& session, int rows, bool drafts) {
  session.drafts = drafts;
  session.cut = session.drew = session.pointless = session.unsound = false;
  session.fed_rows = rows;
  const absl::Span<const int32_t> tokens = session.schedule.tokens();
  // Commits that arrive during the forward are applied after it: the span stays
  // valid.
  // A step that a commit has changed draws nothing: the position stays.
  session.draw.reset();
  if (options_.model->draws_tokens()) {
    if (!drafts) {
      session.draw = worker::DrawToLookAt(options_.model->info().vocab_size);
    } else if (!session.reads_logits()) {
      session.draw = session.sampler.DeviceDraw(session.schedule.length());
    }
  }
  batch_.push_back({session.sequence.get(),
                    tokens.subspan(session.sequence->length(), rows),
                    /*num_logits=*/1});
  if (session.draw.has_value()) {
    batch_.back().draws = absl::MakeConstSpan(&session.draw, 1);
  }
  stepping_.push_back(&session);
  batch_rows_ += rows;
  num_drafting_ += drafts ? 1 : 0;
}

void DraftEngine::PlanNextDraws() {
  if (left_out_) return;
  for (const Session& session : sessions()) {
    if (session.prefills()) return;  // its rows come between
  }
  for (const Session* session : stepping_) {
    if (session->reads_hidden()) return;
  }
  for (size_t i = 0; i < batch_.size(); ++i) {
    const Session& session = *stepping_[i];
    const bool stops = session.length.has_value() && session.length->WillStop();
    if (!session.schedule.WantsStepAfterNext(stops)) continue;
    if (session.draw.has_value()) {
      batch_[i].next_draw =
          session.sampler.DeviceDraw(session.schedule.length() + 1);
    }
    if (batch_[i].next_draw.has_value()) continue;
    // It will be in the next step, and nobody can say how: there is no use in
    // one of the others alone.
    for (model::SequenceRows& rows : batch_) rows.next_draw.reset();
    return;
  }
}

void DraftEngine::DraftAll(absl::Span<const float> logits) {
  const model::ModelInfo& info = options_.model->info();
  const auto vocab_size = static_cast<size_t>(info.vocab_size);
  const auto hidden_size = static_cast<size_t>(info.hidden_size);
  absl::Span<const int32_t> drawn = options_.model->drawn_tokens();
  absl::Span<const float> hidden;  // of all rows, once anybody reads it
  size_t row = 0;
  for (Session* session : stepping_) {
    const bool reads_hidden = session->drafts && session->reads_hidden();
    if (reads_hidden && hidden.empty()) {
      hidden = options_.model->final_hidden().OnHost(&hidden_copy_);
    }
    RowOutputs outputs;
    if (session->draw.has_value()) {
      outputs.drawn = drawn.front();
      drawn.remove_prefix(1);
      session->unsound = outputs.drawn == kUnsoundDraw;
    } else {
      outputs.logits = logits.subspan(0, vocab_size);
      logits.remove_prefix(vocab_size);
      session->unsound =
          !model::IsSoundRow(outputs.logits.data(), info.vocab_size);
    }
    soundness_.Add(!session->unsound);
    if (reads_hidden) {
      outputs.hidden = hidden.subspan(row * hidden_size, hidden_size);
    }
    ++row;
    if (session->unsound) {
      if (session->closing) continue;
      Fail(*session, worker::UnsoundLogits(session->sequence->length()));
    } else if (session->drafts) {
      Draft(*session, outputs);
    }
  }
}

void DraftEngine::Draft(Session& session, const RowOutputs& row) {
  if (session.closing) return;
  if (session.cut || !session.schedule.WantsStep()) {
    // Between steps the last token has no KV: the next step feeds it.
    TruncateKv(session, session.schedule.kv_limit());
    return;
  }
  const std::vector<int32_t>& tokens = session.schedule.tokens();
  const int length = session.schedule.length();
  for (int i = session.history.length(); i < length; ++i) {
    session.history.Push(tokens[i]);
  }
  using speculation::LengthDecision;
  LengthDecision decision = LengthDecision::kContinue;
  const bool looks =
      session.length.has_value() && session.length->looks_at_token();
  if (session.length.has_value() && !looks) {
    decision =
        session.length->Decide(length, absl::nullopt, row.logits, row.hidden);
  }
  speculation::DraftDistribution distribution;  // under the ratio test
  int32_t token_id = row.drawn;
  if (session.ratio.has_value()) {
    token_id = session.ratio->Draw(session.sampler, row.logits, length,
                                   session.history, &distribution);
  } else if (!session.draw.has_value()) {
    token_id = session.sampler.Sample(row.logits, length, session.history);
  }
  if (looks) {
    decision = session.length->Decide(length, token_id, row.logits, row.hidden);
  }
  if (decision == LengthDecision::kDiscard) {
    session.schedule.OnDiscarded();
    session.touched = true;
    // The row that was fed stays: what comes next stands behind it.
    return;
  }
  if (session.features.has_value()) {
    session.features->OnDrafted(length, token_id, row.logits, row.hidden);
  }
  session.drew = true;
  speculation::Tail tail =
      session.schedule.OnDrafted(token_id, decision == LengthDecision::kStop);
  if (session.ratio.has_value()) {
    tail.distributions.push_back(std::move(distribution));
  }
  outbox_.For(session.stream).tails.push_back({session.id, std::move(tail)});
}

void DraftEngine::AddStepSpans(int64_t start_ns, int64_t end_ns,
                               bool abandoned) {
  for (Session* session : stepping_) {
    Span span;
    span.kind = session->drafts ? Span::Kind::kDraft : Span::Kind::kPrefill;
    span.start_ns = start_ns;
    span.duration_ns = end_ns - start_ns;
    span.rows = session->fed_rows;
    span.batch_rows = batch_rows_;
    const bool drew_none = session->drafts && !session->drew;
    span.length = drew_none ? 0 : session->schedule.length();
    span.batch_sessions = static_cast<int>(stepping_.size());
    span.abandoned = abandoned;
    AddSpan(*session, span);
  }
}

}  // namespace nacre::draft_worker
