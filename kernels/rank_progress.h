// How far ranks that meet on their devices have come, and who waits for whom
// when one of them hangs. All ranks make the same calls in the same order: the
// one that has made fewer is the one that the others wait for.
//
// Plain values.

#ifndef KERNELS_RANK_PROGRESS_H_
#define KERNELS_RANK_PROGRESS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace nacre::kernels {

struct RankProgress {
  int rank = 0;
  uint64_t called = 0;  // calls so far
  uint64_t done = 0;    // of them, from the first on: their end was seen
  // Of call `done` + 1, which it has made: "an all-gather of 64 bytes". Empty:
  // it has made none that has not ended.
  std::string what;
  // How long ago it made its last call, if that has not ended.
  std::chrono::milliseconds waits{0};

  bool operator==(const RankProgress&) const = default;
};

// Of one process. Without ranks: it has not said.
struct NodeProgress {
  int node = 0;
  std::vector<RankProgress> ranks;
  // Since it said so; none of this one.
  std::chrono::milliseconds ago{0};
};

// Most ranks of a model, and bytes of a `what`: what comes from elsewhere is
// checked against them.
inline constexpr size_t kMostProgressRanks = 8;
inline constexpr size_t kMostProgressText = 80;

// Whether a rank has waited for more than `limit`. What a node said more than
// half of it ago proves nothing: it may have gone on.
bool Hangs(absl::Span<const NodeProgress> nodes,
           std::chrono::milliseconds limit);

// Of such nodes, one line: which call it is, who waits in it for how long, who
// had not made it when it last said so, and which of these nodes have said
// nothing for half of `limit`: they are not said to wait. `ranks`: of the
// model.
std::string DescribeHang(absl::Span<const NodeProgress> nodes, int ranks,
                         std::chrono::milliseconds limit);

}  // namespace nacre::kernels

#endif  // KERNELS_RANK_PROGRESS_H_
