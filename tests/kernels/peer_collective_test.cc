// Ranks that meet on emulated devices in each other's memory: the bits of ranks
// that meet on the host, what waits for what, and the end of all ranks when one
// is late, dead or never there.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/cuda/peer_sums.h"
#include "kernels/peer_collectives.h"
#include "kernels/shared_memory_collective.h"
#include "kernels/staged_collective.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/device_values.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Values = std::vector<float>;
namespace emulation = cuda::emulation;

constexpr int kMost = static_cast<int>(cuda::kMostPeerValues);
// So long that no test waits for it.
constexpr PeerOptions kPatient = {std::chrono::minutes(10)};
constexpr PeerOptions kShort = {std::chrono::milliseconds(300)};

class PeerCollectiveTest : public ::testing::Test {
 protected:
  PeerCollectiveTest() {
    emulation::ResetDevice();
    emulation::settings.devices = kMostRanks;
  }
  ~PeerCollectiveTest() override {
    EXPECT_EQ(emulation::counts.used_bytes, 0u);
    emulation::ResetDevice();
  }
};

enum class By { kPeers, kHost };

struct Ranks {
  explicit Ranks(int count, By by = By::kPeers,
                 const PeerOptions& options = kPatient)
      : host(MakeSharedMemoryCollectives(count)) {
    std::vector<int> devices;
    for (int rank = 0; rank < count; ++rank) {
      BackendOptions device;
      device.kind = "cuda";
      device.device = rank;
      devices.push_back(rank);
      backends.push_back(*CreateBackend(device));
    }
    if (by == By::kPeers) {
      auto made = MakePeerCollectives(devices, host, backends, options);
      EXPECT_TRUE(made.ok()) << made.status();
      collectives = *std::move(made);
      return;
    }
    for (size_t rank = 0; rank < backends.size(); ++rank) {
      collectives.push_back(std::make_unique<StagedCollective>(
          host[rank].get(), backends[rank].get()));
    }
  }

  // task(backend, collective, rank) on a thread each.
  void OnEach(const std::function<void(Backend*, Collective*, size_t)>& task) {
    OnEveryRank(static_cast<int>(backends.size()), [&](int number) {
      const auto rank = static_cast<size_t>(number);
      backends[rank]->BindComputeThread();
      task(backends[rank].get(), collectives[rank].get(), rank);
    });
  }

  std::vector<std::unique_ptr<Collective>> host;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<Collective>> collectives;
};

Values Part(size_t rank, int count) {
  return RandomFloats(static_cast<size_t>(count),
                      static_cast<uint32_t>(rank) * 100 + 7);
}

// All calls for each of `counts`, with no wait between them: what each leaves.
std::vector<Values> AllCalls(Ranks& ranks, const std::vector<int>& counts) {
  const size_t num_ranks = ranks.backends.size();
  std::vector<std::vector<Values>> found(num_ranks);
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (const int count : counts) {
      const auto size = static_cast<size_t>(count);
      auto part = ToDevice(backend, Part(rank, count));
      auto sum = ToDevice(backend, Values(size));
      auto whole = ToDevice(backend, Values(rank == 0 ? size * num_ranks : 0));
      EXPECT_EQ(collective->AllReduce(part->f32(), size, sum->f32()),
                absl::OkStatus());
      const int rows = count % 3 == 0 ? 3 : 1;
      EXPECT_EQ(
          collective->Gather(part->f32(), rows, count / rows, whole->f32()),
          absl::OkStatus());
      EXPECT_EQ(collective->Broadcast(part->f32(), size), absl::OkStatus());
      for (auto* buffer : {&sum, &whole, &part}) {
        buffers.push_back(std::move(*buffer));
      }
    }
    EXPECT_TRUE(backend->Synchronize().ok());
    EXPECT_EQ(collective->Outcome(), absl::OkStatus());
    for (const auto& buffer : buffers) {
      found[rank].push_back(ToHost(backend, buffer.get()));
    }
  });
  std::vector<Values> all;
  for (auto& of_rank : found) {
    for (Values& values : of_rank) all.push_back(std::move(values));
  }
  return all;
}

