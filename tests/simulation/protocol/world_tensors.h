// The channels for hidden states in the world: a state takes a delay of its
// own, may get lost, overtake the commit that it belongs to or come long after
// it, and a channel may end at any time. Only for the world's own sources.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_

#include <cstdint>

#include "tests/simulation/protocol/world.h"
#include "worker/tensors/tensor_publisher.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::protocol {

class World::Publisher final : public worker::TensorPublisher {
 public:
  Publisher(World* world, int process) : world_(world), process_(process) {}
  bool HasReaders(uint64_t channel) const override;
  void Publish(worker::Tensor tensor) override;

 private:
  World* const world_;
  const int process_;
};

class World::Reader final : public worker::TensorReader {
 public:
  Reader(World* world, int process) : world_(world), process_(process) {}
  void Subscribe(Subscription subscription) override;
  void Unsubscribe(uint64_t channel) override;

 private:
  World* const world_;
  const int process_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_
