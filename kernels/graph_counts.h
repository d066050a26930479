// How steps reached a device that can keep what they queue.

#ifndef KERNELS_GRAPH_COUNTS_H_
#define KERNELS_GRAPH_COUNTS_H_

#include <cstdint>

namespace nacre::kernels {

// Of lists of kernels: a step has one, or several where it waits in between.
// Lists of few kernels do not count.
struct GraphCounts {
  uint64_t replayed = 0;  // as the graph that was kept of an equal list
  uint64_t captured = 0;  // as a graph that was made for it, the second time
  uint64_t plain = 0;     // kernel by kernel: none like it was remembered
  // As one kernel that stays for all of them, where that is asked for.
  uint64_t persistent = 0;

  bool operator==(const GraphCounts&) const = default;
};

}  // namespace nacre::kernels

#endif  // KERNELS_GRAPH_COUNTS_H_
