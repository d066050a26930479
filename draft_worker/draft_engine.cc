#include "draft_worker/draft_engine.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/feature_recorder.h"
#include "model/model_drafter.h"

namespace nacre::draft_worker {

using wire::Span;

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
      hidden_({.tensors = options_.tensors,
               .accounts = &accounts_,
               .events = &events_,
               .now_ns = now_ns_},
              [this](DraftCommands commands) { Push(std::move(commands)); }),
      rows_(options_.tensors, drafter_.get(),
            [this](DraftCommands commands) { Push(std::move(commands)); }),
      planner_({.table = &table_,
                .accounts = &accounts_,
                .drafter = drafter_.get(),
                .tap = tap_.get()},
               options_.budget),
      row_drafter_({.table = &table_,
                    .accounts = &accounts_,
                    .soundness = &soundness_,
                    .events = &events_,
                    .calibrations = &calibrations_,
                    .tap = tap_.get()},
                   drafter_->traits().ranks_chains()) {
  drafter_->SetInterrupt([this] { return IsStepPointless(); });
  Publish();
}

DraftEngine::~DraftEngine() {
  drafter_->SetInterrupt(nullptr);
  // Of sessions that are still open.
  for (const Session& session : sessions_) {
    if (tap_ != nullptr) tap_->OnClosed(session.tapped());
  }
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
  // What it says depends on how much of the target has come, and so on time.
  if (tap_ != nullptr && drafter_->row_reader() != nullptr) {
    return absl::FailedPreconditionError(
        "--record-features needs a draft that reads no keys of its target");
  }
  if (tap_ != nullptr && tap_->ReadsLogits() && !traits.shows_logits) {
    return absl::FailedPreconditionError(
        "--record-features needs logits, which this drafter does not show");
  }
  return TypedSessionEngine::Prepare();
}

absl::StatusOr<bool> DraftEngine::Forward() {
  const absl::StatusOr<absl::Span<const model::Proposal>> proposals =
      drafter_->Propose(planner_.step().batch);
  if (absl::IsAborted(proposals.status())) return false;
  NACRE_RETURN_IF_ERROR(proposals.status());
  proposals_ = *proposals;
  return true;
}

void DraftEngine::Finish(int64_t start_ns, bool abandoned) {
  if (abandoned) {
    for (Session* session : stepping()) {
      if (session->drafts && session->schedule.tree() != nullptr) {
        session->schedule.tree()->AbandonStep();
      }
    }
  }
  // A commit that arrived meanwhile may have made a drafted token pointless.
  TakeCommandsInStep();
  if (!abandoned) {
    row_drafter_.DraftAll(planner_.step(), proposals_);
    soundness_.EndStep();
    for (Session* session : stepping()) {
      if (session->unsound) continue;
      if (session->seen.has_value()) rows_.OnStep(*session);
      session->sequence->Share(
          session->shareable(drafter_->row_reader() != nullptr));
    }
  }
  AddStepSpans(start_ns, now_ns_(), abandoned);
  SendStopNotices();
}

void DraftEngine::AddStepSpans(int64_t start_ns, int64_t end_ns,
                               bool abandoned) {
  for (Session* session : stepping()) {
    Span span;
    span.kind = session->drafts ? Span::Kind::kDraft : Span::Kind::kPrefill;
    span.start_ns = start_ns;
    span.duration_ns = end_ns - start_ns;
    span.rows = session->fed_rows;
    span.batch_rows = planner_.step().num_rows;
    const bool drew_none = session->drafts && !session->drew;
    span.length = drew_none ? 0 : session->schedule.length();
    span.batch_sessions = static_cast<int>(stepping().size());
    span.abandoned = abandoned;
    span.candidates = std::move(session->candidates);
    accounts_.AddSpan(*session, std::move(span));
  }
}

}  // namespace nacre::draft_worker
