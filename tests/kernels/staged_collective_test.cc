#include "kernels/staged_collective.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_memory.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using Values = std::vector<float>;

// A device that only counts its waits, or fails.
class Device : public MemoryOps {
 public:
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateHostBuffer(bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* device) override {
    std::memcpy(device, host, bytes);
  }
  // The copy is there after a wait.
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    queued_.push_back({device, bytes, host});
  }
  absl::Status Synchronize() override {
    for (const Queued& copy : queued_) {
      std::memcpy(copy.host, copy.device, copy.bytes);
    }
    queued_.clear();
    return failure_;
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(
      size_t bytes) override {
    if (!no_room_.ok()) return no_room_;
    return AllocateHostBuffer(bytes);
  }

  void FailWaits(const absl::Status& status) { failure_ = status; }
  void FailAllocations(const absl::Status& status) { no_room_ = status; }

 private:
  struct Queued {
    const void* device;
    size_t bytes;
    void* host;
  };
  std::vector<Queued> queued_;
  absl::Status failure_;
  absl::Status no_room_;
};

struct Ranks {
  explicit Ranks(int count)
      : host(MakeSharedMemoryCollectives(count)),
        devices(static_cast<size_t>(count)) {
    for (size_t rank = 0; rank < host.size(); ++rank) {
      staged.push_back(
          std::make_unique<StagedCollective>(host[rank].get(), &devices[rank]));
    }
  }

  std::vector<std::unique_ptr<Collective>> host;
  std::vector<Device> devices;
  std::vector<std::unique_ptr<StagedCollective>> staged;
};

TEST(StagedCollectiveTest, DoesWhatThatOfTheHostDoes) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.staged[3]->rank(), 3);
  EXPECT_EQ(ranks.staged[3]->ranks(), 4);
  OnEveryRank(4, [&](int rank) {
    StagedCollective& own = *ranks.staged[static_cast<size_t>(rank)];
    const auto value = static_cast<float>(rank + 1);
    for (const size_t count : {size_t{2}, size_t{7}, size_t{3}}) {
      const Values part(count, value);
      Values sum(count);
      EXPECT_EQ(own.AllReduce(part.data(), count, sum.data()),
                absl::OkStatus());
      EXPECT_EQ(sum, Values(count, 10.0f));
    }
    Values sent = {value, 2 * value};
    EXPECT_EQ(own.Broadcast(sent.data(), 2), absl::OkStatus());
    EXPECT_EQ(sent, Values({1, 2}));
    const Values part = {value, value + 10};  // a column of two rows
    Values whole(8);
    EXPECT_EQ(own.Gather(part.data(), 2, 1, rank == 0 ? whole.data() : nullptr),
              absl::OkStatus());
    if (rank == 0) {
      EXPECT_EQ(whole, Values({1, 2, 3, 4, 11, 12, 13, 14}));
    }
  });
}

// Of all ranks and for good, whatever fails on one.
TEST(StagedCollectiveTest, AFailureEndsAllRanksAndNamesTheOne) {
  const absl::Status lost = absl::InternalError("lost");
  const absl::Status expected = absl::InternalError("rank 1: lost");
  for (const bool is_room : {false, true}) {
    Ranks ranks(2);
    if (is_room) {
      ranks.devices[1].FailAllocations(lost);
    } else {
      ranks.devices[1].FailWaits(lost);
    }
    OnEveryRank(2, [&](int rank) {
      StagedCollective& own = *ranks.staged[static_cast<size_t>(rank)];
      Values part = {1}, sum = {0}, whole = {0, 0};
      EXPECT_EQ(own.AllReduce(part.data(), 1, sum.data()), expected);
      EXPECT_EQ(own.Broadcast(part.data(), 1), expected);
      EXPECT_EQ(own.Gather(part.data(), 1, 1, whole.data()), expected);
      EXPECT_EQ(sum, Values({0}));
    });
  }
}

TEST(StagedCollectiveTest, EndsWhenItIsToldTo) {
  Ranks ranks(2);
  const absl::Status reason = absl::CancelledError("no more");
  ranks.staged[1]->Abort(reason);
  Values values = {1};
  EXPECT_EQ(ranks.staged[0]->Broadcast(values.data(), 1), reason);
}

}  // namespace
}  // namespace nacre::kernels
