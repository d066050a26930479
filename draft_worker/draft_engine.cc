#include "draft_worker/draft_engine.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/feature_recorder.h"
#include "draft_worker/hidden_sink.h"
#include "model/model_drafter.h"
#include "worker/engine/common_prefix.h"

namespace nacre::draft_worker {

using wire::Span;
using worker::WorkerState;

namespace {

std::unique_ptr<worker::StepTap> TapOf(const DraftEngine::Options& options) {
  if (options.features == nullptr) return nullptr;
  return std::make_unique<FeatureRecorder>(options.features);
}

std::unique_ptr<model::Drafter> DrafterOf(DraftEngine::Options* options) {
  if (options->drafter != nullptr) return std::move(options->drafter);
  return std::make_unique<model::ModelDrafter>(options->model);
}

}  // namespace

DraftEngine::DraftEngine(Options options)
    : DraftEngine(DrafterOf(&options), std::move(options)) {}

DraftEngine::DraftEngine(std::unique_ptr<model::Drafter> drafter,
                         Options&& options)
    : TypedSessionEngine({.canary_model = drafter->canary_model(),
                          .deliver = options.deliver,
                          .spin_ns = options.spin_ns,
                          .now_ns = options.now_ns},
                         options.send),
      options_(std::move(options)),
      drafter_(std::move(drafter)),
      tap_(TapOf(options_)),
      hidden_sink_(std::make_shared<HiddenSink>(this)) {
  drafter_->SetInterrupt([this] { return IsStepPointless(); });
  Publish();
}

DraftEngine::~DraftEngine() {
  drafter_->SetInterrupt(nullptr);
  // Of sessions that nobody closed.
  for (const Session& session : sessions_) {
    if (tap_ != nullptr) tap_->OnClosed(Tapped(session));
  }
  hidden_sink_->Detach();
  table_.RemoveAll();
}

absl::Status DraftEngine::Prepare() {
  const model::DrafterTraits& traits = drafter_->traits();
  if (!traits.features.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the drafter reads ", traits.features.size(),
                     " features of the target, which do not come to drafts"));
  }
  if (traits.tokens_per_call != 1) {
    return absl::UnimplementedError(
        absl::StrCat("the drafter fills in ", traits.tokens_per_call,
                     " tokens a call, and chains are drafted by one"));
  }
  if (tap_ != nullptr && tap_->ReadsLogits() && !traits.shows_logits) {
    return absl::FailedPreconditionError(
        "--record-features needs logits, which this drafter does not show");
  }
  return TypedSessionEngine::Prepare();
}

WorkerState DraftEngine::Plan(int64_t now_ns, worker::StepOutcome* idle) {
  stepping_.clear();
  batch_.clear();
  batch_rows_ = num_drafting_ = 0;
  PlanDrafts(now_ns);
  PlanPrefills();
  PlanNextSteps();
  idle->stepped = !batch_.empty();
  if (num_drafting_ > 0) return WorkerState::kDraft;
  if (!batch_.empty()) return WorkerState::kPrefill;
  idle->waits_for_peer = !sessions_.empty();
  return idle->waits_for_peer ? WorkerState::kWaitVerdict
                              : WorkerState::kNoWork;
}

absl::StatusOr<bool> DraftEngine::Forward() {
  const absl::StatusOr<absl::Span<const model::Proposal>> proposals =
      drafter_->Propose(batch_);
  if (absl::IsAborted(proposals.status())) return false;
  NACRE_RETURN_IF_ERROR(proposals.status());
  proposals_ = *proposals;
  return true;
}

