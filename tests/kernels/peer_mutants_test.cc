// Each bug planted in how ranks meet in each other's memory
// (peer_mutants.cmake) changes what steps leave, or how they end; without one
// they leave the bits of ranks that meet on the host.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/peer_collectives.h"
#include "kernels/shared_memory_collective.h"
#include "kernels/staged_collective.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/device_values.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"
#include "tests/testing/mutant.h"

namespace nacre::kernels {
namespace {

using Values = std::vector<float>;

constexpr int kRanks = 4;
constexpr int kRows = 2;
constexpr size_t kCount = 2600;  // of three blocks
constexpr int kSteps = 5;
// So many waits that end one after the other take longer than a process may.
constexpr int kCalls = 60;
constexpr unsigned kMostSeconds = 6;
constexpr size_t kAtOnce = 4;  // processes
constexpr int kRight = 33;     // what no other end has
constexpr int kWrong = 1;

// Of waits that come to an end, unless by a bug.
std::chrono::milliseconds Patience() {
  return std::chrono::seconds(active_mutant.empty() ? 600 : 4);
}

// Ranks on emulated devices, and what they compute on.
struct Ranks {
  Ranks(bool by_peers, std::chrono::milliseconds limit)
      : hosts(MakeSharedMemoryCollectives(kRanks)) {
    cuda::emulation::ResetDevice();
    cuda::emulation::settings.devices = kRanks;
    std::vector<int> devices;
    BackendOptions options;
    options.kind = "cuda";
    for (options.device = 0; options.device < kRanks; ++options.device) {
      devices.push_back(options.device);
      backends.push_back(*CreateBackend(options));
    }
    if (by_peers) {
      auto made = MakePeerCollectives(devices, hosts, backends, {limit});
      // Which looks whether sums are right.
      if (!made.ok()) _exit(kWrong);
      collectives = *std::move(made);
      return;
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      collectives.push_back(std::make_unique<StagedCollective>(
          hosts[rank].get(), backends[rank].get()));
    }
  }

  // task(backend, collective, rank) on a thread each.
  void OnEach(const std::function<void(Backend*, Collective*, size_t)>& task) {
    OnEveryRank(kRanks, [&](int number) {
      const auto rank = static_cast<size_t>(number);
      backends[rank]->BindComputeThread();
      task(backends[rank].get(), collectives[rank].get(), rank);
    });
  }

  std::vector<std::unique_ptr<Collective>> hosts;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<Collective>> collectives;
};

// Sums of fewer and more values, rows that are sent, and columns that are
// gathered.
absl::Status RunStep(Backend* backend, Collective* collective, float* x,
                     float* sum, float* whole) {
  absl::Status status;
  backend->RunStep(1, [&] {
    status.Update(collective->Broadcast(x, 40));
    for (const size_t count : {kCount, size_t{30}, kCount, kCount - 1}) {
      backend->Scale(x, kCount, 1.5f);
      status.Update(collective->AllReduce(x, count, sum));
      backend->Scale(x, kCount, -0.5f);
      backend->AddInPlace(x, sum, kCount);
    }
    status.Update(collective->Gather(x, kRows, kCount / kRows, whole));
  });
  status.Update(backend->Synchronize());
  status.Update(collective->Outcome());
  return status;
}

// What all ranks have after some; nothing after an error.
std::vector<Values> Steps(bool by_peers) {
  Ranks ranks(by_peers, Patience());
  std::vector<Values> results(kRanks + 1);
  std::atomic<bool> is_right = true;
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    const auto sum = *backend->Allocate(kCount * sizeof(float));
    const auto whole = *backend->Allocate(kRanks * kCount * sizeof(float));
    const auto x =
        ToDevice(backend, RandomFloats(kCount, static_cast<uint32_t>(rank)));
    for (int step = 0; step < kSteps && is_right; ++step) {
      const absl::Status status =
          RunStep(backend, collective, x->f32(), sum->f32(), whole->f32());
      if (!status.ok()) is_right = false;
      if (!status.ok()) collective->Abort(status);
    }
    results[rank] = ToHost(backend, x.get());
    if (rank == 0) results.back() = ToHost(backend, whole.get());
  });
  return is_right ? results : std::vector<Values>();
}

