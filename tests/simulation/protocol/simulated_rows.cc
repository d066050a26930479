#include "tests/simulation/protocol/simulated_rows.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"

namespace nacre::protocol {

absl::InlinedVector<float, 3> RowValues(const model::TargetRowShape& shape,
                                        absl::string_view draft_fingerprint,
                                        const FedRow& row) {
  if (!shape.is_features()) {
    return {static_cast<float>(row.hash & 0xFFFFFF),
            static_cast<float>(row.position)};
  }
  uint64_t hash = row.hash;
  for (const char letter : draft_fingerprint) {
    hash += static_cast<uint64_t>(letter);
  }
  // Numbers that bf16 holds.
  return {static_cast<float>(hash & 0xFF), static_cast<float>(hash >> 8 & 0xFF),
          static_cast<float>(row.position & 0xFF)};
}

absl::Span<const float> SimulatedTargetSequence::At(int position) const {
  const auto size = static_cast<size_t>(reading_.shape.row_size());
  return absl::MakeConstSpan(values_).subspan(
      static_cast<size_t>(position - first_) * size, size);
}

void SimulatedTargetSequence::Append(absl::Span<const float> rows) {
  const int size = reading_.shape.row_size();
  const int count =
      std::min(static_cast<int>(rows.size()) / size, max_length_ - length());
  for (int i = 0; i < count; ++i) {
    const auto row =
        rows.subspan(static_cast<size_t>(i * size), static_cast<size_t>(size));
    // Rows come in order, without gaps.
    const auto next =
        RowValues(reading_.shape, "", {.hash = 0, .position = length()});
    NACRE_CHECK(row.back() == next.back(), "a row of another position");
    values_.insert(values_.end(), row.begin(), row.end());
  }
}

bool SimulatedTargetSequence::SkipTo(int position) {
  if (!reading_.shape.is_features() || !empty() || position < first_ ||
      position > max_length_) {
    return position == length();
  }
  first_ = position;
  return true;
}

bool SimulatedTargetSequence::Is(const FedRow& row) const {
  return At(row.position) ==
         absl::MakeConstSpan(
             RowValues(reading_.shape, reading_.draft_fingerprint, row));
}

void SimulatedFeatures::Project(int row, int count, std::vector<float>* out) {
  const auto rows = absl::MakeConstSpan(*fed_).subspan(
      static_cast<size_t>(row), static_cast<size_t>(count));
  for (const FedRow& fed : rows) {
    const auto values = RowValues(kFeaturesShape, draft_fingerprint_, fed);
    out->insert(out->end(), values.begin(), values.end());
  }
}

}  // namespace nacre::protocol