TEST_F(PeerCollectiveTest, HasTheBitsOfRanksThatMeetOnTheHost) {
  const std::vector<int> counts = {1, 3, 4, 300, 1023, 1024, 1026, 5000};
  for (const int ranks : {2, 4, 8}) {
    Ranks by_peers(ranks);
    Ranks by_host(ranks, By::kHost);
    EXPECT_EQ(by_peers.collectives.back()->rank(), ranks - 1);
    EXPECT_EQ(by_peers.collectives.back()->ranks(), ranks);
    const std::vector<Values> expected = AllCalls(by_host, counts);
    const size_t downloaded = emulation::counts.downloaded_bytes;
    EXPECT_EQ(AllCalls(by_peers, counts), expected) << ranks << " ranks";
    // What the test looks at, and nothing of the ranks.
    size_t looked_at = 0;
    for (const Values& values : expected) looked_at += values.size() * 4;
    EXPECT_EQ(emulation::counts.downloaded_bytes - downloaded, looked_at);
  }
}

// Sums that fit are the devices'; larger ones go by the host.
TEST_F(PeerCollectiveTest, WhatIsLargeGoesByTheHost) {
  Ranks by_peers(2);
  Ranks by_host(2, By::kHost);
  emulation::counts.kernels.clear();
  const std::vector<int> at_most = {kMost - 1, kMost};
  EXPECT_EQ(AllCalls(by_peers, at_most), AllCalls(by_host, at_most));
  EXPECT_FALSE(emulation::counts.kernels.empty());
  const std::vector<int> more = {3 * (kMost / 3 + 1)};
  emulation::counts.kernels.clear();
  EXPECT_EQ(AllCalls(by_peers, more), AllCalls(by_host, more));
  EXPECT_EQ(emulation::counts.kernels.size(), 1u);  // that gathers, in pieces
}

TEST_F(PeerCollectiveTest, ManyRowsAreGatheredByTheHost) {
  std::vector<Values> wholes;
  for (const By by : {By::kPeers, By::kHost}) {
    for (const int rows : {kMostPeerRows, kMostPeerRows + 1}) {
      Ranks ranks(4, by);
      emulation::counts.kernels.clear();
      Values& whole_of_first = wholes.emplace_back();
      ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
        const auto part = ToDevice(backend, Part(rank, 5 * rows));
        const auto whole = ToDevice(backend, Values(part->size_bytes()));
        EXPECT_TRUE(
            collective->Gather(part->f32(), rows, 5, whole->f32()).ok());
        EXPECT_TRUE(backend->Synchronize().ok());
        if (rank == 0) whole_of_first = ToHost(backend, whole.get());
      });
      EXPECT_EQ(emulation::counts.kernels.size(),
                by == By::kPeers && rows == kMostPeerRows ? 1u : 0u);
    }
  }
  EXPECT_EQ(wholes[0], wholes[2]);
  EXPECT_EQ(wholes[1], wholes[3]);
}

// What a step of layers leaves on each rank.
std::vector<Values> Steps(Ranks& ranks, int steps) {
  constexpr int kCount = 700, kLayers = 5;
  std::vector<Values> found(ranks.backends.size());
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    const auto x = ToDevice(backend, Values(kCount));
    const auto y = ToDevice(backend, Values(kCount));
    for (int step = 0; step < steps; ++step) {
      const Values part = Part(rank + static_cast<size_t>(step), kCount);
      backend->CopyFromHost(part.data(), x->size_bytes(), x->data());
      backend->RunStep(1, [&] {
        EXPECT_TRUE(collective->Broadcast(x->f32(), kCount / 2).ok());
        for (int layer = 0; layer < kLayers; ++layer) {
          // Fewer and more blocks of the kernel in turn.
          const size_t count = layer % 2 == 0 ? kCount : 30;
          backend->Scale(x->f32(), kCount, 1.5f);
          EXPECT_TRUE(collective->AllReduce(x->f32(), count, y->f32()).ok());
          backend->Scale(y->f32(), kCount, 0.25f);
          backend->AddInPlace(x->f32(), y->f32(), kCount);
        }
      });
      EXPECT_TRUE(backend->Synchronize().ok());
      EXPECT_EQ(collective->Outcome(), absl::OkStatus());
    }
    found[rank] = ToHost(backend, x.get());
  });
  return found;
}

