#include "model/eagle_sequence.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"

namespace nacre::model {

EagleSequence::EagleSequence(std::unique_ptr<KvSequence> kv, size_t hidden_size)
    : OwnKvSequence(std::move(kv)),
      hidden_size_(hidden_size),
      zeros_(hidden_size),
      slots_(static_cast<size_t>(this->kv()->num_slots()) * hidden_size) {}

const float* EagleSequence::TextOutput(int row) const {
  if (row < first_row_) return zeros_.data();
  const size_t at = static_cast<size_t>(row - first_row_) * hidden_size_;
  return at < text_.size() ? text_.data() + at : zeros_.data();
}

void EagleSequence::KeepTextOutput(int row, const float* output) {
  const int end = first_row_ + static_cast<int>(text_.size() / hidden_size_);
  if (row < first_row_ || row > end) {
    text_.clear();
    first_row_ = row;
  }
  const auto at = static_cast<ptrdiff_t>(static_cast<size_t>(row - first_row_) *
                                         hidden_size_);
  if (row >= end || text_.empty()) text_.resize(text_.size() + hidden_size_);
  std::copy_n(output, hidden_size_, text_.begin() + at);
  if (text_.size() <= 2 * kKeptRows * hidden_size_) return;
  text_.erase(text_.begin(),
              text_.end() - static_cast<ptrdiff_t>(kKeptRows * hidden_size_));
  first_row_ = row + 1 - static_cast<int>(kKeptRows);
}

void EagleSequence::KeepSlotOutput(int32_t slot, const float* output) {
  std::copy_n(output, hidden_size_,
              slots_.begin() + static_cast<ptrdiff_t>(
                                   static_cast<size_t>(slot) * hidden_size_));
}

void EagleSequence::Truncate(int length) {
  kv()->Truncate(length);
  const size_t rows = static_cast<size_t>(std::max(0, length - first_row_));
  text_.resize(std::min(text_.size(), rows * hidden_size_));
}

absl::Status EagleSequence::KeepPath(int length,
                                     absl::Span<const int32_t> slots) {
  if (kv()->length() > length) return absl::OkStatus();
  NACRE_RETURN_IF_ERROR(kv()->KeepPath(length, slots));
  for (size_t i = 0; i < slots.size(); ++i) {
    KeepTextOutput(length + static_cast<int>(i), SlotOutput(slots[i]));
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
