#include "target_worker/row_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "target_worker/engine_session.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::target_worker {

namespace {

constexpr int kMostReaders = 8;

// Numbers that are read between two steps, of one session for one reader.
constexpr int kMostNumbers = 1 << 18;

}  // namespace

RowPublisher::RowPublisher(const Parts& parts, std::function<void()> wake)
    : parts_(parts),
      fingerprint_(parts.model->info().fingerprint),
      kept_(parts.model),
      source_(parts.keys_values != nullptr ? parts.keys_values : &kept_),
      tensors_(parts.tensors) {
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
    if (session.read_rows.channel == 0 || session.closing || session.unsound ||
        session.schedule.finished()) {
      continue;
    }
    // The last committed token has no row yet; what is past it may be
    // another's.
    const int there = std::min(session.sequence->length(),
                               session.schedule.committed_length() - 1);
    if (there <= session.read_rows.shown && !is_wanted) continue;
    session.read_rows.shown = there;
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
  return wanted.shape.is_features() ? parts_.features->Check(wanted)
                                    : source_->Check(wanted.shape);
}

bool RowPublisher::PublishRows(const EngineSession& session, int there) {
  if (tensors_ == nullptr) return false;
  const uint64_t channel = session.read_rows.channel;
  const absl::optional<RowsWanted> wanted =
      tensors_->WantedRows(channel, there);
  if (!wanted.has_value()) return false;
  if (const absl::Status status = Check(*wanted); !status.ok()) {
    tensors_->RefuseRows(channel, *wanted, status);
    return true;
  }
  if (wanted->shape.is_features()) {
    if (session.read_rows.features == nullptr) {
      tensors_->RefuseRows(
          channel, *wanted,
          absl::UnimplementedError("no features under the ratio test"));
      return true;
    }
    // Of what the prefix cache brought there are none, as long as no step ran.
    if (session.read_rows.features->end <= wanted->first) return false;
    if (session.read_rows.features->first > wanted->first) {
      tensors_->SkipRows(channel, *wanted, session.read_rows.features->first);
      return true;
    }
    there = std::min(there, session.read_rows.features->end);
  }
  const int most = std::clamp(kMostNumbers / wanted->shape.row_size(), 1,
                              worker::TensorReader::kMaxRows);
  Send(session, *wanted,
       std::min({wanted->end, there, wanted->first + most}) - wanted->first);
  return true;
}

void RowPublisher::Send(const EngineSession& session, const RowsWanted& wanted,
                        int count) {
  worker::Tensor tensor;
  if (wanted.shape.is_features()) {
    parts_.features->Read(session, wanted.first, count, &rows_);
    tensor.in_bf16 = true;
  } else {
    source_->Read(*session.sequence, wanted.shape, wanted.first, count, &rows_);
    tensor.in_bf16 = source_->is_bf16();
  }
  tensor.tag.channel = session.read_rows.channel;
  tensor.tag.epoch = wanted.epoch;
  tensor.tag.position = wanted.first;
  tensor.tag.is_rows = true;
  tensor.shape = {count, wanted.shape.row_size()};
  tensor.values = kernels::FloatView(rows_);
  tensors_->PublishRows(tensor);
}

}  // namespace nacre::target_worker
