#include "kernels/cuda/peer_group.h"

#include <new>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "kernels/cuda/device.h"

namespace nacre::kernels::cuda {
namespace {

absl::Status Checked(cudaError_t error, absl::string_view what) {
  return error == cudaSuccess ? absl::OkStatus() : ToStatus(error, what);
}

// Each has one of its own, and reads those of all others.
absl::Status CheckDevices(const std::vector<int>& devices) {
  if (devices.size() < 2) {
    return absl::InvalidArgumentError("one rank has no peers");
  }
  std::set<int> seen;
  for (const int device : devices) {
    if (seen.insert(device).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "two ranks have device ", device, ", each needs one of its own"));
  }
  for (const int device : devices) {
    for (const int peer : devices) {
      if (device == peer) continue;
      int can = 0;
      NACRE_RETURN_IF_ERROR(Checked(cudaDeviceCanAccessPeer(&can, device, peer),
                                    "cudaDeviceCanAccessPeer"));
      if (can != 0) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", device, " cannot read the memory of device ", peer));
    }
  }
  return absl::OkStatus();
}

// Of `device`, for all of `devices` to read and write.
absl::StatusOr<cudaMemPool_t> MakePool(int device,
                                       const std::vector<int>& devices) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  NACRE_RETURN_IF_ERROR(
      Checked(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate"));
  std::vector<cudaMemAccessDesc> readers;
  for (const int peer : devices) {
    if (peer == device) continue;
    cudaMemAccessDesc& reader = readers.emplace_back();
    reader.location.type = cudaMemLocationTypeDevice;
    reader.location.id = peer;
    reader.flags = cudaMemAccessFlagsProtReadWrite;
  }
  const absl::Status status =
      Checked(cudaMemPoolSetAccess(pool, readers.data(), readers.size()),
              absl::StrCat("access to memory of device ", device));
  if (status.ok()) return pool;
  cudaMemPoolDestroy(pool);
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<PeerGroup>> PeerGroup::Make(
    const std::vector<int>& devices, absl::Span<CudaMemory* const> ranks,
    const PeerOptions& options) {
  NACRE_RETURN_IF_ERROR(CheckDevices(devices));
  std::shared_ptr<PeerGroup> group(new PeerGroup(options));
  NACRE_ASSIGN_OR_RETURN(group->host_,
                         ranks[0]->AllocateOnHost(sizeof(HostWords)));
  group->words_ = new (group->host_->data()) HostWords;
  group->members_.resize(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    Member& member = group->members_[rank];
    member.device = devices[rank];
    ranks[rank]->BindComputeThread();
    NACRE_ASSIGN_OR_RETURN(member.pool, MakePool(member.device, devices));
    NACRE_RETURN_IF_ERROR(group->Allocate(ranks[rank], &member));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    Peers& peers = group->members_[rank].peers;
    peers.rank = static_cast<int>(rank);
    peers.ranks = static_cast<int>(ranks.size());
    for (size_t other = 0; other < ranks.size(); ++other) {
      peers.of_ranks[other] = group->members_[other].peers.of_ranks[other];
    }
    peers.late = group->words_->late[rank];
    peers.stop = &group->words_->stop;
    peers.limit =
        static_cast<int64_t>(std::chrono::nanoseconds(options.limit).count());
  }
  return group;
}

absl::Status PeerGroup::Allocate(CudaMemory* backend, Member* member) {
  const auto rank = static_cast<size_t>(member - members_.data());
  auto* const stream = static_cast<cudaStream_t>(backend->Stream());
  void* data = nullptr;
  NACRE_RETURN_IF_ERROR(Checked(
      cudaMallocFromPoolAsync(&data, sizeof(PeerBuffer), member->pool, stream),
      "memory that peers read"));
  member->peers.of_ranks[rank] = static_cast<PeerBuffer*>(data);
  NACRE_RETURN_IF_ERROR(Checked(
      cudaMemsetAsync(data, 0, sizeof(PeerBuffer), stream), "cudaMemset"));
  return backend->Synchronize();
}

PeerGroup::~PeerGroup() {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    cudaSetDevice(member.device);
    cudaFree(member.peers.of_ranks[rank]);
    if (member.pool != nullptr) cudaMemPoolDestroy(member.pool);
  }
}

absl::Status PeerGroup::failure() const {
  if (!has_failed_.load()) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  return failure_;
}

void PeerGroup::Abort(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = reason;
    has_failed_ = true;
  }
  std::atomic_ref<unsigned>(words_->stop).store(1);
}

absl::Status PeerGroup::Look(int rank) {
  std::vector<int> late;
  for (int peer = 0; peer < ranks(); ++peer) {
    std::atomic_ref<unsigned> word(words_->late[rank][peer]);
    if (word.load() != 0) late.push_back(peer);
  }
  if (!late.empty()) {
    Abort(absl::DeadlineExceededError(absl::StrCat(
        "rank ", rank, " has waited on its GPU for ", options_.limit.count(),
        " ms for ", late.size() > 1 ? "ranks " : "rank ",
        absl::StrJoin(late, ", "))));
  }
  return failure();
}

}  // namespace nacre::kernels::cuda
