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
  }

  NodeLink* link(int node) { return links_[static_cast<size_t>(node)].get(); }

  // What `from` would send that is at another call, or out of its mind.
  void Plant(int from, int to, const NodeCall& call,
             std::vector<float> values) {
    const absl::MutexLock lock(&mu_);
    Inbox(from, to).emplace_back(call, std::move(values));
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
};

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_NODE_NETWORK_H_
