#include "worker/tensors/transports.h"

#include <utility>

#include "worker/tensors/publisher_service.h"
#include "worker/tensors/reader_client.h"

namespace nacre::worker {

ServedPublisher MakeTensorPublisher() {
  auto service = std::make_unique<TensorPublisherService>();
  ServedPublisher served;
  served.service = service.get();
  served.publisher = std::move(service);
  return served;
}

std::unique_ptr<TensorReader> MakeTensorReader(
    const rpc::ChannelSecurity& peers) {
  return std::make_unique<TensorReaderClient>(peers);
}

}  // namespace nacre::worker