// All of a step is one graph, which comes again with other values.
TEST_F(PeerCollectiveTest, StepsAreGraphsWithNoWaitInBetween) {
  constexpr int kSteps = 6;
  for (const int count : {2, 8}) {
    Ranks by_host(count, By::kHost);
    const std::vector<Values> expected = Steps(by_host, kSteps);
    Ranks ranks(count);
    const int graphs = emulation::counts.graph_launches;
    const int waits = emulation::counts.waits;
    EXPECT_EQ(Steps(ranks, kSteps), expected);
    EXPECT_EQ(emulation::counts.graph_launches - graphs, count * (kSteps - 1));
    // At the end of each step, and for what the test reads.
    EXPECT_EQ(emulation::counts.waits - waits, count * (kSteps + 1));
  }
}

// What the emulated devices promise: a device that waits stands still, others
// go on, and are ahead of it at times.
TEST_F(PeerCollectiveTest, DevicesWaitForEachOther) {
  Ranks ranks(4);
  emulation::counts.stood_still = 0;
  emulation::counts.early_kernels.clear();
  for (int i = 0; i < 5; ++i) Steps(ranks, 2);
  EXPECT_GT(emulation::counts.stood_still, 20);
  EXPECT_FALSE(emulation::counts.early_kernels.empty());
}

// A kernel that starts before the one before it is done must wait for it.
TEST_F(PeerCollectiveTest, ASumThatDoesNotWaitForItsPartIsNoticed) {
  const auto sums = [](const void* late) {
    Ranks ranks(2);  // who notice it, too
    emulation::settings.late_wait = late;
    return Steps(ranks, 3);
  };
  emulation::counts.kernels.clear();
  {
    Ranks ranks(2);  // whose greeting is a sum
  }
  ASSERT_EQ(emulation::counts.kernels.size(), 1u);
  const void* const kernel = *emulation::counts.kernels.begin();
  const std::vector<Values> expected = sums(nullptr);
  EXPECT_EQ(sums(nullptr), expected);
  EXPECT_NE(sums(kernel), expected);
}

// When a rank is late, devices wait for it. The host does not, and it can queue
// the next step.
TEST_F(PeerCollectiveTest, LateRanksAreWaitedForByTheDevicesAlone) {
  constexpr int kCount = 50;
  Ranks ranks(4);
  std::atomic<int> queued = 0;
  std::vector<Values> found(4);
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    const auto part = ToDevice(backend, Values(kCount, 1.0f));
    const auto sum = ToDevice(backend, Values(kCount));
    if (rank == 2) {
      while (queued < 3) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(collective->AllReduce(part->f32(), kCount, sum->f32()).ok());
      backend->AddInPlace(part->f32(), sum->f32(), kCount);
    }
    ++queued;
    EXPECT_TRUE(backend->Synchronize().ok());
    EXPECT_EQ(collective->Outcome(), absl::OkStatus());
    found[rank] = ToHost(backend, part.get());
  });
  for (const Values& values : found) {
    EXPECT_EQ(values, Values(kCount, 125.0f));
  }
}

// Threads that have queued what they queue. Devices run what is queued on other
// ones: then no rank is late but by intent, however busy the machine is.
class Queued {
 public:
  void Say() { ++count_; }
  void WaitFor(size_t count) const {
    while (count_ < count) std::this_thread::yield();
  }

