#include "speculation/ratio_test.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/check.h"

namespace nacre::speculation {
namespace {

// In (0, 1), with all 53 bits: a probability far below 2^-32 is still drawn as
// often as it should be.
double Uniform(uint64_t seed, int position, NoisePurpose purpose) {
  const PhiloxBlock block =
      NoiseBlock(seed, static_cast<uint32_t>(position), 0, purpose);
  const double high = static_cast<double>(block[0] >> 6);
  const double low = static_cast<double>(block[1] >> 5);
  return (high * 0x1p27 + low + 0.5) * 0x1p-53;
}

double Sum(absl::Span<const float> weights) {
  double sum = 0;
  for (const float weight : weights) sum += static_cast<double>(weight);
  return sum;
}

double Probability(WeightedTokens row, int32_t token_id) {
  for (size_t i = 0; i < row.token_ids.size(); ++i) {
    if (row.token_ids[i] == token_id) {
      return static_cast<double>(row.weights[i]) / Sum(row.weights);
    }
  }
  return 0;
}

// (id, probability), ids ascending.
std::vector<std::pair<int32_t, double>> Sorted(WeightedTokens row) {
  const double sum = Sum(row.weights);
  std::vector<std::pair<int32_t, double>> sorted;
  sorted.reserve(row.token_ids.size());
  for (size_t i = 0; i < row.token_ids.size(); ++i) {
    sorted.emplace_back(row.token_ids[i],
                        static_cast<double>(row.weights[i]) / sum);
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Calls visit(token_id, max(p - q, 0)) for each token of `target`, in order.
template <typename Visit>
void ForEachResidual(WeightedTokens target, double target_sum,
                     absl::Span<const std::pair<int32_t, double>> draft,
                     Visit visit) {
  auto next = draft.begin();
  for (size_t i = 0; i < target.token_ids.size(); ++i) {
    const int32_t id = target.token_ids[i];
    while (next != draft.end() && next->first < id) ++next;
    const double q =
        next != draft.end() && next->first == id ? next->second : 0;
    const double p = static_cast<double>(target.weights[i]) / target_sum;
    visit(id, std::max(p - q, 0.0));
  }
}

int32_t DrawResidual(WeightedTokens target, const DraftDistribution& draft,
                     uint64_t seed, int position) {
  const double target_sum = Sum(target.weights);
  const auto sorted = Sorted(Weighted(draft));
  double sum = 0;
  ForEachResidual(target, target_sum, sorted,
                  [&sum](int32_t /*id*/, double weight) { sum += weight; });
  if (sum <= 0) {
    // p and q are equal but for rounding, and so is what either gives.
    return DrawToken(target, seed, position, NoisePurpose::kResidual);
  }
  const double goal = Uniform(seed, position, NoisePurpose::kResidual) * sum;
  double passed = 0;
  int32_t drawn = -1;
  ForEachResidual(target, target_sum, sorted, [&](int32_t id, double weight) {
    if (weight <= 0 || passed > goal) return;
    passed += weight;
    drawn = id;
  });
  return drawn;
}

}  // namespace

bool IsValid(const DraftDistribution& distribution, int32_t token_id) {
  const std::vector<int32_t>& ids = distribution.token_ids;
  if (ids.empty() || ids.size() > size_t{kMaxDistribution} ||
      distribution.weights.size() != ids.size()) {
    return false;
  }
  for (const float weight : distribution.weights) {
    if (!std::isfinite(weight) || weight <= 0.0f) return false;
  }
  std::vector<int32_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
         std::binary_search(sorted.begin(), sorted.end(), token_id);
}

int32_t DrawToken(WeightedTokens row, uint64_t seed, int position,
                  NoisePurpose purpose) {
  NACRE_CHECK(!row.token_ids.empty(), "nothing to draw from");
  const double goal = Uniform(seed, position, purpose) * Sum(row.weights);
  double passed = 0;
  for (size_t i = 0; i < row.token_ids.size(); ++i) {
    passed += static_cast<double>(row.weights[i]);
    if (passed > goal) return row.token_ids[i];
  }
  return row.token_ids.back();
}

int32_t JudgeByRatio(WeightedTokens target, int32_t drafted,
                     const DraftDistribution& draft, uint64_t seed,
                     int position) {
  const double p = Probability(target, drafted);
  const double q = Probability(Weighted(draft), drafted);
  // u < p / q
  if (Uniform(seed, position, NoisePurpose::kAccept) * q < p) return drafted;
  return DrawResidual(target, draft, seed, position);
}

}  // namespace nacre::speculation
