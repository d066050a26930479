// A model on several nodes in one process: the leader for the test's thread,
// each follower on a thread of its own, which does what it is told until the
// leader is gone or something is wrong.

#ifndef TESTS_MODEL_RANKS_NODE_GROUP_H_
#define TESTS_MODEL_RANKS_NODE_GROUP_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/model_options.h"
#include "model/ranks/follower_model.h"
#include "model/ranks/leader_model.h"
#include "model/tensor_parallel_model.h"
#include "tests/kernels/node_network.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::model {

class NodeGroup : public RankCommandSink {
 public:
  using Edit = std::function<void(int node, RankCommand* command)>;

  // `edit` changes what a follower hears.
  NodeGroup(const std::string& dir, const kernels::BackendOptions& backend,
            int ranks, int nodes, const ModelOptions& options,
            Edit edit = nullptr)
      : network_(nodes), edit_(std::move(edit)) {
    models_.resize(static_cast<size_t>(nodes));
    kernels::OnEveryRank(nodes, [&](int node) {
      // As each node's --device would.
      kernels::BackendOptions own = backend;
      const int of_node = ranks / nodes;
      own.device += node * of_node;
      if (!own.devices.empty()) {
        const auto first = backend.devices.begin() + node * of_node;
        own.devices.assign(first, first + of_node);
      }
      auto model = TensorParallelModel::Load(dir, own, ranks, options,
                                             network_.link(node));
      EXPECT_TRUE(model.ok()) << model.status();
      if (model.ok()) models_[static_cast<size_t>(node)] = *std::move(model);
    });
    followers_.resize(static_cast<size_t>(nodes));
    for (size_t node = 1; node < models_.size(); ++node) {
      followers_[node].thread =
          std::thread([this, node] { Follow(static_cast<int>(node)); });
    }
    leader_ = std::make_unique<LeaderModel>(std::move(models_[0]), this);
  }
  ~NodeGroup() override {
    leader_.reset();
    {
      const absl::MutexLock lock(&mu_);
      over_ = true;
    }
    for (Follower& follower : followers_) {
      if (follower.thread.joinable()) follower.thread.join();
    }
  }

  LeaderModel* leader() { return leader_.get(); }
  kernels::NodeNetwork& network() { return network_; }
  // Of a follower.
  TensorParallelModel* model(int node) {
    return models_[static_cast<size_t>(node)].get();
  }
  // Waits until a follower has failed.
  absl::Status FailureOf(int node) {
    const absl::MutexLock lock(&mu_);
    const Follower& follower = followers_[static_cast<size_t>(node)];
    const auto failed = [&] { return !follower.failure.ok(); };
    mu_.Await(absl::Condition(&failed));
    return follower.failure;
  }
  // How many messages the leader has sent.
  int sent() const { return sent_; }

  absl::Status SendCommands(const std::vector<RankCommand>& commands) override {
    const absl::MutexLock lock(&mu_);
    ++sent_;
    for (size_t node = 1; node < followers_.size(); ++node) {
      for (RankCommand command : commands) {
        if (edit_ != nullptr) edit_(static_cast<int>(node), &command);
        followers_[node].commands.push_back(std::move(command));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Follower {
    std::thread thread;
    std::deque<RankCommand> commands;
    absl::Status failure;
  };

  void Follow(int node) {
    Follower& own = followers_[static_cast<size_t>(node)];
    FollowerModel follower(model(node));
    model(node)->BindComputeThread();
    const auto has_more = [&] { return over_ || !own.commands.empty(); };
    while (true) {
      RankCommand command;
      {
        const absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(&has_more));
        if (own.commands.empty()) return;
        command = std::move(own.commands.front());
        own.commands.pop_front();
      }
      const absl::Status status = follower.Do(command);
      if (status.ok()) continue;
      model(node)->Abort(
          absl::Status(status.code(), "node " + std::to_string(node) + ": " +
                                          std::string(status.message())));
      const absl::MutexLock lock(&mu_);
      own.failure = status;
      return;
    }
  }

  kernels::NodeNetwork network_;
  const Edit edit_;
  std::vector<std::unique_ptr<TensorParallelModel>> models_;
  absl::Mutex mu_;
  std::vector<Follower> followers_;
  bool over_ = false;
  int sent_ = 0;
  std::unique_ptr<LeaderModel> leader_;
};

}  // namespace nacre::model

#endif  // TESTS_MODEL_RANKS_NODE_GROUP_H_
