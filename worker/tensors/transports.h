// Which transports workers read each other's tensors over: a row for each. The
// only place that names one. Engines and processes know the two interfaces, the
// flag's help is made of the rows. Metrics of links alone have NCCL's name, as
// the only kind there is.
//
// Constant data. `grpc`: streams of nacre.v1.Tensors. `nccl`: the same streams,
// with the values from GPU to GPU beside them (nccl_link.h); they fall back to
// the stream. Readers of either understand publishers of either. Both take
// memory of the host: the publisher copies what lies on a device.

#ifndef WORKER_TENSORS_TRANSPORTS_H_
#define WORKER_TENSORS_TRANSPORTS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/rpc/security.h"
#include "kernels/backend_factory.h"
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

struct TensorTransport {
  const char* name;  // of --tensor-transport
  const char* way;   // which that is, for its help
  // Whether workers with this backend can have it. INVALID_ARGUMENT: it needs
  // another backend. FAILED_PRECONDITION with what the build or the machine
  // lacks. The other two fail likewise.
  absl::Status (*check)(const kernels::BackendOptions& backend);
  absl::StatusOr<ServedPublisher> (*make_publisher)(
      const kernels::BackendOptions& backend);
  // `peers`: how to dial other workers.
  absl::StatusOr<std::unique_ptr<TensorReader>> (*make_reader)(
      const rpc::ChannelSecurity& peers,
      const kernels::BackendOptions& backend);
};

// All there are; workers use the first unless they are told otherwise.
absl::Span<const TensorTransport> TensorTransports();

// Lives as long as the program. INVALID_ARGUMENT: "not one of", and all names.
absl::StatusOr<const TensorTransport*> FindTensorTransport(
    absl::string_view name);

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TRANSPORTS_H_
