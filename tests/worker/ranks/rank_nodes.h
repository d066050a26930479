// A leader's service on a port of this machine, and followers of it.

#ifndef TESTS_WORKER_RANKS_RANK_NODES_H_
#define TESTS_WORKER_RANKS_RANK_NODES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"
#include "worker/ranks/follower_client.h"
#include "worker/ranks/leader_service.h"

namespace nacre::worker {

inline constexpr absl::Duration kTestPatience = absl::Minutes(1);

inline NodeFacts TestFacts() { return {{"version", "1"}, {"ranks", "8"}}; }

class RankNodes {
 public:
  explicit RankNodes(int nodes) : nodes_(nodes), service_(nodes, TestFacts()) {
    server_ = *rpc::RpcServer::Start({}, {&service_});
  }
  ~RankNodes() {
    service_.End(absl::OkStatus());
    followers_.clear();
    server_->Shutdown(absl::Seconds(1));
  }

  LeaderService& leader() { return service_; }
  const std::string& address() const { return server_->address(); }

  FollowerClient::Options OptionsOf(int node) const {
    FollowerClient::Options options;
    options.leader = server_->address();
    options.node = node;
    options.nodes = nodes_;
    options.facts = TestFacts();
    return options;
  }
  // Joins, as the next node.
  FollowerClient& Join() {
    auto client = FollowerClient::Join(
        OptionsOf(static_cast<int>(followers_.size()) + 1), kTestPatience);
    EXPECT_TRUE(client.ok()) << client.status();
    followers_.push_back(*std::move(client));
    return *followers_.back();
  }
  void JoinAll() {
    while (static_cast<int>(followers_.size()) + 1 < nodes_) Join();
  }
  // By node.
  kernels::NodeLink* link(int node) {
    if (node == 0) return &service_;
    return followers_[static_cast<size_t>(node) - 1].get();
  }
  // The process is gone.
  void Lose(int node) { followers_[static_cast<size_t>(node) - 1].reset(); }

 private:
  const int nodes_;
  LeaderService service_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::vector<std::unique_ptr<FollowerClient>> followers_;
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_RANKS_RANK_NODES_H_
