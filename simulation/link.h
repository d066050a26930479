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
  int slow_percent = 0;  // of the messages, which take 30 times as long

  double mean_ns() const { return 0.5 * static_cast<double>(min_ns + max_ns); }
};

class Link {
 public:
  Link(EventQueue* queue, Random* random, LinkDelay delay)
      : queue_(queue), random_(random), delay_(delay) {}

  void Send(std::function<void()> deliver) {
    int64_t delay_ns = random_->Between(delay_.min_ns, delay_.max_ns);
    if (delay_.slow_percent > 0 && random_->Percent(delay_.slow_percent)) {
      delay_ns *= 30;
    }
    last_arrival_ns_ = std::max(last_arrival_ns_, queue_->now_ns() + delay_ns);
    queue_->Post(last_arrival_ns_, std::move(deliver));
  }
  // Of what was sent last; 0 before.
  int64_t last_arrival_ns() const { return last_arrival_ns_; }

 private:
  EventQueue* queue_;
  Random* random_;
  LinkDelay delay_;
  int64_t last_arrival_ns_ = 0;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_LINK_H_