 private:
  std::atomic<size_t> count_ = 0;
};

// What ranks say of calls and a wait, but for one that does something else when
// they have queued.
std::vector<absl::Status> Outcomes(
    Ranks& ranks, size_t away,
    const std::function<void(Backend*, Collective*)>& instead) {
  Queued queued;
  const size_t others = ranks.backends.size() - 1;
  std::vector<absl::Status> outcomes(ranks.backends.size());
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    const auto part = ToDevice(backend, Values(6, 1.0f));
    const auto sum = ToDevice(backend, Values(6));
    if (rank == away) {
      queued.WaitFor(others);
      return instead(backend, collective);
    }
    absl::Status status;
    for (int i = 0; i < 3 && status.ok(); ++i) {
      status = collective->AllReduce(part->f32(), 6, sum->f32());
    }
    queued.Say();
    queued.WaitFor(others);
    const absl::Status device = backend->Synchronize();
    if (!device.ok()) {
      collective->Abort(FailureOfRank(static_cast<int>(rank), device));
    }
    const absl::Status last = collective->Outcome();
    EXPECT_TRUE(status.ok() || status == last) << status;
    // For good, also for what goes by the host.
    EXPECT_EQ(collective->Broadcast(part->f32(), 6), last);
    EXPECT_EQ(collective->AllReduce(part->f32(), cuda::kMostPeerValues + 1,
                                    sum->f32()),
              last);
    EXPECT_EQ(collective->Outcome(), last);
    outcomes[rank] = last;
  });
  return outcomes;
}

void ExpectAll(const std::vector<absl::Status>& outcomes, size_t away,
               absl::StatusCode code, const std::string& end) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (rank == away) continue;
    EXPECT_EQ(outcomes[rank].code(), code) << rank;
    EXPECT_THAT(std::string(outcomes[rank].message()), HasSubstr(end)) << rank;
    EXPECT_EQ(outcomes[rank], outcomes[away == 0 ? 1 : 0]);
  }
}

TEST_F(PeerCollectiveTest, ARankThatNeverComesEndsAllInTime) {
  for (const int count : {2, 4}) {
    Ranks ranks(count, By::kPeers, kShort);
    const auto outcomes = Outcomes(ranks, 1, [](Backend*, Collective*) {});
    ExpectAll(outcomes, 1, absl::StatusCode::kDeadlineExceeded,
              "has waited on its GPU for 300 ms for rank 1");
    // It hears of it when it comes.
    EXPECT_EQ(ranks.collectives[1]->Outcome(), outcomes[0]);
  }
}

// It stops in the middle: the others do not wait in each call after that.
TEST_F(PeerCollectiveTest, ARankThatStopsEndsAllAfterOneLimit) {
  Ranks ranks(4, By::kPeers, kShort);
  Queued queued;
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    const auto part = ToDevice(backend, Values(6, 1.0f));
    const auto sum = ToDevice(backend, Values(6));
    const int calls = rank == 3 ? 2 : 200;
    for (int i = 0; i < calls; ++i) {
      static_cast<void>(collective->AllReduce(part->f32(), 6, sum->f32()));
    }
    queued.Say();
    queued.WaitFor(4);
    EXPECT_TRUE(backend->Synchronize().ok());
    if (rank == 3) return;
    EXPECT_THAT(std::string(collective->Outcome().message()),
                HasSubstr("for rank 3"));
  });
}

TEST_F(PeerCollectiveTest, ARankThatDiesEndsAllAtOnce) {
  const absl::Status reason = absl::InternalError("rank 2: it has no room");
  Ranks ranks(4);
  const auto outcomes =
      Outcomes(ranks, 2, [&](Backend*, Collective* collective) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        collective->Abort(reason);
        collective->Abort(absl::InternalError("rank 2: and more"));
      });
  ExpectAll(outcomes, 2, absl::StatusCode::kInternal, "it has no room");
}

