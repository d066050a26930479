// One direction of a simulated connection: random delays, order kept. Borrows
// the queue and the random source. No threads.

#ifndef SIMULATION_LINK_H_
#define SIMULATION_LINK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "simulation/event_queue.h"
#include "simulation/random.h"

namespace nacre::simulation {

// Each message takes a time between the two, all equally likely.
struct LinkDelay {
  int64_t min_ns = 0;
  int64_t max_ns = 0;

  double mean_ns() const { return 0.5 * static_cast<double>(min_ns + max_ns); }
};

class Link {
 public:
  Link(EventQueue* queue, Random* random, LinkDelay delay)
      : queue_(queue), random_(random), delay_(delay) {}

  void Send(std::function<void()> deliver) {
    const int64_t arrival =
        queue_->now_ns() + random_->Between(delay_.min_ns, delay_.max_ns);
    last_arrival_ns_ = std::max(last_arrival_ns_, arrival);
    queue_->Post(last_arrival_ns_, std::move(deliver));
  }

 private:
  EventQueue* queue_;
  Random* random_;
  LinkDelay delay_;
  int64_t last_arrival_ns_ = 0;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_LINK_H_
