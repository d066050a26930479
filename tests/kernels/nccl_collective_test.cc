// Ranks that meet on emulated devices by a libnccl of the tests: the bits of
// ranks that meet on the host, what waits for what, and the end of all ranks
// when one fails in any way.

#include "kernels/nccl_collective.h"

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
#include "kernels/nccl_group.h"
#include "kernels/shared_memory_collective.h"
#include "kernels/staged_collective.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#include "tests/kernels/device_values.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::AnyOf;
using ::testing::MatchesRegex;
using ::testing::StartsWith;
using Values = std::vector<float>;

// So long that no test waits for it.
constexpr NcclGroupOptions kPatient = {std::chrono::minutes(10),
                                       std::chrono::milliseconds(2)};
constexpr NcclGroupOptions kShort = {std::chrono::milliseconds(300),
                                     std::chrono::milliseconds(2)};
// That what is to end in time does, also on a busy machine.
constexpr NcclGroupOptions kLonger = {std::chrono::seconds(3),
                                      std::chrono::milliseconds(2)};

class NcclCollectiveTest : public ::testing::Test {
 protected:
  NcclCollectiveTest() {
    cuda::emulation::ResetDevice();
    cuda::emulation::settings.devices = kMostRanks;
  }
  ~NcclCollectiveTest() override {
    EXPECT_EQ(nccl_->comms, 0);
    EXPECT_EQ(cuda::emulation::counts.used_bytes, 0u);
    cuda::emulation::ResetDevice();
  }

  cuda::NcclLibraryState* const nccl_ = cuda::LoadNcclOfTests();
};

NcclGroup::Rank OnDevice(int rank) {
  auto api = OpenNccl({.device = rank, .library = NACRE_NCCL_LIBRARY});
  EXPECT_TRUE(api.ok()) << api.status();
  return {rank, *std::move(api)};
}

std::string NewId() {
  const NcclGroup::Rank rank = OnDevice(0);
  EXPECT_TRUE(rank.api->BindThread().ok());
  return *rank.api->GetUniqueId();
}

// One rank with what it computes on.
struct Rank {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Collective> collective;
};

// The ranks of one process.
struct Ranks {
  enum class By { kNccl, kHost };

  explicit Ranks(int count, By by = By::kNccl,
                 const NcclGroupOptions& options = kPatient,
                 size_t scratch = NcclCollective::kMostScratch)
      : host(MakeSharedMemoryCollectives(count)) {
    std::vector<NcclGroup::Rank> own;
    for (int rank = 0; rank < count; ++rank) {
      BackendOptions device;
      device.kind = "cuda";
      device.device = rank;
      all.push_back({*CreateBackend(device), nullptr});
      if (by == By::kNccl) own.push_back(OnDevice(rank));
    }
    if (by == By::kNccl) {
      auto joined = NcclGroup::Join(NewId(), count, std::move(own), options);
      EXPECT_TRUE(joined.ok()) << joined.status();
      group = *std::move(joined);
    }
    for (size_t rank = 0; rank < all.size(); ++rank) {
      Backend* const backend = all[rank].backend.get();
      Collective* const of_host = host[rank].get();
      if (by == By::kNccl) {
        all[rank].collective = std::make_unique<NcclCollective>(
            group, rank, backend, of_host, scratch);
      } else {
        all[rank].collective =
            std::make_unique<StagedCollective>(of_host, backend);
      }
    }
  }

  // task(rank, its number) on a thread each.
  void OnEach(const std::function<void(Rank&, int)>& task) {
    OnEveryRank(static_cast<int>(all.size()), [&](int number) {
      Rank& rank = all[static_cast<size_t>(number)];
      rank.backend->BindComputeThread();
      task(rank, number);
    });
  }

  std::vector<std::unique_ptr<Collective>> host;
  std::shared_ptr<NcclGroup> group;
  std::vector<Rank> all;
};

Values Part(int rank, size_t count) {
  return RandomFloats(count, static_cast<uint32_t>(rank) * 100 + 7);
}

