#include "target_worker/row_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "target_worker/engine_session.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::target_worker {

using RowsWanted = worker::TensorPublisher::RowsWanted;

namespace {

constexpr int kMostReaders = 8;

// Numbers that are read between two steps, of one session for one reader.
constexpr int kMostNumbers = 1 << 18;

}  // namespace

RowPublisher::RowPublisher(model::LanguageModel* model, model::RowSource* rows,
                         worker::TensorPublisher* tensors,
                         std::function<void()> wake)
    : fingerprint_(model->info().fingerprint),
      kept_(model),
      source_(rows != nullptr ? rows : &kept_),
      tensors_(tensors) {
  if (tensors_ == nullptr) return;
  tensors_->SetRowsWanted([this, wake = std::move(wake)] {
    is_wanted_ = true;
    wake();
  });
}

RowPublisher::~RowPublisher() {
  if (tensors_ != nullptr) tensors_->SetRowsWanted(nullptr);
}

void RowPublisher::Publish(worker::TypedSessions<EngineSession> sessions) {
  const bool is_wanted = is_wanted_.exchange(false);
  for (EngineSession& session : sessions) {
    if (session.read_kv.channel == 0 || session.closing || session.unsound ||
        session.schedule.finished()) {
      continue;
    }
    // The last committed token has no row yet; what is past it may be
    // another's.
    const int there = std::min(session.sequence->length(),
                               session.schedule.committed_length() - 1);
    if (there <= session.read_kv.shown && !is_wanted) continue;
    session.read_kv.shown = there;
    // Each turn serves a reader. Two are many: a draft and its successor.
    for (int i = 0; i < kMostReaders && PublishRows(session, there); ++i) {
    }
  }
}

absl::Status RowPublisher::Check(const RowsWanted& wanted) const {
  if (!wanted.target_fingerprint.empty() &&
      wanted.target_fingerprint != fingerprint_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the draft is of the target ", wanted.target_fingerprint,
                     ", this is ", fingerprint_));
  }
  return source_->Check(wanted.shape);
}

bool RowPublisher::PublishRows(const EngineSession& session, int there) {
  if (tensors_ == nullptr) return false;
  const absl::optional<RowsWanted> wanted =
      tensors_->WantedRows(session.read_kv.channel, there);
  if (!wanted.has_value()) return false;
  if (const absl::Status status = Check(*wanted); !status.ok()) {
    tensors_->RefuseRows(session.read_kv.channel, *wanted, status);
    return true;
  }
  const int most = std::clamp(kMostNumbers / wanted->shape.row_size(), 1,
                              worker::TensorReader::kMaxRows);
  const int count =
      std::min({wanted->end, there, wanted->first + most}) - wanted->first;
  source_->Read(*session.sequence, wanted->shape, wanted->first, count, &rows_);
  worker::Tensor tensor;
  tensor.tag.channel = session.read_kv.channel;
  tensor.tag.epoch = wanted->epoch;
  tensor.tag.position = wanted->first;
  tensor.tag.is_rows = true;
  tensor.shape = {count, wanted->shape.row_size()};
  tensor.values = kernels::FloatView(rows_);
  tensors_->PublishRows(tensor);
  return true;
}

}  // namespace nacre::target_worker
