// Which transport workers read each other's tensors over. The only place that
// names one: engines and processes know the two interfaces.
//
// Today there is one transport, gRPC streams. They need memory of the host: the
// publisher copies what lies on a device.

#ifndef WORKER_TENSORS_TRANSPORTS_H_
#define WORKER_TENSORS_TRANSPORTS_H_

#include <memory>

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
ServedPublisher MakeTensorPublisher();

// `peers`: how to dial other workers.
std::unique_ptr<TensorReader> MakeTensorReader(
    const rpc::ChannelSecurity& peers);

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TRANSPORTS_H_
