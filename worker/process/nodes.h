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
#include "worker/process/exit_signal.h"
#include "worker/process/options.h"
#include "worker/ranks/leader_service.h"

namespace nacre::worker {

// Of the leader. Not thread-safe.
class NodeLeader {
 public:
  // Serves on --leader-address and waits until all followers have joined.
  // Errors: as of RpcServer::Start and LeaderService::AwaitJoined. Null: there
  // is one node.
  static absl::StatusOr<std::unique_ptr<NodeLeader>> Start(
      const WorkerOptions& options, wire::WorkerRole role,
      const rpc::PeerSecurity& security);
  // The followers end; as failed, unless End was called.
  ~NodeLeader();

  kernels::NodeLink* link() { return &service_; }
  // The model of all nodes, of this node's ranks; it must not outlive this.
  // Errors: as of LeaderService::AwaitLoaded.
  absl::StatusOr<std::unique_ptr<model::LanguageModel>> Lead(
      std::unique_ptr<model::LanguageModel> ranks);

  // A failure of a node, and its wish to leave, are the process' from now on.
  // `exit` outlives this.
  void SetExit(ExitSignal* exit);
  // Nothing is computed any more, for this reason.
  void End(const absl::Status& status) { service_.End(status); }

 private:
  NodeLeader(const WorkerOptions& options, wire::WorkerRole role,
             bool is_encrypted);

  const WorkerOptions& options_;
  LeaderService service_;
  std::unique_ptr<rpc::RpcServer> server_;
};

// The life of a follower, to its end: OK when the leader has stopped in order.
// `exit` says that it was told to terminate, once `on_joined` has been called.
// Not before the leader ends, which it asks to drain: it has work for this
// node until then.
absl::Status RunFollower(const WorkerOptions& options, wire::WorkerRole role,
                         const rpc::ChannelSecurity& security,
                         const std::function<void()>& on_joined,
                         ExitSignal* exit);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_NODES_H_
