#include "target_worker/hidden_taps.h"

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "target_worker/engine_session.h"
#include "target_worker/hidden_publisher.h"
#include "target_worker/state_recorder.h"

namespace nacre::target_worker {

using Rows = worker::StepTap::Rows;

namespace {

worker::TapSession Tapped(const EngineSession& session, bool is_held) {
  const speculation::TargetSession& schedule = session.schedule;
  return {.key = {session.stream, session.id},
          .request_id = session.request_id,
          .prompt_length =
              schedule.committed_length() - schedule.text().generated(),
          .hidden_channel = session.hidden.channel,
          .hidden_epoch = session.hidden.epoch,
          .has_ended = schedule.finished(),
          .is_held = is_held};
}

}  // namespace

HiddenTaps::HiddenTaps(model::LanguageModel* model,
                       worker::TensorPublisher* tensors,
                       worker::FeatureFile* features)
    : model_(model) {
  if (tensors != nullptr) taps_.Add(std::make_unique<HiddenPublisher>(tensors));
  if (features != nullptr) taps_.Add(std::make_unique<StateRecorder>(features));
}

kernels::FloatView HiddenTaps::HiddenRows(const EngineSession& session, int row,
                                          int count) {
  if (hidden_.empty()) hidden_ = model_->final_hidden();
  if (hidden_.empty()) return {};  // the model shows none
  const size_t size = static_cast<size_t>(model_->info().hidden_size);
  const size_t first =
      static_cast<size_t>(session.first_logits) + static_cast<size_t>(row);
  return hidden_.subview(first * size, static_cast<size_t>(count) * size);
}

kernels::FloatView HiddenTaps::RowToHold(const EngineSession& session,
                                         int row) {
  if (session.closing ||
      taps_.ReadsHidden(Tapped(session, /*is_held=*/true)) == Rows::kNone) {
    return {};
  }
  return HiddenRows(session, row, 1);
}

void HiddenTaps::ShowStep(const EngineSession& session, int num_tokens,
                          bool is_held) {
  if (taps_.empty() || session.closing || num_tokens == 0) return;
  const Rows reads = taps_.ReadsHidden(Tapped(session, is_held));
  if (reads == Rows::kNone) return;
  const int first = reads == Rows::kAll ? 0 : num_tokens - 1;
  ShowRows(session, HiddenRows(session, first, num_tokens - first),
           num_tokens - first, is_held);
}

void HiddenTaps::ShowRows(const EngineSession& session,
                          const kernels::FloatView& hidden, int num_tokens,
                          bool is_held) {
  if (hidden.empty() || session.closing) return;
  const int position = session.schedule.committed_length() - num_tokens;
  taps_.OnRows(Tapped(session, is_held),
               {.position = position,
                .token_ids = absl::MakeConstSpan(session.schedule.committed())
                                 .subspan(static_cast<size_t>(position)),
                .logits = {},
                .hidden = hidden});
}

}  // namespace nacre::target_worker
