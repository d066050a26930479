// Virtual time: what is posted runs in order of its time, then of posting, so
// that one seed decides a whole run.
// No threads, no clock.

#ifndef SIMULATION_EVENT_QUEUE_H_
#define SIMULATION_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace nacre::simulation {

class EventQueue {
 public:
  EventQueue() = default;
  explicit EventQueue(int64_t now_ns) : now_ns_(now_ns) {}

  // A time that has passed means now.
  void Post(int64_t time_ns, std::function<void()> run) {
    events_.push_back(
        {std::max(time_ns, now_ns_), next_order_++, std::move(run)});
    std::push_heap(events_.begin(), events_.end());
  }
  bool empty() const { return events_.empty(); }
  int64_t now_ns() const { return now_ns_; }
  // Of a queue that is not empty.
  int64_t next_time_ns() const { return events_.front().time_ns; }
  void RunNext() {
    std::pop_heap(events_.begin(), events_.end());
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ns_ = event.time_ns;
    event.run();  // may post
  }

 private:
  struct Event {
    int64_t time_ns;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // the first is the largest
      return time_ns != other.time_ns ? time_ns > other.time_ns
                                      : order > other.order;
    }
  };
  std::vector<Event> events_;  // a heap
  uint64_t next_order_ = 0;
  int64_t now_ns_ = 0;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_EVENT_QUEUE_H_
