// Links between nodes for tests: threads of one process that hand each other
// copies.
//
// Thread-safe.

#ifndef TESTS_KERNELS_NODE_NETWORK_H_
#define TESTS_KERNELS_NODE_NETWORK_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/node_link.h"

namespace nacre::kernels {

class NodeNetwork {
 public:
  explicit NodeNetwork(int nodes, bool is_encrypted = false)
      : is_encrypted_(is_encrypted) {
    for (int node = 0; node < nodes; ++node) {
      links_.push_back(std::make_unique<Link>(this, node, nodes));
    }
    inboxes_.resize(static_cast<size_t>(nodes * nodes));
    said_.resize(static_cast<size_t>(nodes), {{}, absl::Now()});
  }

  NodeLink* link(int node) { return links_[static_cast<size_t>(node)].get(); }

  // What `from` would send that is at another call, or out of its mind.
  void Plant(int from, int to, const NodeCall& call,
             std::vector<float> values) {
    const absl::MutexLock lock(&mu_);
    Inbox(from, to).emplace_back(call, std::move(values));
  }
  // What that node says of its progress is lost.
  void Silence(int node) {
    const absl::MutexLock lock(&mu_);
    silent_ = node;
  }
  void Lose(const absl::Status& reason) {
    const absl::MutexLock lock(&mu_);
    if (reason_.ok()) reason_ = reason;
  }

 private:
  using Sent = std::pair<NodeCall, std::vector<float>>;

  class Link : public NodeLink {
   public:
    Link(NodeNetwork* network, int node, int nodes)
        : network_(network), node_(node), nodes_(nodes) {}

    int node() const override { return node_; }
    int nodes() const override { return nodes_; }
    bool is_encrypted() const override { return network_->is_encrypted_; }
    absl::Status Send(int to, const NodeCall& call,
                      const float* values) override {
      const absl::MutexLock lock(&network_->mu_);
      if (!network_->reason_.ok()) return network_->reason_;
      network_->Inbox(node_, to).emplace_back(
          call, std::vector<float>(values, values + call.count));
      return absl::OkStatus();
    }
    absl::Status Receive(int from, const NodeCall& call,
                         float* values) override {
      const absl::MutexLock lock(&network_->mu_);
      std::deque<Sent>& inbox = network_->Inbox(from, node_);
      const auto has_come = [&] {
        return !inbox.empty() || !network_->reason_.ok();
      };
      network_->mu_.Await(absl::Condition(&has_come));
      if (!network_->reason_.ok()) return network_->reason_;
      const Sent sent = std::move(inbox.front());
      inbox.pop_front();
      const absl::Status same = CheckSameCall(from, sent.first, call);
      if (same.ok()) {
        std::copy(sent.second.begin(), sent.second.end(), values);
      }
      return same;
    }
    void Abort(const absl::Status& reason) override { network_->Lose(reason); }
    absl::Status failure() const override {
      const absl::MutexLock lock(&network_->mu_);
      return network_->reason_;
    }
    void SayProgress(const std::vector<RankProgress>& ranks) override {
      const absl::MutexLock lock(&network_->mu_);
      if (node_ != 0 && node_ != network_->silent_) {
        network_->said_[static_cast<size_t>(node_)] = {ranks, absl::Now()};
      }
    }
    std::vector<NodeProgress> Progress() const override {
      std::vector<NodeProgress> all;
      const absl::MutexLock lock(&network_->mu_);
      for (int node = 1; node < nodes_ && node_ == 0; ++node) {
        const auto& [ranks, when] = network_->said_[static_cast<size_t>(node)];
        all.push_back(
            {node, ranks, absl::ToChronoMilliseconds(absl::Now() - when)});
      }
      return all;
    }

   private:
    NodeNetwork* const network_;
    const int node_;
    const int nodes_;
  };

  std::deque<Sent>& Inbox(int from, int to) {
    return inboxes_[static_cast<size_t>(from) * links_.size() +
                    static_cast<size_t>(to)];
  }

  const bool is_encrypted_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::deque<Sent>> inboxes_;
  absl::Status reason_;
  int silent_ = -1;
  std::vector<std::pair<std::vector<RankProgress>, absl::Time>> said_;
};

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_NODE_NETWORK_H_