// All calls, one after the other with no wait between them: what each leaves.
std::vector<Values> AllCalls(Ranks& ranks, int count) {
  std::vector<Values> found(3 * ranks.all.size());
  ranks.OnEach([&](Rank& rank, int number) {
    Backend* const backend = rank.backend.get();
    Collective* const collective = rank.collective.get();
    const auto part =
        ToDevice(backend, Part(number, static_cast<size_t>(count)));
    const auto sum = ToDevice(backend, Values(part->size_bytes() / 4));
    const auto whole =
        ToDevice(backend, Values(static_cast<size_t>(number == 0 ? count : 0) *
                                 ranks.all.size()));
    EXPECT_EQ(
        collective->AllReduce(part->f32(), sum->size_bytes() / 4, sum->f32()),
        absl::OkStatus());
    // Rows of this many columns; of one row there is nothing to lay beside.
    const int cols = count % 3 == 0 ? count / 3 : count;
    EXPECT_EQ(collective->Gather(part->f32(), count / cols, cols, whole->f32()),
              absl::OkStatus());
    EXPECT_EQ(collective->Broadcast(part->f32(), part->size_bytes() / 4),
              absl::OkStatus());
    EXPECT_TRUE(backend->Synchronize().ok());
    EXPECT_EQ(collective->Outcome(), absl::OkStatus());
    const size_t at = 3 * static_cast<size_t>(number);
    found[at] = ToHost(backend, sum.get());
    found[at + 1] = ToHost(backend, part.get());
    if (number == 0) found[at + 2] = ToHost(backend, whole.get());
  });
  return found;
}

TEST_F(NcclCollectiveTest, HasTheBitsOfRanksThatMeetOnTheHost) {
  for (const int ranks : {1, 2, 4, 8}) {
    Ranks by_nccl(ranks);
    Ranks by_host(ranks, Ranks::By::kHost);
    EXPECT_EQ(by_nccl.all.back().collective->rank(), ranks - 1);
    EXPECT_EQ(by_nccl.all.back().collective->ranks(), ranks);
    for (const int count : {1, 3, 300, 1000}) {
      EXPECT_EQ(AllCalls(by_nccl, count), AllCalls(by_host, count))
          << ranks << " ranks, " << count << " values";
    }
  }
}

// Scratch for fewer values than there are, and rows for several groups.
TEST_F(NcclCollectiveTest, WhatIsLargeGoesInPieces) {
  Ranks by_nccl(4, Ranks::By::kNccl, kPatient, /*scratch=*/4 * 4 * 100);
  Ranks by_host(4, Ranks::By::kHost);
  const int queued = nccl_->queued;
  EXPECT_EQ(AllCalls(by_nccl, 750), AllCalls(by_host, 750));
  EXPECT_EQ(nccl_->queued - queued, 4 * (8 + 1 + 1));
  constexpr int kRows = 2 * NcclCollective::kMostRows + 7;
  std::vector<Values> wholes(2);
  for (size_t i = 0; i < 2; ++i) {
    Ranks& ranks = i == 0 ? by_nccl : by_host;
    ranks.OnEach([&](Rank& rank, int number) {
      const auto part = ToDevice(rank.backend.get(), Part(number, 2 * kRows));
      const auto whole =
          ToDevice(rank.backend.get(), Values(size_t{4} * 2 * kRows));
      EXPECT_TRUE(
          rank.collective->Gather(part->f32(), kRows, 2, whole->f32()).ok());
      EXPECT_TRUE(rank.backend->Synchronize().ok());
      if (number == 0) wholes[i] = ToHost(rank.backend.get(), whole.get());
    });
  }
  EXPECT_EQ(wholes[0], wholes[1]);
}

