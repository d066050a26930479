// The channels for a target's tensors in the world: one takes a delay of its
// own, and a channel may end at any time. A hidden state may get lost, overtake
// the commit that it belongs to or come long after it. Rows keep their order,
// and may come again. Only for the world's own sources.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/protocol/world.h"
#include "worker/tensors/tensor_publisher.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::protocol {

class World::Tensors {
 public:
  explicit Tensors(World* world);
  ~Tensors();

  // What the engine of a process publishes to, and reads from.
  worker::TensorPublisher* PublisherOf(int process) const;
  worker::TensorReader* ReaderOf(int process) const;
  // It reads nothing any more.
  void OnStopped(int process);
  // States that reached a process since its start: it may reject them.
  uint64_t max_stale(int process) const {
    return num_delivered_[static_cast<size_t>(process)];
  }

 private:
  class Publisher;
  class Reader;
  using Subscription = worker::TensorReader::Subscription;

  // `tensor` may be null: the channel is lost.
  void Deliver(Process& process, uint64_t incarnation, uint64_t channel,
               worker::TensorSink& sink, const worker::Tensor* tensor);
  void Send(int draft, const Subscription& subscription,
            std::shared_ptr<worker::Tensor> tensor);
  // The process at the address hears, some time later, that rows are wanted.
  void Ask(const std::string& address);

  World* const world_;
  Random random_;  // of its own: the rest of a schedule does not depend on it
  std::vector<std::unique_ptr<Publisher>> publishers_;  // by process
  std::vector<std::unique_ptr<Reader>> readers_;        // likewise
  std::vector<uint64_t> num_delivered_;                 // likewise
  // By draft process and channel.
  struct Reading {
    Subscription subscription;
    int next = 0;  // of rows
    std::shared_ptr<worker::Tensor> last_rows;
    int64_t due_ns = 0;  // when what was sent last arrives
  };
  std::map<std::pair<int, uint64_t>, Reading> subscriptions_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_TENSORS_H_