// How ranks end of which one does something else.
std::vector<std::string> EndsWithout(
    size_t away, std::chrono::milliseconds limit,
    const std::function<void(Collective*)>& instead) {
  Ranks ranks(/*by_peers=*/true, limit);
  std::vector<std::string> ends(kRanks);
  // Then no other rank is late, however busy the machine is.
  std::atomic<int> have_queued = 0;
  ranks.OnEach([&](Backend* backend, Collective* collective, size_t rank) {
    if (rank == away) {
      while (have_queued < kRanks - 1) std::this_thread::yield();
      return instead(collective);
    }
    const auto x = *backend->Allocate(8 * sizeof(float));
    const auto sum = *backend->Allocate(8 * sizeof(float));
    for (int call = 0; call < kCalls; ++call) {
      static_cast<void>(collective->AllReduce(x->f32(), 8, sum->f32()));
    }
    ++have_queued;
    while (have_queued < kRanks - 1) std::this_thread::yield();
    static_cast<void>(backend->Synchronize());
    ends[rank] = std::string(collective->Outcome().message());
  });
  return ends;
}

bool RanksEnd() {
  const std::string late = "has waited on its GPU for 200 ms for rank 3";
  std::vector<std::string> ends =
      EndsWithout(3, std::chrono::milliseconds(200), [](Collective*) {});
  ends.pop_back();
  for (const std::string& end : ends) {
    if (!absl::StrContains(end, late)) return false;
  }
  const auto abort = [](Collective* collective) {
    collective->Abort(absl::InternalError("the end"));
  };
  return EndsWithout(0, std::chrono::minutes(10), abort) ==
         std::vector<std::string>{"", "the end", "the end", "the end"};
}

// Ranks are destroyed with kernels that have not run: whether each waits for
// its device. Else memory that others use would be freed.
bool DestroyedRanksWait() {
  Ranks ranks(/*by_peers=*/true, Patience());
  std::vector<std::unique_ptr<Buffer>> buffers;
  int64_t of_others = 0;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    of_others = cuda::emulation::Unfinished();
    Backend* const backend = ranks.backends[rank].get();
    backend->BindComputeThread();
    for (int i = 0; i < 2; ++i) {
      buffers.push_back(*backend->Allocate(8 * sizeof(float)));
    }
    for (int call = 0; call < 5; ++call) {
      static_cast<void>(ranks.collectives[rank]->AllReduce(
          buffers[2 * rank]->f32(), 8, buffers[2 * rank + 1]->f32()));
    }
  }
  const int64_t of_last = cuda::emulation::Unfinished() - of_others;
  ranks.collectives.resize(1);
  return cuda::emulation::Unfinished() <= of_last;
}

// A process that finds out whether all is right with this bug: a planted one
// may write anywhere, or wait for ever.
pid_t Start(const std::string& mutant, const std::vector<Values>& expected) {
  const pid_t child = fork();
  if (child != 0) return child;
  active_mutant = mutant;
  if (Steps(/*by_peers=*/true) != expected) _exit(kWrong);
  if (!mutant.empty()) alarm(kMostSeconds);
  if (!RanksEnd()) _exit(kWrong);
  _exit(DestroyedRanksWait() ? kRight : kWrong);
}

TEST(PeerMutantsTest, EachIsFound) {
  std::vector<std::string> mutants = absl::StrSplit(NACRE_MUTANTS, ',');
  mutants.push_back("");
  const std::vector<Values> expected = Steps(/*by_peers=*/false);
  std::vector<pid_t> children;
  for (size_t i = 0; i < mutants.size() + kAtOnce; ++i) {
    if (i >= kAtOnce) {
      const std::string& mutant = mutants[i - kAtOnce];
      int end = 0;
      EXPECT_EQ(waitpid(children[i - kAtOnce], &end, 0), children[i - kAtOnce]);
      EXPECT_EQ(WIFEXITED(end) && WEXITSTATUS(end) == kRight, mutant.empty())
          << mutant;
    }
    if (i < mutants.size()) children.push_back(Start(mutants[i], expected));
  }
}

}  // namespace
}  // namespace nacre::kernels
