#include "target_worker/hidden_publisher.h"

#include <utility>

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
  const absl::Span<const float> last =
      rows.hidden.last(rows.hidden.size() / count);
  worker::Tensor tensor;
  tensor.tag.channel = session.hidden_channel;
  tensor.tag.epoch = session.hidden_epoch;
  // Of the token that was fed: the one before the last.
  tensor.tag.position = rows.position + static_cast<int>(count) - 2;
  tensor.tag.after_norm = true;
  tensor.shape = {static_cast<int>(last.size())};
  tensor.values.assign(last.begin(), last.end());
  tensors_->Publish(std::move(tensor));
}

}  // namespace nacre::target_worker
