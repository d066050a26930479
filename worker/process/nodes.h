// A worker whose model is on several nodes (--nodes): the processes find each
// other, load their ranks, and agree that they have loaded the same.
//
// The leader is a worker as any other, whose model tells the followers what to
// do. A follower does that and nothing else.

#ifndef WORKER_PROCESS_NODES_H_
#define WORKER_PROCESS_NODES_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "common/rpc/server.h"
#include "kernels/node_link.h"
#include "model/language_model.h"
#include "wire/hello.h"
#include "worker/process/load_watch.h"
#include "worker/process/options.h"
#include "worker/ranks/leader_service.h"

namespace nacre::worker {

// Of the leader. Not thread-safe.
class NodeLeader {
 public:
  // Serves on --leader-address and waits until all followers have joined.
  // Errors: of CheckBeforeLoad, RpcServer::Start and
  // LeaderService::AwaitJoined. Null: there is one node. A failure of a node,
  // and its wish to leave, are `process`' from then on.
  static absl::StatusOr<std::unique_ptr<NodeLeader>> Start(
      const WorkerOptions& options, wire::WorkerRole role,
      const rpc::PeerSecurity& security, const NodeProcess& process);
  // The followers end; as failed, unless End or Fail was called.
  ~NodeLeader();

  kernels::NodeLink* link() { return &service_; }
  // The model of all nodes, of this node's ranks; it must not outlive this.
  // Errors: as of LeaderService::AwaitLoaded.
  absl::StatusOr<std::unique_ptr<model::LanguageModel>> Lead(
      std::unique_ptr<model::LanguageModel> ranks);

  // All is loaded and the first steps are done: who hangs from now on is lost,
  // and who is told to terminate drains.
  void StartServing();
  // Nothing is computed any more, for this reason.
  void End(const absl::Status& status) { service_.End(status); }
  // Likewise, for a failure of this node.
  void Fail(const absl::Status& status);

 private:
  NodeLeader(const WorkerOptions& options, wire::WorkerRole role,
             bool is_encrypted);

  const WorkerOptions& options_;
  LeaderService service_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<LoadWatch> watch_;  // null: it serves
};

// The life of a follower, to its end: OK when the leader has stopped in order.
// `process` says that it was told to terminate, once `on_joined` has been
// called. Once it has loaded, it does not end before the leader, which it asks
// to drain: that has work for this node until then. Errors: also those of
// CheckBeforeLoad.
absl::Status RunFollower(const WorkerOptions& options, wire::WorkerRole role,
                         const rpc::ChannelSecurity& security,
                         const std::function<void()>& on_joined,
                         const NodeProcess& process);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_NODES_H_
