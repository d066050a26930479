// A dispatcher that runs three requests on each target, lets two wait, for ten
// seconds at most.

#ifndef TESTS_COORDINATOR_DISPATCHER_QUEUE_FIXTURE_H_
#define TESTS_COORDINATOR_DISPATCHER_QUEUE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {

class DispatcherQueueTest : public DispatcherTest {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  DispatcherQueueTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->max_running = 3;
          options->max_queue = 2;
          options->queue_timeout_ns = 10 * kSecond;
        }) {}

  absl::Status Refusal(RequestSpec request) {
    const auto sink = std::make_shared<RecordingSink>();
    const absl::Status status =
        dispatcher_.Start(std::move(request), sink).status();
    EXPECT_EQ(sink->num_ends(), 0);
    return status;
  }
  bool IsRunning(uint64_t session_id) {
    return DraftAddress(session_id) != "no such session";
  }
  std::vector<std::string> Queue() {
    std::vector<std::string> ids;
    for (const SessionStatus& session : dispatcher_.queued()) {
      EXPECT_EQ(session.queue_position, static_cast<int>(ids.size()));
      ids.push_back(session.request_id);
    }
    return ids;
  }
  // The target ends the session and closes it.
  void EndOn(const Worker& target, const Run& run) {
    Verdict(target, run.id, 2, {'x'}, speculation::FinishReason::kLength);
    Closed(target, run.id);
  }
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_DISPATCHER_QUEUE_FIXTURE_H_
