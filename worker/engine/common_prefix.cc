#include "worker/engine/common_prefix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/types/optional.h"

namespace nacre::worker {
namespace {

// Where the block ends that the prompt is in.
size_t BlockEnd(const Prefill& prompt, int block_size) {
  const size_t size = static_cast<size_t>(block_size);
  return (static_cast<size_t>(prompt.length) / size + 1) * size;
}

// Whether both will compute the same block: the younger could take it over.
bool HaveSameNextBlock(const Prefill& older, const Prefill& younger,
                       int block_size) {
  const size_t end = BlockEnd(younger, block_size);
  if (end != BlockEnd(older, block_size) || end >= older.token_ids.size() ||
      end >= younger.token_ids.size()) {
    return false;
  }
  // The last tokens first: there most prompts differ.
  return std::equal(
      older.token_ids.rend() - static_cast<std::ptrdiff_t>(end),
      older.token_ids.rend(),
      younger.token_ids.rend() - static_cast<std::ptrdiff_t>(end));
}

// What its unfed rows cost, as far as that matters.
int CostOf(const Prefill& prompt, const PrefillRoom& room) {
  const double cost = prompt.unfed_rows * room.PriceAfter(prompt.length);
  return static_cast<int>(
      std::min(std::ceil(cost), double{std::numeric_limits<int>::max()}));
}

}  // namespace

std::vector<int> SharePrefillOfCommonPrefixes(absl::Span<const Prefill> prompts,
                                              int block_size,
                                              const PrefillRoom& room) {
  const size_t count = prompts.size();
  // The prompt that each waits for. The first of those that are alike waits for
  // none.
  std::vector<absl::optional<size_t>> waits_for(count);
  for (size_t i = 0; block_size > 0 && i < count; ++i) {
    for (size_t older = 0; older < i && !waits_for[i].has_value(); ++older) {
      if (HaveSameNextBlock(prompts[older], prompts[i], block_size)) {
        waits_for[i] = older;
      }
    }
  }
  std::vector<int> shares(count);
  bool in_vain = true;
  while (std::exchange(in_vain, false)) {
    std::vector<size_t> served;
    std::vector<int> costs;
    for (size_t i = 0; i < count; ++i) {
      if (waits_for[i].has_value()) continue;
      served.push_back(i);
      costs.push_back(CostOf(prompts[i], room));
    }
    const std::vector<int> served_shares = SharePrefill(costs, room.rows);
    std::fill(shares.begin(), shares.end(), 0);
    for (size_t k = 0; k < served.size(); ++k) {
      const Prefill& prompt = prompts[served[k]];
      shares[served[k]] = std::min(
          prompt.unfed_rows, room.SharedRows(served_shares[k], prompt.length));
    }
    for (absl::optional<size_t>& older : waits_for) {
      if (!older.has_value() || shares[*older] > 0) continue;
      older.reset();
      in_vain = true;
    }
  }
  return shares;
}

}  // namespace nacre::worker
