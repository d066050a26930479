#include "kernels/node_collective.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/shared_memory_collective.h"

namespace nacre::kernels {
namespace {

void AddTo(const float* values, size_t count, float* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] += values[i];
}

// What the first rank of a node says to the other nodes.
class NodeExchange {
 public:
  explicit NodeExchange(NodeLink* link)
      : link_(link), nodes_(link->nodes()), leads_(link->node() == 0) {}

  // sum: this node's, then that of all
  absl::Status Sum(size_t count, float* sum) {
    const NodeCall call = Next(NodeCall::Kind::kSum, count);
    if (nodes_ == 2) return SumOfTwo(call, sum);
    if (!leads_) {
      NACRE_RETURN_IF_ERROR(link_->Send(0, call, sum));
      return link_->Receive(0, call, sum);
    }
    float* const received = Reserve(count * static_cast<size_t>(nodes_ - 1));
    const auto part = [&](int node) {
      return node == 0 ? sum : received + static_cast<size_t>(node - 1) * count;
    };
    for (int node = 1; node < nodes_; ++node) {
      NACRE_RETURN_IF_ERROR(link_->Receive(node, call, part(node)));
    }
    for (int step = 1; step < nodes_; step *= 2) {
      for (int node = 0; node < nodes_; node += 2 * step) {
        AddTo(part(node + step), count, part(node));
      }
    }
    return SendToAll(call, sum);
  }

  absl::Status Broadcast(size_t count, float* values) {
    const NodeCall call = Next(NodeCall::Kind::kBroadcast, count);
    return leads_ ? SendToAll(call, values) : link_->Receive(0, call, values);
  }

  // part [rows, cols] of this node, whole [rows, nodes * cols] of the leader
  absl::Status Gather(const float* part, size_t rows, size_t cols,
                      float* whole) {
    const NodeCall call = Next(NodeCall::Kind::kGather, rows * cols);
    if (!leads_) return link_->Send(0, call, part);
    Place(part, rows, cols, 0, whole);
    float* const received = Reserve(rows * cols);
    for (int node = 1; node < nodes_; ++node) {
      NACRE_RETURN_IF_ERROR(link_->Receive(node, call, received));
      Place(received, rows, cols, static_cast<size_t>(node), whole);
    }
    return absl::OkStatus();
  }

 private:
  NodeCall Next(NodeCall::Kind kind, size_t count) {
    return {++calls_, kind, count};
  }

  // One way, not there and back.
  absl::Status SumOfTwo(const NodeCall& call, float* sum) {
    const int other = leads_ ? 1 : 0;
    float* const received = Reserve(call.count);
    NACRE_RETURN_IF_ERROR(link_->Send(other, call, sum));
    NACRE_RETURN_IF_ERROR(link_->Receive(other, call, received));
    AddTo(received, call.count, sum);
    return absl::OkStatus();
  }

  absl::Status SendToAll(const NodeCall& call, const float* values) {
    for (int node = 1; node < nodes_; ++node) {
      NACRE_RETURN_IF_ERROR(link_->Send(node, call, values));
    }
    return absl::OkStatus();
  }

  // A node's columns beside the others'.
  void Place(const float* part, size_t rows, size_t cols, size_t node,
             float* whole) const {
    const size_t width = static_cast<size_t>(nodes_) * cols;
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(whole + row * width + node * cols, part + row * cols,
                  cols * sizeof(float));
    }
  }

  float* Reserve(size_t count) {
    if (received_.size() < count) received_.resize(count);
    return received_.data();
  }

  NodeLink* const link_;
  const int nodes_;
  const bool leads_;
  uint64_t calls_ = 0;
  std::vector<float> received_;
};

class NodeCollective : public Collective {
 public:
  NodeCollective(std::unique_ptr<Collective> local, NodeLink* link)
      : local_(std::move(local)),
        link_(link),
        exchange_(local_->rank() == 0 ? std::make_unique<NodeExchange>(link)
                                      : nullptr) {}

  int rank() const override {
    return link_->node() * local_->ranks() + local_->rank();
  }
  int ranks() const override { return link_->nodes() * local_->ranks(); }

  absl::Status AllReduce(const float* part, size_t count, float* sum) override {
    NACRE_RETURN_IF_ERROR(local_->AllReduce(part, count, sum));
    if (count == 0) return absl::OkStatus();
    if (exchange_ != nullptr) {
      NACRE_RETURN_IF_ERROR(Checked(exchange_->Sum(count, sum)));
    }
    return local_->Broadcast(sum, count);
  }

  absl::Status Broadcast(float* values, size_t count) override {
    if (count > 0 && exchange_ != nullptr) {
      NACRE_RETURN_IF_ERROR(Checked(exchange_->Broadcast(count, values)));
    }
    return local_->Broadcast(values, count);
  }

  absl::Status Gather(const float* part, int rows, int cols,
                      float* whole) override {
    const size_t height = static_cast<size_t>(rows);
    const size_t width =
        static_cast<size_t>(cols) * static_cast<size_t>(local_->ranks());
    if (exchange_ != nullptr && gathered_.size() < height * width) {
      gathered_.resize(height * width);
    }
    NACRE_RETURN_IF_ERROR(local_->Gather(part, rows, cols, gathered_.data()));
    if (height * width == 0) return absl::OkStatus();
    if (exchange_ != nullptr) {
      NACRE_RETURN_IF_ERROR(
          Checked(exchange_->Gather(gathered_.data(), height, width, whole)));
    }
    // A step that fails with it must not have ended well on the others.
    return local_->Broadcast(nullptr, 0);
  }

  // Also what the link alone has heard of: ranks that meet on devices ask it
  // nothing.
  absl::Status Outcome() override {
    const absl::Status lost = link_->failure();
    if (!lost.ok()) local_->Abort(lost);
    return local_->Outcome();
  }

  void Abort(const absl::Status& reason) override {
    static_cast<void>(Outcome());  // a failure of the link came first
    local_->Abort(reason);
    link_->Abort(reason);
  }

 private:
  // The other ranks of this node wait for its first one.
  absl::Status Checked(const absl::Status& status) {
    if (!status.ok()) local_->Abort(status);
    return status;
  }

  const std::unique_ptr<Collective> local_;
  NodeLink* const link_;
  const std::unique_ptr<NodeExchange>
      exchange_;                 // of the first rank; else null
  std::vector<float> gathered_;  // likewise
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeNodeCollectives(int ranks,
                                                             NodeLink* link) {
  NACRE_CHECK(ranks * link->nodes() <= kMostRanks, "too many ranks");
  std::vector<std::unique_ptr<Collective>> collectives;
  collectives.reserve(static_cast<size_t>(ranks));
  for (auto& local : MakeSharedMemoryCollectives(ranks)) {
    collectives.push_back(
        std::make_unique<NodeCollective>(std::move(local), link));
  }
  return collectives;
}

}  // namespace nacre::kernels
