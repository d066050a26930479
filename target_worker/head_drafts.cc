#include "target_worker/head_drafts.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "target_worker/engine_session.h"

namespace nacre::target_worker {

static_assert(LookTurns::kMaxSessions <= model::FutureHeads::kMaxRows);

HeadDrafts::HeadDrafts(Parts parts, speculation::TreeSpec tree)
    : parts_(std::move(parts)), tree_(std::move(tree)), turns_(parts_.now_ns) {
  if (parts_.heads == nullptr) return;
  for (speculation::HeadCalibrations& each : calibrations_) {
    each.resize(static_cast<size_t>(parts_.heads->count()));
  }
}

void HeadDrafts::Open(EngineSession& session, const OpenTarget& open) {
  // The request allows drafts of the target's own with its suffixes.
  if (parts_.heads == nullptr || !open.suffixes.has_value() ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  session.ahead.heads = std::make_unique<speculation::HeadDraft>(
      &tree_,
      &calibrations_[speculation::TemperatureKind(open.sampling.temperature)]);
}

void HeadDrafts::Look(const Step& step, double row_price, int64_t step_ns) {
  if (parts_.heads == nullptr) return;
  kernels::FloatView hidden;
  turns_.Run(step, row_price, step_ns, [&](auto sessions, double) {
    if (hidden.empty()) hidden = parts_.model->final_hidden();
    if (!hidden.empty()) LookAt(sessions, hidden);
  });
}

void HeadDrafts::Close(EngineSession& session) {
  if (session.ahead.heads != nullptr) turns_.Close(session);
}

void HeadDrafts::LookAt(absl::Span<EngineSession* const> sessions,
                        const kernels::FloatView& hidden) {
  const size_t size = static_cast<size_t>(parts_.model->info().hidden_size);
  hidden_.resize(sessions.size() * size);
  for (size_t i = 0; i < sessions.size(); ++i) {
    const EngineSession& session = *sessions[i];
    // The row that gave the last committed token.
    const int row = session.first_logits + session.walked.back();
    hidden.subview(static_cast<size_t>(row) * size, size)
        .CopyTo(hidden_.data() + i * size);
  }
  const absl::Span<const float> logits = parts_.heads->Run(hidden_);
  for (size_t i = 0; i < sessions.size(); ++i) {
    Rank(*sessions[i], static_cast<int>(i), static_cast<int>(sessions.size()),
         logits);
  }
}

void HeadDrafts::Rank(EngineSession& session, int row, int num_rows,
                      absl::Span<const float> logits) {
  const size_t vocab_size =
      static_cast<size_t>(parts_.model->info().vocab_size);
  said_.assign(static_cast<size_t>(parts_.heads->count()), {});
  for (size_t k = 0; k < said_.size(); ++k) {
    const size_t at =
        k * static_cast<size_t>(num_rows) + static_cast<size_t>(row);
    // Head k says the token of the position that is k after the next one.
    said_[k] = RankCandidates(
        session, logits.subspan(at * vocab_size, vocab_size),
        session.schedule.committed_length() + static_cast<int>(k));
  }
  session.ahead.heads->Look(session.schedule.committed(), said_);
}

}  // namespace nacre::target_worker
