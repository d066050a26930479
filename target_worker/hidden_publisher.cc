#include "target_worker/hidden_publisher.h"

#include <cstddef>

namespace nacre::target_worker {

worker::StepTap::Rows HiddenPublisher::ReadsHidden(
    const worker::TapSession& session) const {
  const bool is_read = session.hidden_channel != 0 && !session.has_ended &&
                       tensors_->HasReaders(session.hidden_channel);
  return is_read ? Rows::kLast : Rows::kNone;
}

void HiddenPublisher::OnRows(const worker::TapSession& session,
                             const worker::TapRows& rows) {
  const size_t count = rows.token_ids.size();
  const size_t size = rows.hidden.size() / count;
  worker::Tensor tensor;
  tensor.tag.channel = session.hidden_channel;
  tensor.tag.epoch = session.hidden_epoch;
  // Of the token that was fed: the one before the last.
  tensor.tag.position = rows.position + static_cast<int>(count) - 2;
  tensor.tag.after_norm = true;
  tensor.shape = {static_cast<int>(size)};
  tensor.values = rows.hidden.subview((count - 1) * size, size);
  tensors_->Publish(tensor);
}

}  // namespace nacre::target_worker
