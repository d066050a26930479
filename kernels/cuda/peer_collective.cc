#include "kernels/cuda/peer_collective.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/peer_collectives.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {
namespace cuda {

PeerCollective::~PeerCollective() {
  group_->Abort(absl::AbortedError(absl::StrCat("rank ", rank_, " is gone")));
  static_cast<void>(backend_->Synchronize());
}

void PeerCollective::Abort(const absl::Status& reason) {
  group_->Abort(reason);
  others_->Abort(group_->failure());
}

absl::Status PeerCollective::Outcome() {
  absl::Status status = group_->Look(rank_);
  if (status.ok()) return others_->Outcome();
  others_->Abort(status);
  return status;
}

// Of a device that has failed nothing is queued: the others must not wait.
absl::Status PeerCollective::Enqueue(Call call) {
  NACRE_RETURN_IF_ERROR(group_->failure());
  Device& device = backend_->device();
  if (device.ok()) {
    device.Check(call(device.queue(), group_->peers(rank_)),
                 "a kernel that meets its peers");
  }
  if (!device.ok()) Abort(FailureOfRank(rank_, device.first_error()));
  return group_->failure();
}

absl::Status PeerCollective::AllReduce(const float* part, size_t count,
                                       float* sum) {
  if (count > kMostPeerValues) return others_->AllReduce(part, count, sum);
  if (count == 0) return group_->failure();
  return Enqueue([&](const Queue& queue, const Peers& peers) {
    return AddOfPeers(queue, peers, part, count, sum);
  });
}

absl::Status PeerCollective::Broadcast(float* values, size_t count) {
  if (count > kMostPeerValues) return others_->Broadcast(values, count);
  if (count == 0) return group_->failure();
  return Enqueue([&](const Queue& queue, const Peers& peers) {
    return TakeOfFirst(queue, peers, values, count);
  });
}

absl::Status PeerCollective::Gather(const float* part, int rows, int cols,
                                    float* whole) {
  if (rows > kMostPeerRows) return others_->Gather(part, rows, cols, whole);
  const size_t all = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  for (size_t first = 0; first < all; first += kMostPeerValues) {
    NACRE_RETURN_IF_ERROR(Enqueue([&](const Queue& queue, const Peers& peers) {
      return GatherOfPeers(queue, peers, part, first,
                           std::min(kMostPeerValues, all - first), cols, whole);
    }));
  }
  return group_->failure();
}

namespace {

// Of each call, rank and value another one; sums of them are exact. The calls
// use each of the two places twice.
constexpr int kGreetings = 4;  // calls
constexpr size_t kGreeting = 1000;
constexpr size_t kGreetingBytes = kGreetings * kGreeting * sizeof(float);
float GreetingOf(int rank, size_t i) {
  const size_t call = i / kGreeting;
  return static_cast<float>(call * 100'000 + i % kGreeting) +
         static_cast<float>((rank + 1) * 10'000);
}

struct Greeting {
  std::unique_ptr<Buffer> part;
  std::unique_ptr<Buffer> sum;
};

absl::Status PrepareGreeting(CudaMemory* backend, int rank,
                             Greeting* greeting) {
  backend->BindComputeThread();
  std::vector<float> values;
  for (size_t i = 0; i < kGreetings * kGreeting; ++i) {
    values.push_back(GreetingOf(rank, i));
  }
  NACRE_ASSIGN_OR_RETURN(greeting->part, backend->Allocate(kGreetingBytes));
  NACRE_ASSIGN_OR_RETURN(greeting->sum, backend->Allocate(kGreetingBytes));
  backend->CopyFromHost(values.data(), kGreetingBytes, greeting->part->data());
  return backend->Synchronize();
}

absl::Status Greet(CudaMemory* backend, Collective* rank,
                   const Greeting& greeting) {
  backend->BindComputeThread();
  for (size_t i = 0; i < kGreetings * kGreeting; i += kGreeting) {
    NACRE_RETURN_IF_ERROR(rank->AllReduce(greeting.part->f32() + i, kGreeting,
                                          greeting.sum->f32() + i));
  }
  return absl::OkStatus();
}

absl::Status CheckGreeting(CudaMemory* backend, Collective* rank,
                           const Greeting& greeting) {
  backend->BindComputeThread();
  std::vector<float> sums(kGreetings * kGreeting);
  backend->CopyToHost(greeting.sum->data(), kGreetingBytes, sums.data());
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  NACRE_RETURN_IF_ERROR(rank->Outcome());
  for (size_t i = 0; i < sums.size(); ++i) {
    float expected = 0;
    for (int other = 0; other < rank->ranks(); ++other) {
      expected += GreetingOf(other, i);
    }
    if (sums[i] == expected) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank->rank(),
        " reads other values than its peers gave: ", sums[i], " in place of ",
        expected, "; GPUs of this machine cannot read each other's memory"));
  }
  return absl::OkStatus();
}

// Of all ranks, whose threads have not begun.
absl::Status GreetAll(absl::Span<CudaMemory* const> backends,
                      absl::Span<const std::unique_ptr<Collective>> ranks) {
  std::vector<Greeting> greetings(ranks.size());
  absl::Status status;
  for (size_t rank = 0; rank < ranks.size() && status.ok(); ++rank) {
    status = PrepareGreeting(backends[rank], static_cast<int>(rank),
                             &greetings[rank]);
  }
  // What allocates or uploads may wait for a GPU that waits for this one.
  for (size_t rank = 0; rank < ranks.size() && status.ok(); ++rank) {
    status = Greet(backends[rank], ranks[rank].get(), greetings[rank]);
  }
  for (size_t rank = 0; rank < ranks.size() && status.ok(); ++rank) {
    status = CheckGreeting(backends[rank], ranks[rank].get(), greetings[rank]);
  }
  // Before the memory goes.
  if (!status.ok()) ranks.front()->Abort(status);
  return status;
}

}  // namespace
}  // namespace cuda

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakePeerCollectives(
    const std::vector<int>& devices,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    const PeerOptions& options) {
  std::vector<cuda::CudaMemory*> ranks;
  for (const auto& backend : backends) {
    ranks.push_back(dynamic_cast<cuda::CudaMemory*>(backend.get()));
    NACRE_CHECK(ranks.back() != nullptr, "a rank that is not on a GPU");
  }
  NACRE_ASSIGN_OR_RETURN(const std::shared_ptr<cuda::PeerGroup> group,
                         cuda::PeerGroup::Make(devices, ranks, options));
  std::vector<std::unique_ptr<Collective>> made;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->device().KeepPinned();
    made.push_back(std::make_unique<cuda::PeerCollective>(
        group, static_cast<int>(rank), ranks[rank],
        std::make_unique<StagedCollective>(hosts[rank].get(), ranks[rank])));
  }
  NACRE_RETURN_IF_ERROR(cuda::GreetAll(ranks, made));
  return made;
}

}  // namespace nacre::kernels