// In a step kernels are recorded. What they leave is in the sum, and the sum in
// what comes after it, with no wait of the host; scratch serves one sum after
// the other.
TEST_F(NcclCollectiveTest, KeepsItsPlaceBetweenTheKernelsOfAStep) {
  constexpr int kCount = 700, kLayers = 5, kSteps = 4, kRanks = 4;
  constexpr int kKernels = 9;  // enough for a graph
  Ranks ranks(kRanks);
  std::vector<Values> found(kRanks);
  ranks.OnEach([&](Rank& rank, int number) {
    Backend* const backend = rank.backend.get();
    const auto x = ToDevice(backend, Values(kCount));
    const auto y = ToDevice(backend, Values(kCount));
    for (int step = 0; step < kSteps; ++step) {
      const Values part = Part(number, kCount);
      backend->CopyFromHost(part.data(), x->size_bytes(), x->data());
      backend->RunStep(1, [&] {
        for (int layer = 0; layer < kLayers; ++layer) {
          for (int i = 0; i < kKernels; ++i) {
            backend->Scale(x->f32(), kCount, 1.5f);
          }
          EXPECT_TRUE(
              rank.collective->AllReduce(x->f32(), kCount, y->f32()).ok());
          for (int i = 0; i < kKernels; ++i) {
            backend->Scale(y->f32(), kCount, 0.5f);
          }
          backend->AddInPlace(x->f32(), y->f32(), kCount);
        }
      });
      EXPECT_TRUE(backend->Synchronize().ok());
    }
    found[static_cast<size_t>(number)] = ToHost(backend, x.get());
  });
  // Each list of kernels between two sums is one.
  EXPECT_GE(cuda::emulation::counts.graph_launches,
            kRanks * (kSteps - 1) * kLayers);
  std::vector<Values> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    expected.push_back(Part(rank, kCount));
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < kCount; ++i) {
      for (Values& x : expected) {
        for (int j = 0; j < kKernels; ++j) x[i] *= 1.5f;
      }
      float sum =
          (expected[0][i] + expected[1][i]) + (expected[2][i] + expected[3][i]);
      for (int j = 0; j < kKernels; ++j) sum *= 0.5f;
      for (Values& x : expected) x[i] += sum;
    }
  }
  EXPECT_EQ(found, expected);
}

// What the emulated devices promise: the kernel that adds may start while parts
// are on their way, and must wait for them.
TEST_F(NcclCollectiveTest, ASumThatDoesNotWaitForThePartsIsNoticed) {
  // Each time in new scratch, which does not hold these parts yet.
  const auto sums = [] {
    Ranks ranks(4);
    std::vector<Values> found(4);
    ranks.OnEach([&](Rank& rank, int number) {
      constexpr size_t kCount = 1000;
      Backend* const backend = rank.backend.get();
      const auto part = ToDevice(backend, Part(number, kCount));
      const auto sum = ToDevice(backend, Values(kCount));
      EXPECT_TRUE(
          rank.collective->AllReduce(part->f32(), kCount, sum->f32()).ok());
      EXPECT_TRUE(backend->Synchronize().ok());
      found[static_cast<size_t>(number)] = ToHost(backend, sum.get());
    });
    return found;
  };
  const std::vector<Values> expected = sums();
  ASSERT_EQ(cuda::emulation::counts.kernels.size(), 1u);
  EXPECT_EQ(cuda::emulation::counts.early_kernels,
            cuda::emulation::counts.kernels);
  EXPECT_EQ(sums(), expected);
  cuda::emulation::settings.late_wait =
      *cuda::emulation::counts.kernels.begin();
  EXPECT_NE(sums(), expected);
}

