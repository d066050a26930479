#include "kernels/device_collectives.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/nccl_api.h"
#include "kernels/nccl_group.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {
namespace {

constexpr absl::string_view kHost = "host";
constexpr absl::string_view kNccl = "nccl";

// NCCL refuses two ranks on one device.
absl::Status CheckDevices(const std::vector<int>& devices) {
  std::set<int> seen;
  for (const int device : devices) {
    if (seen.insert(device).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "two ranks have device ", device, ", NCCL needs one for each"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NcclGroup>> JoinAll(
    const std::vector<int>& devices, int ranks_of_model) {
  if (static_cast<int>(devices.size()) != ranks_of_model) {
    return absl::UnimplementedError(
        "ranks on several nodes meet in host memory");
  }
  NACRE_RETURN_IF_ERROR(CheckDevices(devices));
  std::vector<NcclGroup::Rank> ranks;
  for (const int device : devices) {
    NcclGroup::Rank& rank = ranks.emplace_back();
    rank.rank = static_cast<int>(ranks.size()) - 1;
    NACRE_ASSIGN_OR_RETURN(rank.api, OpenNccl({.device = device}));
  }
  NACRE_RETURN_IF_ERROR(ranks.front().api->BindThread());
  NACRE_ASSIGN_OR_RETURN(const std::string id,
                         ranks.front().api->GetUniqueId());
  return NcclGroup::Join(id, static_cast<int>(devices.size()),
                         std::move(ranks));
}

}  // namespace

absl::Status CheckRankTransport(absl::string_view name) {
  if (name == "auto" || name == kNccl || name == kHost) return absl::OkStatus();
  return absl::InvalidArgumentError("not one of: auto, nccl, host");
}

absl::StatusOr<DeviceCollectives> MakeDeviceCollectives(
    const BackendOptions& options,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends, size_t most_scratch) {
  NACRE_CHECK(options.devices.size() == backends.size() &&
                  hosts.size() == backends.size() && !backends.empty(),
              "not a device and a backend for each rank");
  DeviceCollectives made;
  std::shared_ptr<NcclGroup> group;
  if (options.rank_transport == kHost) {
    made.why_host = "--tensor-parallel-transport host";
  } else {
    absl::StatusOr<std::unique_ptr<NcclGroup>> joined =
        JoinAll(options.devices, hosts.front()->ranks());
    if (joined.ok()) {
      group = *std::move(joined);
    } else if (options.rank_transport == kNccl) {
      return absl::Status(joined.status().code(),
                          absl::StrCat("--tensor-parallel-transport nccl: ",
                                       joined.status().message()));
    } else {
      made.why_host = std::string(joined.status().message());
    }
  }
  for (size_t rank = 0; rank < backends.size(); ++rank) {
    Collective* const host = hosts[rank].get();
    Backend* const backend = backends[rank].get();
    if (group == nullptr) {
      made.of_ranks.push_back(
          std::make_unique<StagedCollective>(host, backend));
    } else {
      made.of_ranks.push_back(std::make_unique<NcclCollective>(
          group, rank, backend, host, most_scratch));
    }
  }
  return made;
}

}  // namespace nacre::kernels
