#include "worker/engine/common_prefix.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/types/optional.h"
#include "worker/engine/step_budget.h"

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

}  // namespace

std::vector<int> SharePrefillOfCommonPrefixes(absl::Span<const Prefill> prompts,
                                              int block_size, int rows) {
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
    std::vector<int> unfed;
    for (size_t i = 0; i < count; ++i) {
      if (waits_for[i].has_value()) continue;
      served.push_back(i);
      unfed.push_back(prompts[i].unfed_rows);
    }
    const std::vector<int> served_shares = SharePrefill(unfed, rows);
    std::fill(shares.begin(), shares.end(), 0);
    for (size_t k = 0; k < served.size(); ++k) {
      shares[served[k]] = served_shares[k];
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