// Neither the host waits for what is late, nor what it queues next.
TEST_F(NcclCollectiveTest, LateValuesAreWaitedForByTheDevicesAlone) {
  constexpr int kCount = 50;
  Ranks ranks(4);
  nccl_->holds_values = true;
  std::vector<std::unique_ptr<Buffer>> parts(4), sums(4);
  ranks.OnEach([&](Rank& rank, int number) {
    const size_t at = static_cast<size_t>(number);
    parts[at] = ToDevice(rank.backend.get(), Values(kCount, 1.0f));
    sums[at] = ToDevice(rank.backend.get(), Values(kCount));
  });
  const int waits = cuda::emulation::counts.waits;
  ranks.OnEach([&](Rank& rank, int number) {
    const size_t at = static_cast<size_t>(number);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(
          rank.collective->AllReduce(parts[at]->f32(), kCount, sums[at]->f32())
              .ok());
      rank.backend->AddInPlace(parts[at]->f32(), sums[at]->f32(), kCount);
    }
    EXPECT_TRUE(rank.collective->Broadcast(parts[at]->f32(), kCount).ok());
  });
  EXPECT_EQ(cuda::emulation::counts.waits, waits);
  std::thread late([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    nccl_->holds_values = false;
  });
  ranks.OnEach([&](Rank& rank, int number) {
    EXPECT_TRUE(rank.backend->Synchronize().ok());
    EXPECT_EQ(rank.collective->Outcome(), absl::OkStatus());
    const size_t at = static_cast<size_t>(number);
    EXPECT_EQ(ToHost(rank.backend.get(), parts[at].get()),
              Values(kCount, 125.0f));
  });
  late.join();
  parts.clear();
  sums.clear();
}

// What each rank says of three calls and a wait.
std::vector<absl::Status> Outcomes(Ranks& ranks, int away = -1) {
  std::vector<absl::Status> outcomes(ranks.all.size());
  ranks.OnEach([&](Rank& rank, int number) {
    if (number == away) return;
    const auto part = ToDevice(rank.backend.get(), Values(6, 1.0f));
    const auto all = ToDevice(rank.backend.get(), Values(6 * 8));
    Collective& collective = *rank.collective;
    absl::Status status = collective.AllReduce(part->f32(), 6, all->f32());
    if (status.ok()) status = collective.Broadcast(part->f32(), 6);
    if (status.ok()) status = collective.Gather(part->f32(), 2, 3, all->f32());
    const absl::Status device = rank.backend->Synchronize();
    if (!device.ok()) {
      collective.Abort(FailureOfRank(number, device));
    }
    const absl::Status last = collective.Outcome();
    EXPECT_TRUE(status.ok() || status == last) << status;
    // For good.
    EXPECT_TRUE(last.ok() || collective.Broadcast(part->f32(), 6) == last);
    outcomes[static_cast<size_t>(number)] = last;
  });
  return outcomes;
}

void ExpectAll(const std::vector<absl::Status>& outcomes,
               const std::string& reason, int away = -1) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (static_cast<int>(rank) == away) continue;
    EXPECT_FALSE(outcomes[rank].ok()) << rank;
    EXPECT_EQ(outcomes[rank].message(), reason) << rank;
  }
}

// Of every call of every rank that can fail.
TEST_F(NcclCollectiveTest, ACallThatFailsEndsAllRanks) {
  int first = 0, last = 0;
  {
    Ranks ranks(2);
    first = nccl_->calls;
    for (const absl::Status& outcome : Outcomes(ranks)) {
      EXPECT_EQ(outcome, absl::OkStatus());
    }
    last = nccl_->calls;
  }
  EXPECT_EQ(last - first, 16);
  for (int call = first; call < last; ++call) {
    cuda::LoadNcclOfTests();
    Ranks ranks(2);
    ASSERT_EQ(nccl_->calls, first);
    nccl_->failing_call = call;
    Outcomes(ranks);
    // Rank 1 needs nothing of rank 0 in the end, and may have been through
    // before that one failed.
    std::vector<absl::Status> outcomes;
    for (const Rank& rank : ranks.all) {
      outcomes.push_back(rank.collective->Outcome());
    }
    ExpectAll(outcomes, std::string(outcomes[0].message()));
    EXPECT_THAT(std::string(outcomes[0].message()),
                AnyOf(StartsWith("rank 0: nccl"), StartsWith("rank 1: nccl")));
    EXPECT_EQ(nccl_->aborts, 2);
  }
}

