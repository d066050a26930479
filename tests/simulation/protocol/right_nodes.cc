#include "tests/simulation/protocol/right_nodes.h"

#include <algorithm>
#include <cstddef>

#include "tests/simulation/protocol/checks.h"

namespace nacre::protocol {

void RightNodes::Come(int place) {
  if (place >= opened_length_ && known_.insert(place).second) {
    come_.push_back(place);
  }
}

void RightNodes::OnArrived(const RequestState& request,
                           const speculation::Tail& tail) {
  const int count = static_cast<int>(tail.token_ids.size());
  for (int i = 0; i < count; ++i) {
    const int32_t token_id = tail.token_ids[static_cast<size_t>(i)];
    if (!tail.is_tree()) {
      // What is before its base came to the draft from the target.
      const int next = std::max(chain_end_, tail.base_length);
      if (tail.first_position + i != next) continue;
      if (token_id != request.token(next)) continue;
      chain_end_ = next + 1;
      Come(next);
      continue;
    }
    int place = tail.base_length;
    const int parent = tail.parents[static_cast<size_t>(i)];
    if (parent != 0) {
      const auto end = ends_.find(parent);
      if (end == ends_.end()) continue;
      place = end->second;
    }
    if (token_id != request.token(place)) {
      wrong_.insert(place);
      continue;
    }
    ends_[tail.first_node + i] = place + 1;
    // Not what is made up for a place whose token the draft knows.
    if (place >= tail.base_length) Come(place);
  }
}

void RightNodes::BeginStep(int committed_length) {
  for (const int place : come_) {
    if (told_.contains(place)) continue;
    looked_at_.insert({place, place >= committed_length});
  }
  come_.clear();
}

void RightNodes::OnVerdict(int num_accepted, int length, Counts* counts) {
  while (!wrong_.empty() && *wrong_.begin() < length) {
    if (!known_.contains(*wrong_.begin())) told_.insert(*wrong_.begin());
    wrong_.erase(wrong_.begin());
  }
  while (!looked_at_.empty() && looked_at_.begin()->first < length) {
    ++(looked_at_.begin()->second ? counts->in_time : counts->late);
    looked_at_.erase(looked_at_.begin());
    ++missing_;
  }
  missing_ -= num_accepted;
  if (missing_ <= lost_) return;
  counts->lost += missing_ - lost_;
  lost_ = missing_;
}

}  // namespace nacre::protocol
