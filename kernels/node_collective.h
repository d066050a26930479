// A Collective of ranks on several nodes (node_link.h). The ranks of one node
// are threads of a process: they meet in its memory first
// (shared_memory_collective.h). Then the nodes exchange what each has, by their
// first ranks.
//
// All nodes have as many ranks, a power of two. So a node's sum is one of those
// that Collective::AllReduce goes by, and the bits are those of as many ranks
// in one process. Of two nodes each sends the other its sum and adds up; of
// more the leader adds up and sends the result.
//
// A rank that fails ends the ranks of all nodes, and so does a node that is
// lost.

#ifndef KERNELS_NODE_COLLECTIVE_H_
#define KERNELS_NODE_COLLECTIVE_H_

#include <memory>
#include <vector>

#include "kernels/collective.h"
#include "kernels/node_link.h"

namespace nacre::kernels {

// Of this node's ranks, the first of which is ranks * link->node(). `link`
// outlives them. All ranks of all nodes together are at most kMostRanks.
std::vector<std::unique_ptr<Collective>> MakeNodeCollectives(int ranks,
                                                             NodeLink* link);

}  // namespace nacre::kernels

#endif  // KERNELS_NODE_COLLECTIVE_H_
