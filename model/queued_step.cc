#include "model/queued_step.h"

#include <algorithm>

namespace nacre::model {
namespace {

const BlockSequence* SequenceOf(const SequenceRows& rows) {
  return static_cast<const BlockSequence*>(rows.sequence);
}

size_t CountDraws(const SequenceRows& rows) {
  return static_cast<size_t>(
      std::count_if(rows.draws.begin(), rows.draws.end(),
                    [](const auto& draw) { return draw.has_value(); }));
}

}  // namespace

void QueuedStep::Plan(absl::Span<const SequenceRows> batch) {
  rows_.clear();
  size_t draws = 0;
  for (const SequenceRows& rows : batch) {
    draws += CountDraws(rows);
    if (!rows.next_draw.has_value()) continue;
    const BlockSequence* const sequence = SequenceOf(rows);
    rows_.push_back(
        {sequence, sequence->version(),
         sequence->length() + static_cast<int>(rows.token_ids.size()),
         draws - 1, *rows.next_draw});
  }
}

bool QueuedStep::IsAskedFor(absl::Span<const SequenceRows> batch,
                            absl::Span<const int32_t> drawn) const {
  const auto is_asked = [&](const Row& queued, const SequenceRows& rows) {
    // Versions are never used again, unlike addresses.
    return SequenceOf(rows)->version() == queued.version &&
           rows.sequence->length() == queued.position &&
           rows.token_ids.size() == 1 && rows.nodes.empty() &&
           rows.num_logits == 1 && rows.token_ids[0] == drawn[queued.drawn] &&
           rows.draws.size() == 1 && rows.draws[0] == queued.draw;
  };
  return std::equal(rows_.begin(), rows_.end(), batch.begin(), batch.end(),
                    is_asked);
}

}  // namespace nacre::model
