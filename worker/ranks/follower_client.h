// The follower's side of a model on several nodes: its stream to the leader
// (nacre.v1.Ranks).
//
// Thread-safe, but for what NodeLink says.

#ifndef WORKER_RANKS_FOLLOWER_CLIENT_H_
#define WORKER_RANKS_FOLLOWER_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/security.h"
#include "kernels/node_link.h"
#include "model/ranks/rank_command.h"
#include "proto/ranks.grpc.pb.h"
#include "worker/ranks/node_facts.h"

namespace nacre::worker {

class FollowerClient final : public kernels::NodeLink {
 public:
  struct Options {
    std::string leader;  // host:port
    rpc::ChannelSecurity security;
    int node = 1;
    int nodes = 2;
    NodeFacts facts;  // what is known before anything is loaded
  };

  // Tries again and again until the leader is there. DEADLINE_EXCEEDED: not
  // within `patience`. Other errors: why the leader refuses it.
  static absl::StatusOr<std::unique_ptr<FollowerClient>> Join(
      const Options& options, absl::Duration patience);
  // Ends the stream, once the leader has heard of a failure.
  ~FollowerClient() override;

  void SayLoaded(const NodeFacts& facts);
  // As LeaderService::SetPatience, until the leader serves. Then it is twice
  // the leader's: the leader waits for the others, and names who hangs.
  void SetPatience(absl::Duration patience);
  // Heard on gRPC's threads when the stream has ended, with what NextCommands
  // says; at once, if it has already. Null: no more.
  void SetOnEnd(const std::function<void(const absl::Status&)>& on_end);
  // Whether the leader has stopped in order.
  bool has_stopped() const;
  // Waits for what the leader says next. Empty: it has stopped in order. Errors
  // end the node.
  absl::StatusOr<std::vector<model::RankCommand>> NextCommands();
  // This node was told to terminate: the leader drains and stops all nodes, at
  // once where they still load.
  void Leave();
  // Until the stream has ended.
  void AwaitEnd(absl::Duration patience);

  int node() const override { return options_.node; }
  int nodes() const override { return options_.nodes; }
  bool is_encrypted() const override {
    return options_.security.credentials != nullptr;
  }
  absl::Status Send(int to, const kernels::NodeCall& call,
                    const float* values) override;
  absl::Status Receive(int from, const kernels::NodeCall& call,
                       float* values) override;
  void Abort(const absl::Status& reason) override;
  absl::Status failure() const override;
  void SayProgress(const std::vector<kernels::RankProgress>& ranks) override;

 private:
  using Stream =
      rpc::ClientMessageStream<v1::FollowerMessage, v1::LeaderMessage>;
  // Shared with the stream's callbacks.
  struct State;

  explicit FollowerClient(Options options) : options_(std::move(options)) {}

  // One attempt.
  absl::Status Connect(v1::Ranks::Stub* stub, absl::Time deadline);
  void Say(v1::FollowerMessage message) { stream_->Send(std::move(message)); }

  const Options options_;
  std::unique_ptr<v1::Ranks::Stub> stub_;
  std::shared_ptr<State> state_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace nacre::worker

#endif  // WORKER_RANKS_FOLLOWER_CLIENT_H_
