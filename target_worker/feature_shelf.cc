#include "target_worker/feature_shelf.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

void FeatureShelf::Open(EngineSession& session, const OpenTarget& open) {
  if (source_ == nullptr || session.read_rows.channel == 0 ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  session.read_rows.features = std::make_unique<ShelvedFeatures>();
  all_.push_back(session.read_rows.features.get());
}

void FeatureShelf::Close(EngineSession& session) {
  if (session.read_rows.features == nullptr) return;
  DropBefore(session.read_rows.features->end, session.read_rows.features.get());
  std::erase(all_, session.read_rows.features.get());
  session.read_rows.features.reset();
}

void FeatureShelf::Take(const Step& step) {
  if (source_ == nullptr) return;
  int first_row = 0;
  for (size_t i = 0; i < step.sessions.size(); ++i) {
    EngineSession& session = *step.sessions[i];
    const int begin = first_row;
    first_row += static_cast<int>(step.batch[i].token_ids.size());
    if (session.read_rows.features == nullptr || session.closing ||
        session.unsound || session.schedule.finished()) {
      continue;
    }
    FindTextRows(session, begin, &text_rows_);
    for (size_t at = 0, next; at < text_rows_.size(); at = next) {
      // Neighbours in one call: a chain's are all.
      next = at + 1;
      while (next < text_rows_.size() &&
             text_rows_[next].row == text_rows_[next - 1].row + 1) {
        ++next;
      }
      projected_.clear();
      source_->Project(text_rows_[at].row, static_cast<int>(next - at),
                       &projected_);
      for (size_t k = at; k < next; ++k) {
        Add(text_rows_[k].position,
            projected_.data() + (k - at) * static_cast<size_t>(source_->size()),
            session.read_rows.features.get());
      }
    }
  }
  MakeRoom();
}

void FeatureShelf::Add(int position, const float* row,
                       ShelvedFeatures* shelved) {
  if (position != shelved->end) {
    // The prefix cache has brought what is between.
    DropBefore(shelved->end, shelved);
    shelved->first = shelved->end = position;
  }
  for (int i = 0; i < source_->size(); ++i) {
    shelved->values.push_back(kernels::ToBF16(row[i]));
  }
  ++shelved->end;
  bytes_ += row_bytes();
}

void FeatureShelf::DropBefore(int position, ShelvedFeatures* shelved) {
  const size_t count = static_cast<size_t>(position - shelved->first);
  const auto begin = shelved->values.begin();
  shelved->values.erase(
      begin, begin + static_cast<ptrdiff_t>(
                         count * static_cast<size_t>(source_->size())));
  shelved->values.shrink_to_fit();
  shelved->first = position;
  bytes_ -= count * row_bytes();
}

void FeatureShelf::MakeRoom() {
  while (bytes_ > most_bytes_) {
    ShelvedFeatures* const longest = *std::max_element(
        all_.begin(), all_.end(), [](const auto* a, const auto* b) {
          return a->values.size() < b->values.size();
        });
    // Many at once: each time moves those that stay.
    DropBefore(longest->first + (longest->end - longest->first + 1) / 2,
               longest);
  }
}

absl::Status FeatureShelf::Check(
    const worker::TensorPublisher::RowsWanted& wanted) const {
  if (source_ == nullptr) {
    return absl::UnimplementedError(
        "the target computes no features for drafts: it has no "
        "--publish-features");
  }
  if (wanted.draft_fingerprint != source_->draft_fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the target's features are for the draft ",
        source_->draft_fingerprint(), ", this is ", wanted.draft_fingerprint));
  }
  if (wanted.shape.num_features == source_->size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the draft reads ", wanted.shape.num_features,
                   " features a position, the target has ", source_->size()));
}

void FeatureShelf::Read(const EngineSession& session, int first, int count,
                        std::vector<float>* rows) const {
  const ShelvedFeatures& shelved = *session.read_rows.features;
  const size_t size = static_cast<size_t>(source_->size());
  rows->resize(static_cast<size_t>(count) * size);
  const uint16_t* from =
      shelved.values.data() + static_cast<size_t>(first - shelved.first) * size;
  for (float& value : *rows) value = kernels::FromBF16(*from++);
}

}  // namespace nacre::target_worker
