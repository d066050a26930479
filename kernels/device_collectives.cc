#include "kernels/device_collectives.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/nccl_api.h"
#include "kernels/nccl_group.h"
#include "kernels/node_texts.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {
namespace {

constexpr absl::string_view kHost = "host";
constexpr absl::string_view kNccl = "nccl";
constexpr absl::string_view kPeer = "peer";
constexpr absl::string_view kAuto = "auto";

// What nodes agree on, in this order.
constexpr uint64_t kOpened = 1;
constexpr uint64_t kVersion = 2;
constexpr uint64_t kIdMade = 3;
constexpr uint64_t kIdSaid = 4;
constexpr uint64_t kJoined = 5;

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

// NCCL of this process' ranks, from number `first` on.
absl::StatusOr<std::vector<NcclGroup::Rank>> OpenRanks(
    const std::vector<int>& devices, int first) {
  NACRE_RETURN_IF_ERROR(CheckDevices(devices));
  std::vector<NcclGroup::Rank> ranks;
  for (const int device : devices) {
    NcclGroup::Rank& rank = ranks.emplace_back();
    rank.rank = first++;
    NACRE_ASSIGN_OR_RETURN(rank.api, OpenNccl({.device = device}));
  }
  return ranks;
}

// The first failure of a node, as each says it: `own` of this one.
absl::Status FirstOfNodes(const std::vector<std::string>& failures,
                          const NodeLink& link, const absl::Status& own) {
  for (size_t node = 0; node < failures.size(); ++node) {
    if (failures[node].empty()) continue;
    const bool is_own = static_cast<int>(node) == link.node();
    return absl::Status(
        is_own ? own.code() : absl::StatusCode::kFailedPrecondition,
        absl::StrCat("node ", node, ": ", failures[node]));
  }
  return absl::OkStatus();
}

// The status that all nodes have when the first has failed, if any.
absl::Status AgreeOn(NodeLink* link, uint64_t number, const absl::Status& own) {
  if (link == nullptr) return own;
  NACRE_ASSIGN_OR_RETURN(
      const std::vector<std::string> failures,
      ExchangeTexts(link, number, own.ok() ? "" : own.message()));
  return FirstOfNodes(failures, *link, own);
}

// NCCL refuses ranks of another version, and names neither.
absl::Status CheckVersions(NodeLink* link, const NcclCollectiveApi& own) {
  if (link == nullptr) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const std::vector<std::string> versions,
                         ExchangeTexts(link, kVersion, own.version()));
  for (size_t node = 1; node < versions.size(); ++node) {
    if (versions[node] == versions[0]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node, " has NCCL ", versions[node],
                     ", node 0 has ", versions[0], ": both must be the same"));
  }
  return absl::OkStatus();
}

// Rank 0's, on all nodes.
absl::StatusOr<std::string> ShareId(NodeLink* link, NcclCollectiveApi* first) {
  absl::StatusOr<std::string> id = std::string();
  if (link == nullptr || link->node() == 0) {
    absl::Status status = first->BindThread();
    if (status.ok()) {
      id = first->GetUniqueId();
    } else {
      id = status;
    }
  }
  NACRE_RETURN_IF_ERROR(AgreeOn(link, kIdMade, id.status()));
  if (link == nullptr) return id;
  NACRE_ASSIGN_OR_RETURN(std::vector<std::string> ids,
                         ExchangeTexts(link, kIdSaid, *id));
  return std::move(ids.front());
}

absl::StatusOr<std::unique_ptr<NcclGroup>> JoinAll(
    const BackendOptions& backend, const Collective& first,
    const DeviceCollectiveOptions& options) {
  NodeLink* const link = options.link;
  absl::StatusOr<std::vector<NcclGroup::Rank>> ranks =
      OpenRanks(backend.devices, first.rank());
  NACRE_RETURN_IF_ERROR(AgreeOn(link, kOpened, ranks.status()));
  NACRE_RETURN_IF_ERROR(CheckVersions(link, *ranks->front().api));
  NACRE_ASSIGN_OR_RETURN(const std::string id,
                         ShareId(link, ranks->front().api.get()));
  NcclGroupOptions nccl = options.nccl;
  nccl.nodes = link;
  absl::StatusOr<std::unique_ptr<NcclGroup>> group =
      NcclGroup::Join(id, first.ranks(), *std::move(ranks), nccl);
  // Whoever is refused says so to those that still wait for it.
  if (!group.ok() && link != nullptr && backend.rank_transport == kNccl) {
    link->Abort(group.status());
  }
  NACRE_RETURN_IF_ERROR(AgreeOn(link, kJoined, group.status()));
  return group;
}

absl::StatusOr<DeviceCollectives> MeetByPeers(
    const BackendOptions& backend,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    const DeviceCollectiveOptions& options) {
  absl::Status status;
  if (options.link != nullptr) {
    status = absl::InvalidArgumentError(
        "GPUs of several nodes cannot read each other's memory");
  } else {
    auto made =
        MakePeerCollectives(backend.devices, hosts, backends, options.peers);
    if (made.ok()) return DeviceCollectives{*std::move(made), false, ""};
    status = made.status();
  }
  return absl::Status(
      status.code(),
      absl::StrCat("--tensor-parallel-transport peer: ", status.message()));
}

}  // namespace

absl::Status CheckRankTransport(absl::string_view name) {
  if (name == kAuto || name == kNccl || name == kPeer || name == kHost) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("not one of: auto, nccl, peer, host");
}

absl::StatusOr<DeviceCollectives> MakeDeviceCollectives(
    const BackendOptions& backend,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    const DeviceCollectiveOptions& options) {
  NACRE_CHECK(backend.devices.size() == backends.size() &&
                  hosts.size() == backends.size() && !backends.empty(),
              "not a device and a backend for each rank");
  if (backend.rank_transport == kPeer) {
    return MeetByPeers(backend, hosts, backends, options);
  }
  DeviceCollectives made;
  std::shared_ptr<NcclGroup> group;
  if (backend.rank_transport == kHost) {
    made.why_host = "--tensor-parallel-transport host";
  } else if (backend.rank_transport == kAuto && options.link != nullptr &&
             options.link->is_encrypted()) {
    made.why_host = "between nodes it does not encrypt, as TLS does";
  } else {
    absl::StatusOr<std::unique_ptr<NcclGroup>> joined =
        JoinAll(backend, *hosts.front(), options);
    if (options.link != nullptr) {
      NACRE_RETURN_IF_ERROR(options.link->failure());
    }
    if (joined.ok()) {
      group = *std::move(joined);
      made.by_nccl = true;
    } else if (backend.rank_transport == kNccl) {
      return absl::Status(joined.status().code(),
                          absl::StrCat("--tensor-parallel-transport nccl: ",
                                       joined.status().message()));
    } else {
      made.why_host = std::string(joined.status().message());
    }
  }
  for (size_t rank = 0; rank < backends.size(); ++rank) {
    Collective* const host = hosts[rank].get();
    Backend* const of_rank = backends[rank].get();
    if (group == nullptr) {
      made.of_ranks.push_back(
          std::make_unique<StagedCollective>(host, of_rank));
    } else {
      made.of_ranks.push_back(std::make_unique<NcclCollective>(
          group, rank, of_rank, host, options.most_scratch));
    }
  }
  return made;
}

}  // namespace nacre::kernels
