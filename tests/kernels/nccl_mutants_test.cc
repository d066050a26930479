// Each bug planted in what ranks meet by on devices (nccl_mutants.cmake)
// changes what a step leaves, or ends it; without one it leaves the bits of
// ranks that meet on the host.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/device_collectives.h"
#include "kernels/nccl_collective.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/device_values.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"
#include "tests/kernels/rank_transports.h"
#include "tests/testing/mutant.h"

namespace nacre::kernels {
namespace {

using Values = std::vector<float>;

constexpr int kRanks = 4;
constexpr int kRows = NcclCollective::kMostRows + 3;  // of several groups
constexpr int kCols = 2;
constexpr size_t kCount = size_t{kRows} * kCols;

// Sums of more and more values in one step, one of them in pieces, and columns
// that are gathered.
absl::Status RunStep(Backend* backend, Collective* collective, float* x,
                     float* sum, float* whole) {
  absl::Status status;
  backend->RunStep(1, [&] {
    for (const size_t count : {kCount / 8, kCount / 2, kCount}) {
      backend->Scale(x, kCount, 1.5f);
      status.Update(collective->AllReduce(x, count, sum));
      backend->AddInPlace(x, sum, kCount);
    }
    status.Update(collective->Gather(x, kRows, kCols, whole));
  });
  status.Update(backend->Synchronize());
  status.Update(collective->Outcome());
  return status;
}

// What all ranks have after it; nothing after an error.
std::vector<Values> Results(const std::string& transport) {
  const DevicesOfRanks devices;
  const auto hosts = MakeSharedMemoryCollectives(kRanks);
  BackendOptions options;
  options.kind = "cuda";
  options.rank_transport = transport;
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < kRanks; ++rank) {
    options.device = rank;
    backends.push_back(*CreateBackend(options));
  }
  options.devices = DevicesOfRanks::Of(kRanks, transport);
  auto meet = MakeDeviceCollectives(options, hosts, backends,
                                    {.most_scratch = kRanks * 4 * kCount / 2});
  EXPECT_TRUE(meet.ok()) << meet.status();
  std::vector<Values> results(kRanks + 1);
  std::vector<absl::Status> statuses(kRanks);
  OnEveryRank(kRanks, [&](int number) {
    const size_t rank = static_cast<size_t>(number);
    Backend* const backend = backends[rank].get();
    backend->BindComputeThread();
    const auto sum = *backend->Allocate(kCount * sizeof(float));
    const auto whole = *backend->Allocate(kRanks * kCount * sizeof(float));
    const auto x =
        ToDevice(backend, RandomFloats(kCount, static_cast<uint32_t>(number)));
    statuses[rank] = RunStep(backend, meet->of_ranks[rank].get(), x->f32(),
                             sum->f32(), whole->f32());
    results[rank] = ToHost(backend, x.get());
    if (rank == 0) results.back() = ToHost(backend, whole.get());
  });
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return {};
  }
  return results;
}

TEST(NcclMutantsTest, EachIsFound) {
  const std::vector<Values> expected = Results("host");
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(Results("nccl"), expected);
  const std::vector<std::string> mutants = absl::StrSplit(NACRE_MUTANTS, ',');
  for (const std::string& mutant : mutants) {
    active_mutant = mutant;
    EXPECT_NE(Results("nccl"), expected) << mutant;
  }
  active_mutant = {};
}

}  // namespace
}  // namespace nacre::kernels
