#include "worker/tensors/transports.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/tensors/publisher_service.h"
#include "worker/tensors/reader_client.h"

namespace nacre::worker {
namespace {

ServedPublisher MakeGrpcPublisher() {
  auto service = std::make_unique<TensorPublisherService>();
  ServedPublisher served;
  served.service = service.get();
  served.publisher = std::move(service);
  return served;
}

std::unique_ptr<TensorReader> MakeGrpcReader(
    const rpc::ChannelSecurity& peers) {
  return std::make_unique<TensorReaderClient>(peers);
}

constexpr TensorTransport kTransports[] = {
    {"grpc", MakeGrpcPublisher, MakeGrpcReader},
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