TEST_F(NcclCollectiveTest, AnErrorThatNcclReportsEndsAllRanks) {
  Ranks ranks(4);
  nccl_->holds_values = true;  // all wait
  nccl_->last_error = "socket closed";
  std::thread error([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    nccl_->async_rank = 2;
    nccl_->async_error = ncclRemoteError;
  });
  ExpectAll(Outcomes(ranks),
            "rank 2: the communicator: remote process exited: socket closed");
  error.join();
  EXPECT_EQ(nccl_->aborts, 4);
}

TEST_F(NcclCollectiveTest, WhatIsLostIsWaitedForWithinTheLimit) {
  for (const int call : {0, 1, 2}) {
    cuda::LoadNcclOfTests();
    Ranks ranks(2, Ranks::By::kNccl, kShort);
    nccl_->lost_rank = 1;
    nccl_->lost_call = call;
    const auto outcomes = Outcomes(ranks);
    EXPECT_EQ(outcomes[0].code(), absl::StatusCode::kDeadlineExceeded) << call;
    EXPECT_THAT(
        std::string(outcomes[0].message()),
        MatchesRegex(call == 0   ? "ranks 0, 1 have waited for .* ms in "
                                   "call 1, an all-gather of 24 bytes, "
                                   "which all have made"
                     : call == 1 ? "ranks 0, 1 have waited for .* ms in call "
                                   "2, a broadcast of 24 bytes, which all have "
                                   "made"
                                 : "rank 0 has waited for .* ms in call 3, a "
                                   "gather of 24 bytes, which all have made"));
    // A rank that has sent is done, and may be through before the other gives
    // up.
    if (call == 2 && outcomes[1].ok()) continue;
    EXPECT_EQ(outcomes[1], outcomes[0]) << call;
  }
}

