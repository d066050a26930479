// How one node of a model on several nodes reaches the others: each node is a
// process with ranks of its own, most often on a machine of its own. Node 0 is
// the leader. The others exchange values with it alone.
//
// Implementations: over gRPC, worker/ranks/leader_service.h and
// follower_client.h.
//
// Errors: why a node was lost, or what Abort was called with, of the call that
// is under way and all after it. They name the node.
//
// One thread, that of the node's first rank, sends and receives. Any thread may
// call Abort, failure and what is about progress.

#ifndef KERNELS_NODE_LINK_H_
#define KERNELS_NODE_LINK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/rank_progress.h"

namespace nacre::kernels {

// What a node is at when it sends. Who receives must be at the same.
struct NodeCall {
  enum class Kind : uint8_t {
    kSum = 1,
    kBroadcast = 2,
    kGather = 3,
    kText = 4
  };

  // Of the calls of the model, from 1. Texts, which come before it is there
  // (node_texts.h), are counted apart.
  uint64_t number = 0;
  Kind kind = Kind::kSum;
  uint64_t count = 0;  // values, at least 1

  bool operator==(const NodeCall&) const = default;
};

// INTERNAL, with both: `node` has sent values of another call than this node is
// at.
absl::Status CheckSameCall(int node, const NodeCall& sent,
                           const NodeCall& expected);

class NodeLink {
 public:
  virtual ~NodeLink() = default;

  virtual int node() const = 0;
  virtual int nodes() const = 0;  // 2, 4 or 8
  // Whether the connection encrypts what it sends.
  virtual bool is_encrypted() const = 0;

  // `values` [call.count] may be used again when it returns, which may be
  // before they have come. INTERNAL: the other node is at another call.
  //   to, from: of node 0 any other node; of the others 0
  virtual absl::Status Send(int to, const NodeCall& call,
                            const float* values) = 0;
  virtual absl::Status Receive(int from, const NodeCall& call,
                               float* values) = 0;

  // Ends this node and, with `reason`, the others. Of several reasons the first
  // counts.
  virtual void Abort(const absl::Status& reason) = 0;
  // As the errors of calls, without one; OK: nothing has failed, or the leader
  // has stopped in order.
  virtual absl::Status failure() const = 0;

  // Where this node's ranks are: node 0 names who hangs. Of node 0: nothing.
  virtual void SayProgress(const std::vector<RankProgress>& ranks) {
    static_cast<void>(ranks);
  }
  // Of node 0: what each of the others has said last. Of those: nothing.
  virtual std::vector<NodeProgress> Progress() const { return {}; }
};

}  // namespace nacre::kernels

#endif  // KERNELS_NODE_LINK_H_