TEST_F(PeerCollectiveTest, ARankThatIsDestroyedEndsAll) {
  Ranks ranks(4);
  const auto outcomes = Outcomes(
      ranks, 1, [&](Backend*, Collective*) { ranks.collectives[1] = nullptr; });
  ExpectAll(outcomes, 1, absl::StatusCode::kAborted, "rank 1 is gone");
}

TEST_F(PeerCollectiveTest, ADeviceThatFailsEndsAll) {
  Ranks ranks(4);
  emulation::settings.fault = cudaErrorIllegalAddress;
  emulation::settings.fault_device = 3;
  const auto outcomes =
      Outcomes(ranks, 3, [&](Backend* backend, Collective* collective) {
        const absl::Status status = backend->Synchronize();
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
        collective->Abort(FailureOfRank(3, status));
      });
  ExpectAll(outcomes, 3, absl::StatusCode::kInternal, "rank 3: the device");
}

TEST_F(PeerCollectiveTest, ALaunchThatFailsEndsAll) {
  Ranks ranks(2);
  std::atomic<bool> waits = false;
  const auto outcomes =
      Outcomes(ranks, 0, [&](Backend* backend, Collective* collective) {
        const auto part = ToDevice(backend, Values(6, 1.0f));
        const auto sum = ToDevice(backend, Values(6));
        emulation::settings.next_launch = cudaErrorInvalidValue;
        const absl::Status status =
            collective->AllReduce(part->f32(), 6, sum->f32());
        EXPECT_THAT(std::string(status.message()),
                    StartsWith("rank 0: a kernel that meets its peers: "));
        waits = true;
      });
  EXPECT_TRUE(waits);
  ExpectAll(outcomes, 0, absl::StatusCode::kInternal, "a kernel that meets");
}

// Others may still read what a rank gave when that one is destroyed.
TEST_F(PeerCollectiveTest, MemoryStaysUntilNoDeviceUsesIt) {
  for (const size_t first : {size_t{0}, size_t{1}}) {
    Ranks ranks(2, By::kPeers, kShort);
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (size_t rank = 0; rank < 2; ++rank) {
      Backend* const backend = ranks.backends[rank].get();
      backend->BindComputeThread();
      buffers.push_back(ToDevice(backend, Values(6, 1.0f)));
      buffers.push_back(ToDevice(backend, Values(6)));
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(ranks.collectives[rank]
                        ->AllReduce(buffers[2 * rank]->f32(), 6,
                                    buffers[2 * rank + 1]->f32())
                        .ok());
      }
    }
    ranks.collectives[first] = nullptr;
    ranks.collectives[1 - first] = nullptr;
    EXPECT_EQ(emulation::Unfinished(), 0);
    buffers.clear();
  }
}

// As a checkpoint of few heads has it: what no GPU here allows is said.
TEST_F(PeerCollectiveTest, SaysWhatItLacks) {
  const auto said = [](const std::vector<int>& devices) {
    const auto host =
        MakeSharedMemoryCollectives(static_cast<int>(devices.size()));
    std::vector<std::unique_ptr<Backend>> backends;
    BackendOptions options;
    options.kind = "cuda";
    for (const int device : devices) {
      options.device = device;
      backends.push_back(*CreateBackend(options));
    }
    return std::string(MakePeerCollectives(devices, host, backends, kShort)
                           .status()
                           .message());
  };
  EXPECT_EQ(said({0}), "one rank has no peers");
  EXPECT_EQ(said({0, 3}), "");
  EXPECT_EQ(said({1, 1}), "two ranks have device 1, each needs one of its own");
  emulation::settings.strangers = {{5, 2}};
  EXPECT_EQ(said({2, 3, 4, 5}), "device 5 cannot read the memory of device 2");
  EXPECT_EQ(said({2, 3}), "");
}

}  // namespace
}  // namespace nacre::kernels
