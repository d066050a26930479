// How the target engine lets drafts read its hidden states.

#include <utility>

#include "target_worker/engine_session.h"
#include "target_worker/target_engine.h"

namespace nacre::target_worker {

void TargetEngine::PublishHidden(const Session& session, int num_tokens) {
  // Behind the end nothing is drafted.
  if (options_.tensors == nullptr || session.closing ||
      session.schedule.finished() ||
      !options_.tensors->HasReaders(session.hidden_channel)) {
    return;
  }
  if (hidden_.empty()) hidden_ = options_.model->final_hidden();
  if (hidden_.empty()) return;  // the model shows none
  const int size = options_.model->info().hidden_size;
  const size_t row = static_cast<size_t>(session.first_logits) +
                     static_cast<size_t>(num_tokens) - 1;
  const absl::Span<const float> values = hidden_.subspan(
      row * static_cast<size_t>(size), static_cast<size_t>(size));
  worker::Tensor tensor;
  tensor.tag.channel = session.hidden_channel;
  tensor.tag.epoch = session.hidden_epoch;
  // The token that this gave is the last one, which has not been fed yet.
  tensor.tag.position = session.schedule.committed_length() - 2;
  tensor.tag.after_norm = true;
  tensor.shape = {size};
  tensor.values.assign(values.begin(), values.end());
  options_.tensors->Publish(std::move(tensor));
}

}  // namespace nacre::target_worker
