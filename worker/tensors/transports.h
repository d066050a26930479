// Which transports workers read each other's tensors over: a row for each. The
// only place that names one: engines and processes know the two interfaces.
//
// Constant data. Today there is one transport, gRPC streams. They need memory
// of the host: the publisher copies what lies on a device.

#ifndef WORKER_TENSORS_TRANSPORTS_H_
#define WORKER_TENSORS_TRANSPORTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/rpc/security.h"
#include "worker/tensors/tensor_publisher.h"
#include "worker/tensors/tensor_reader.h"

namespace grpc {
class Service;
}

namespace nacre::worker {

struct ServedPublisher {
  std::unique_ptr<TensorPublisher> publisher;  // null: nothing is published
  // The publisher's, to be served on the worker's port; null: it needs none.
  grpc::Service* service = nullptr;
};

// A reader understands the publishers of its own transport.
struct TensorTransport {
  const char* name;  // of --tensor-transport
  ServedPublisher (*make_publisher)();
  // `peers`: how to dial other workers.
  std::unique_ptr<TensorReader> (*make_reader)(
      const rpc::ChannelSecurity& peers);
};

// All there are; workers use the first unless they are told otherwise.
absl::Span<const TensorTransport> TensorTransports();

// Lives as long as the program. INVALID_ARGUMENT: "not one of", and all names.
absl::StatusOr<const TensorTransport*> FindTensorTransport(
    absl::string_view name);

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TRANSPORTS_H_
