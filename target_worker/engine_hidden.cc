// How the target engine lets drafts read its hidden states, and records them.

#include "target_worker/engine_session.h"
#include "target_worker/state_recorder.h"
#include "target_worker/target_engine.h"

namespace nacre::target_worker {

kernels::FloatView TargetEngine::HiddenRow(const Session& session, int row) {
  // Behind the end nothing is drafted.
  if (session.hidden_channel == 0 || options_.tensors == nullptr ||
      session.closing || session.schedule.finished() ||
      !options_.tensors->HasReaders(session.hidden_channel)) {
    return {};
  }
  return HiddenRows(session, row, 1);
}

kernels::FloatView TargetEngine::HiddenRows(const Session& session, int row,
                                            int count) {
  if (hidden_.empty()) hidden_ = options_.model->final_hidden();
  if (hidden_.empty()) return {};  // the model shows none
  const size_t size = static_cast<size_t>(options_.model->info().hidden_size);
  const size_t first =
      static_cast<size_t>(session.first_logits) + static_cast<size_t>(row);
  return hidden_.subview(first * size, static_cast<size_t>(count) * size);
}

void TargetEngine::RecordHidden(const Session& session, int position,
                                int num_tokens) {
  if (options_.features == nullptr || session.closing) return;
  RecordStates({session.request_id, session.id, position, num_tokens,
                HiddenRows(session, 0, num_tokens).OnHost(&hidden_copy_)},
               options_.features);
}

void TargetEngine::PublishHidden(const Session& session,
                                 const kernels::FloatView& values) {
  // A held row may have been the last.
  if (values.empty() || session.closing || session.schedule.finished()) return;
  worker::Tensor tensor;
  tensor.tag.channel = session.hidden_channel;
  tensor.tag.epoch = session.hidden_epoch;
  // The token that this gave is the last one, which has not been fed yet.
  tensor.tag.position = session.schedule.committed_length() - 2;
  tensor.tag.after_norm = true;
  tensor.shape = {static_cast<int>(values.size())};
  tensor.values = values;
  options_.tensors->Publish(tensor);
}

}  // namespace nacre::target_worker
