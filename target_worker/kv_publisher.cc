#include "target_worker/kv_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "model/target_rows.h"
#include "target_worker/engine_session.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::target_worker {

using RowsWanted = worker::TensorPublisher::RowsWanted;

KvPublisher::KvPublisher(model::LanguageModel* model,
                         worker::TensorPublisher* tensors,
                         std::function<void()> wake)
    : model_(model), tensors_(tensors) {
  if (tensors_ == nullptr) return;
  tensors_->SetRowsWanted([this, wake = std::move(wake)] {
    is_wanted_ = true;
    wake();
  });
}

KvPublisher::~KvPublisher() {
  if (tensors_ != nullptr) tensors_->SetRowsWanted(nullptr);
}

void KvPublisher::Publish(const Step& step) {
  if (tensors_ == nullptr) return;
  for (const EngineSession* session : step.sessions) PublishRows(*session);
}

void KvPublisher::PublishIfWanted(
    worker::TypedSessions<EngineSession> sessions) {
  if (!is_wanted_.exchange(false)) return;
  for (const EngineSession& session : sessions) PublishRows(session);
}

absl::Status KvPublisher::Check(const RowsWanted& wanted) const {
  const std::string& own = model_->info().fingerprint;
  if (!wanted.target_fingerprint.empty() && wanted.target_fingerprint != own) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the draft is of the target ", wanted.target_fingerprint,
        ", this is ", own));
  }
  return model::CheckTargetRows(*model_, wanted.shape);
}

void KvPublisher::PublishRows(const EngineSession& session) {
  if (session.kv_channel == 0 || session.closing || session.unsound ||
      session.schedule.finished()) {
    return;
  }
  const absl::optional<RowsWanted> wanted =
      tensors_->WantedRows(session.kv_channel);
  if (!wanted.has_value()) return;
  if (const absl::Status status = Check(*wanted); !status.ok()) {
    tensors_->RefuseRows(session.kv_channel, *wanted, status);
    return;
  }
  // The last committed token has no row yet; what is past it may be another's.
  const int there = std::min(session.sequence->length(),
                             session.schedule.committed_length() - 1);
  const int count = std::min({wanted->end, there,
                              wanted->first + worker::TensorReader::kMaxRows}) -
                    wanted->first;
  if (count <= 0) return;
  model::ReadTargetRows(model_, *session.sequence, wanted->shape,
                        wanted->first, count, &rows_);
  worker::Tensor tensor;
  tensor.tag.channel = session.kv_channel;
  tensor.tag.position = wanted->first;
  tensor.tag.is_rows = true;
  tensor.shape = {count, wanted->shape.row_size()};
  tensor.values = kernels::FloatView(rows_);
  tensors_->PublishRows(tensor);
}

}  // namespace nacre::target_worker