TEST_F(NcclCollectiveTest, ARankThatStaysAwayIsWaitedForWithinTheLimit) {
  Ranks ranks(4, Ranks::By::kNccl, kShort);
  const auto outcomes = Outcomes(ranks, /*away=*/3);
  EXPECT_EQ(outcomes[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(outcomes[0].message()),
              MatchesRegex("ranks 0, 1, 2 have waited for .* ms in call 1, an "
                           "all-gather of 24 bytes, for rank 3, which has made "
                           "0"));
  ExpectAll(outcomes, std::string(outcomes[0].message()), /*away=*/3);
  EXPECT_EQ(ranks.all[3].collective->Outcome(), outcomes[0]);
}

TEST_F(NcclCollectiveTest, AnAbortEndsAllRanksAlsoThoseThatWait) {
  Ranks ranks(4);
  nccl_->holds_values = true;
  const absl::Status reason = absl::DataLossError("one has had enough");
  std::thread abort([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks.all[1].collective->Abort(reason);
    ranks.all[2].collective->Abort(absl::InternalError("another reason"));
  });
  for (const absl::Status& outcome : Outcomes(ranks)) {
    EXPECT_EQ(outcome, reason);
  }
  abort.join();
  // Where they meet on the host, too.
  EXPECT_EQ(ranks.host[3]->Broadcast(nullptr, 0), reason);
}

TEST_F(NcclCollectiveTest, ARankThatIsGoneEndsTheOthers) {
  Ranks ranks(2);
  ranks.all[1].collective.reset();
  EXPECT_EQ(ranks.all[0].collective->Outcome(),
            absl::AbortedError("rank 1 is gone"));
}

TEST_F(NcclCollectiveTest, ADeviceWithoutRoomEndsAllRanks) {
  cuda::emulation::settings.memory_bytes = size_t{16} << 20;
  Ranks ranks(2);
  const auto taken = *ranks.all[1].backend->Allocate(
      static_cast<size_t>(ranks.all[1].backend->Memory()->free) -
      (size_t{3} << 20));
  std::vector<absl::Status> outcomes(2);
  ranks.OnEach([&](Rank& rank, int number) {
    constexpr size_t kCount = size_t{1} << 18;
    const auto part = ToDevice(rank.backend.get(), Values(kCount));
    const auto sum = ToDevice(rank.backend.get(), Values(kCount));
    outcomes[static_cast<size_t>(number)] =
        rank.collective->AllReduce(part->f32(), kCount, sum->f32());
    EXPECT_TRUE(rank.backend->Synchronize().ok());
    outcomes[static_cast<size_t>(number)].Update(rank.collective->Outcome());
  });
  EXPECT_EQ(outcomes[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outcomes[0].message()),
              StartsWith("rank 1: no room for 2097152 bytes"));
  EXPECT_EQ(outcomes[1], outcomes[0]);
}

TEST_F(NcclCollectiveTest, RanksThatDoNotJoinAreWaitedForWithinTheLimit) {
  std::vector<NcclGroup::Rank> own;
  own.push_back(OnDevice(0));
  own.push_back(OnDevice(1));
  const absl::Status late =
      NcclGroup::Join(NewId(), 4, std::move(own), kShort).status();
  EXPECT_EQ(late, absl::DeadlineExceededError(
                      "rank 0: the others have not joined for 300 ms"));
  own.clear();
  own.push_back(OnDevice(3));
  const std::string id = NewId();
  nccl_->failing_call = nccl_->calls.load();
  EXPECT_EQ(NcclGroup::Join(id, 4, std::move(own), kShort).status(),
            absl::InternalError("rank 3: ncclCommInitRankConfig: other error"));
}

// Two groups with one id, as two processes have them. Of the one that ends the
// other hears nothing: this NCCL reports no error.
TEST_F(NcclCollectiveTest, RanksOfSeveralProcessesMeet) {
  constexpr size_t kCount = 20;
  const std::string id = NewId();
  std::vector<Values> sums(4);
  std::vector<absl::Status> outcomes(4);
  OnEveryRank(2, [&](int process) {
    std::vector<NcclGroup::Rank> own;
    std::vector<Rank> ranks;
    for (const int device : {2 * process, 2 * process + 1}) {
      BackendOptions options;
      options.kind = "cuda";
      options.device = device;
      ranks.push_back({*CreateBackend(options), nullptr});
      own.push_back(OnDevice(device));
    }
    auto joined = NcclGroup::Join(id, 4, std::move(own), kLonger);
    ASSERT_TRUE(joined.ok()) << joined.status();
    const std::shared_ptr<NcclGroup> group = *std::move(joined);
    for (size_t i = 0; i < 2; ++i) {
      ranks[i].collective = std::make_unique<NcclCollective>(
          group, i, ranks[i].backend.get(), /*host=*/nullptr);
    }
    for (const bool ends : {false, true}) {
      OnEveryRank(2, [&](int member) {
        Rank& own_rank = ranks[static_cast<size_t>(member)];
        Backend* const backend = own_rank.backend.get();
        Collective& collective = *own_rank.collective;
        backend->BindComputeThread();
        const int number = collective.rank();
        EXPECT_EQ(number, 2 * process + member);
        const auto part = ToDevice(backend, Part(number, kCount));
        const auto sum = ToDevice(backend, Values(kCount));
        if (ends && number == 3) {
          collective.Abort(absl::InternalError("the end"));
        }
        static_cast<void>(
            collective.AllReduce(part->f32(), kCount, sum->f32()));
        EXPECT_TRUE(backend->Synchronize().ok());
        const size_t at = static_cast<size_t>(number);
        outcomes[at] = collective.Outcome();
        if (!ends) {
          EXPECT_EQ(outcomes[at], absl::OkStatus());
          sums[at] = ToHost(backend, sum.get());
        }
      });
    }
  });
  for (const Values& sum : sums) {
    ASSERT_EQ(sum.size(), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(sum[i], (Part(0, kCount)[i] + Part(1, kCount)[i]) +
                            (Part(2, kCount)[i] + Part(3, kCount)[i]));
    }
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[rank].code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(outcomes[2 + rank], absl::InternalError("the end"));
  }
}

}  // namespace
}  // namespace nacre::kernels
