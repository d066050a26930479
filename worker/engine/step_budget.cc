#include "worker/engine/step_budget.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace nacre::worker {
namespace {

// Below, products read weights for too few rows at once. A step alone holds up
// only those that come meanwhile.
constexpr int kLeastBesideDecoding = 8;
constexpr int kLeastAlone = 64;

}  // namespace

int StepBudget::reserved_rows() const {
  return std::min(prefill_chunk, max_rows / 8);
}

int StepBudget::DecodeRows(bool prefilling) const {
  return prefilling ? max_rows - reserved_rows() : max_rows;
}

int StepBudget::PrefillRows(bool decoding, int used_rows) const {
  const int rows = std::max(max_rows - used_rows, reserved_rows());
  return decoding ? std::min(rows, prefill_chunk) : rows;
}

PrefillRoom StepBudget::RoomForPrompts(bool decoding, int used_rows) const {
  return {PrefillRows(decoding, used_rows), even_positions,
          decoding ? kLeastBesideDecoding : kLeastAlone};
}

double PrefillRoom::PriceAfter(int length) const {
  if (even_positions <= 0) return 1;
  return 1 + static_cast<double>(length) / even_positions;
}

int PrefillRoom::SharedRows(int share, int length) const {
  const int rows =
      static_cast<int>(static_cast<double>(share) / PriceAfter(length));
  return std::max(rows, std::min(share, least_rows));
}

std::vector<int> SharePrefill(absl::Span<const int> unfed_rows, int rows) {
  std::vector<int> shares(unfed_rows.size(), 0);
  if (unfed_rows.empty()) return shares;
  const auto give = [&](size_t i, int most) {
    const int share = std::min(unfed_rows[i] - shares[i], most);
    shares[i] += share;
    rows -= share;
  };
  give(0, rows - rows / 2);
  std::vector<size_t> shortest_first(unfed_rows.size() - 1);
  std::iota(shortest_first.begin(), shortest_first.end(), size_t{1});
  std::stable_sort(
      shortest_first.begin(), shortest_first.end(),
      [&](size_t a, size_t b) { return unfed_rows[a] < unfed_rows[b]; });
  for (const size_t i : shortest_first) {
    if (rows == 0) break;
    give(i, rows);
  }
  give(0, rows);
  return shares;
}

}  // namespace nacre::worker