void DraftEngine::Finish(int64_t start_ns, bool abandoned) {
  if (abandoned) {
    for (Session* session : stepping_) {
      if (session->drafts && session->schedule.tree() != nullptr) {
        session->schedule.tree()->AbandonStep();
      }
    }
  }
  // A commit that arrived meanwhile may have made a drafted token pointless.
  TakeCommandsInStep();
  if (!abandoned) {
    DraftAll();
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
  for (Session& session : sessions_) {
    if (session.prefills() && session.unfed_rows() > 0) {
      accounts_.TakeOver(session, session.settled());
    }
    if (session.unfed_rows() <= 0) session.prefilled = true;
    prefilling = prefilling || session.prefills();
  }
  const int max_rows = options_.budget.DecodeRows(prefilling);
  sessions_.VisitInTurn([&](Session& session) {
    if (!session.prefilled) return true;
    if (!session.schedule.WantsStep()) {
      accounts_.NoteWait(session, Span::Kind::kWaitVerdict, now_ns);
      return true;
    }
    // The rows that catch up with commits and the one that drafts.
    const int rows = session.unfed_rows() + 1;
    if (rows > std::min(max_rows, options_.budget.prefill_chunk)) {
      session.prefilled = false;
      return true;
    }
    if (batch_rows_ + rows > max_rows) return false;
    accounts_.EndWait(session, now_ns);
    if (session.schedule.tree() != nullptr) {
      AddTreeRows(session, max_rows - batch_rows_);
    } else {
      AddRows(session, rows, /*drafts=*/true);
    }
    return true;
  });
}

void DraftEngine::PlanPrefills() {
  std::vector<Session*> prefilling;
  std::vector<worker::Prefill> prompts;
  for (Session& session : sessions_) {
    if (!session.prefills()) continue;
    prefilling.push_back(&session);
    prompts.push_back(
        {session.settled(), session.sequence->length(), session.unfed_rows()});
  }
  if (prefilling.empty()) return;
  // One that waits for its verdict will want its next step soon.
  const bool decoding = prefilling.size() < sessions_.size();
  const std::vector<int> shares = worker::SharePrefillOfCommonPrefixes(
      prompts, drafter_->shared_block_size(),
      options_.budget.PrefillRows(decoding, batch_rows_));
  for (size_t i = 0; i < prefilling.size(); ++i) {
    if (shares[i] > 0) AddRows(*prefilling[i], shares[i], /*drafts=*/false);
  }
}

void DraftEngine::AddRows(Session& session, int rows, bool drafts) {
  session.drafts = drafts;
  session.cut = session.drew = session.pointless = session.unsound = false;
  session.fed_rows = rows;
  const std::vector<int32_t>& tokens = session.schedule.tokens();
  model::DraftRows node;
  node.sequence = session.sequence.get();
  // Commits that arrive during the forward are applied after it: the span stays
  // valid.
  node.token_ids =
      absl::MakeConstSpan(tokens).subspan(session.sequence->length(), rows);
  if (drafts) {
    const int length = session.schedule.length();
    for (int i = session.history.length(); i < length; ++i) {
      session.history.Push(tokens[i]);
    }
    // Under the ratio test the token is drawn with its distribution.
    const bool ranks = drafter_->traits().ranks_children;
    node.max_children = session.ratio.has_value() ? 0
                        : ranks                   ? speculation::kRanks
                                                  : 1;
    node.sampler = &session.sampler;
    node.history = &session.history;
    node.shows_logits =
        session.reads_logits() || (tap_ != nullptr && tap_->ReadsLogits());
    node.shows_hidden =
        session.reads_hidden() ||
        (tap_ != nullptr &&
         tap_->ReadsHidden(Tapped(session)) != worker::StepTap::Rows::kNone);
  }
  batch_.push_back(node);
  stepping_.push_back(&session);
  batch_rows_ += rows;
  num_drafting_ += drafts ? 1 : 0;
}

void DraftEngine::PlanNextSteps() {
  if (table_.left_out()) return;
  for (const Session& session : sessions_) {
    if (session.prefills()) return;  // its rows come between
    // What its next step expands is not the child of one node.
    if (session.drafts && session.schedule.tree() != nullptr) return;
  }
  for (size_t i = 0; i < batch_.size(); ++i) {
    const Session& session = *stepping_[i];
    const bool stops = session.length.has_value() && session.length->WillStop();
    batch_[i].goes_on = session.schedule.WantsStepAfterNext(stops);
  }
}

worker::TapSession DraftEngine::Tapped(const Session& session) const {
  return {.key = {session.stream, session.id},
          .request_id = session.request_id,
          .prompt_length = session.prompt_length,
          .vocab_limit = session.vocab_limit};
}

void DraftEngine::DraftAll() {
  absl::Span<const model::Proposal> rest = proposals_;
  for (Session* each : stepping_) {
    Session& session = *each;
    const absl::Span<const model::Proposal> proposals =
        rest.first(session.num_nodes());
    rest.remove_prefix(proposals.size());
    session.unsound = std::any_of(
        proposals.begin(), proposals.end(),
        [](const model::Proposal& proposal) { return !proposal.is_sound; });
    soundness_.Add(!session.unsound);
    if (session.unsound) {
      if (session.closing) continue;
      table_.Fail(session, worker::UnsoundLogits(session.sequence->length()));
    } else if (session.drafts && session.schedule.tree() != nullptr) {
      DraftTreeRows(session, proposals);
    } else if (session.drafts) {
      Draft(session, proposals.front());
    }
  }
}

void DraftEngine::Draft(Session& session, const model::Proposal& proposal) {
  if (session.closing) return;
  if (session.cut || !session.schedule.WantsStep()) {
    // Between steps the last token has no KV: the next step feeds it.
    accounts_.TruncateKv(session, session.schedule.kv_limit());
    return;
  }
  const auto [children, is_sound, logits, hidden] = proposal;
  const int length = session.schedule.length();
  using speculation::LengthDecision;
  LengthDecision decision = LengthDecision::kContinue;
  const bool looks =
      session.length.has_value() && session.length->looks_at_token();
  if (session.length.has_value() && !looks) {
    decision = session.length->Decide(length, absl::nullopt, logits, hidden);
  }
  speculation::DraftDistribution distribution;  // under the ratio test
  candidates_.clear();
  if (drafter_->traits().ranks_children) {
    for (const model::ScoredToken& child : children) {
      candidates_.push_back(child.token_id);
    }
  }
  int32_t token_id = 0;
  if (session.ratio.has_value()) {
    token_id = session.ratio->Draw(session.sampler, logits, length,
                                   session.history, &distribution);
  } else if (children.empty()) {
    decision = LengthDecision::kDiscard;  // the drafter knows nothing
  } else {
    token_id = children.front().token_id;
  }
  if (looks && decision != LengthDecision::kDiscard) {
    decision = session.length->Decide(length, token_id, logits, hidden);
  }
  if (decision == LengthDecision::kDiscard) {
    session.schedule.OnDiscarded();
    session.touched = true;
    // The row that was fed stays: what comes next stands behind it.
    return;
  }
  if (tap_ != nullptr) {
    tap_->OnRows(Tapped(session), {.position = length,
                                   .token_ids = {&token_id, 1},
                                   .logits = logits,
                                   .hidden = kernels::FloatView(hidden)});
  }
  session.drew = true;
  speculation::Tail tail = session.schedule.OnDrafted(
      token_id, decision == LengthDecision::kStop, candidates_);
  if (session.ratio.has_value()) {
    tail.distributions.push_back(std::move(distribution));
  }
  SendTail(session, std::move(tail));
}

void DraftEngine::SendTail(Session& session, speculation::Tail tail) {
  DraftEvents& events = events_.For(session.stream);
  if (!session.untold_ranks.empty()) {
    events.ranks.push_back({session.id, session.schedule.epoch(),
                            std::exchange(session.untold_ranks, {})});
  }
  events.tails.push_back({session.id, std::move(tail)});
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
    accounts_.AddSpan(*session, span);
  }
}

}  // namespace nacre::draft_worker
