#include "worker/tensors/transports.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/nccl_api.h"
#include "worker/tensors/nccl_link.h"
#include "worker/tensors/publisher_service.h"
#include "worker/tensors/reader_client.h"

namespace nacre::worker {
namespace {

ServedPublisher Served(std::unique_ptr<TensorPublisherService> service) {
  ServedPublisher served;
  served.service = service.get();
  served.publisher = std::move(service);
  return served;
}

absl::Status CheckGrpc(const kernels::BackendOptions&) {
  return absl::OkStatus();
}

absl::StatusOr<ServedPublisher> MakeGrpcPublisher(
    const kernels::BackendOptions&) {
  return Served(std::make_unique<TensorPublisherService>());
}

absl::StatusOr<std::unique_ptr<TensorReader>> MakeGrpcReader(
    const rpc::ChannelSecurity& peers, const kernels::BackendOptions&) {
  return std::make_unique<TensorReaderClient>(peers);
}

absl::StatusOr<std::unique_ptr<kernels::NcclApi>> NcclFor(
    const kernels::BackendOptions& backend) {
  if (backend.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-transport nccl needs --backend cuda, it is ", backend.kind));
  }
  // An engine's stream never waits for a peer.
  if (backend.persistent) {
    return absl::InvalidArgumentError(
        "--tensor-transport nccl and --persistent-steps exclude each other: "
        "such a step needs every multiprocessor, and a transfer that waits for "
        "its peer keeps one");
  }
  // One block: the rest of the device is the engine's.
  absl::StatusOr<std::unique_ptr<kernels::NcclApi>> api =
      kernels::OpenNccl({.device = backend.device, .most_blocks = 1});
  if (api.ok()) return api;
  return absl::Status(
      api.status().code(),
      absl::StrCat("--tensor-transport nccl: ", api.status().message()));
}

absl::Status CheckNccl(const kernels::BackendOptions& backend) {
  return NcclFor(backend).status();
}

absl::StatusOr<ServedPublisher> MakeNcclPublisher(
    const kernels::BackendOptions& backend) {
  NACRE_ASSIGN_OR_RETURN(auto api, NcclFor(backend));
  return Served(std::make_unique<TensorPublisherService>(
      std::make_unique<NcclLinks>(std::move(api), NcclLinks::Options())));
}

absl::StatusOr<std::unique_ptr<TensorReader>> MakeNcclReader(
    const rpc::ChannelSecurity& peers, const kernels::BackendOptions& backend) {
  NACRE_ASSIGN_OR_RETURN(auto api, NcclFor(backend));
  return std::make_unique<TensorReaderClient>(
      peers, std::make_unique<NcclLinks>(std::move(api), NcclLinks::Options()));
}

constexpr TensorTransport kTransports[] = {
    {"grpc", "over streams between the workers", CheckGrpc, MakeGrpcPublisher,
     MakeGrpcReader},
    {"nccl", "from GPU to GPU, which falls back to grpc", CheckNccl,
     MakeNcclPublisher, MakeNcclReader},
};

}  // namespace

absl::Span<const TensorTransport> TensorTransports() { return kTransports; }

absl::StatusOr<const TensorTransport*> FindTensorTransport(
    absl::string_view name) {
  std::string names;
  for (const TensorTransport& transport : kTransports) {
    if (name == transport.name) return &transport;
    absl::StrAppend(&names, names.empty() ? "" : ", ", transport.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("not one of: ", names));
}

}  // namespace nacre::worker
