// A target that generates 'x' until max_tokens, as fast as the acknowledgements
// let it, and closes what it is told to.

#ifndef TESTS_COORDINATOR_ENDLESS_TARGET_H_
#define TESTS_COORDINATOR_ENDLESS_TARGET_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tests/coordinator/fake_worker.h"

namespace nacre::coordinator {

class EndlessTarget {
 public:
  EndlessTarget() {
    worker_.target.SetScript(
        [this](const v1::TargetControl& control) { Generate(control); });
  }

  v1::Hello& hello() { return worker_.hello; }
  // Whether the coordinator has taken it.
  bool Attach(const std::string& coordinator) {
    worker_.Attach(coordinator);
    return worker_.AwaitAccepted();
  }

  std::atomic<bool> silent{false};  // generates nothing

 private:
  // The most that a target is ahead of its acknowledgement.
  static constexpr uint32_t kMaxAhead = 64;

  struct Made {
    uint32_t length = 0;
    uint32_t known = 0;
    uint32_t end = 0;
  };

  void Grow(uint64_t id, Made& made, v1::TargetEvent* event) {
    if (silent) return;
    while (made.length < made.end && made.length < made.known + kMaxAhead) {
      v1::Verdict* verdict = event->add_verdicts();
      verdict->set_session_id(id);
      verdict->set_base_length(made.length);
      verdict->add_token_ids('x');
      if (++made.length == made.end) {
        verdict->set_finish(v1::FINISH_REASON_LENGTH);
      }
    }
  }

  // Runs on the one gRPC thread that reads the target's stream.
  void Generate(const v1::TargetControl& control) {
    v1::TargetEvent event;
    for (const v1::OpenTarget& open : control.open()) {
      const uint32_t length = open.token_ids_size();
      Made& made = made_[open.session_id()];
      made = {length, length, open.prompt_length() + open.max_tokens()};
      Grow(open.session_id(), made, &event);
    }
    for (const v1::Acknowledge& acknowledge : control.acknowledge()) {
      const auto it = made_.find(acknowledge.session_id());
      if (it == made_.end()) continue;
      it->second.known = acknowledge.committed_length();
      Grow(acknowledge.session_id(), it->second, &event);
    }
    for (const v1::CloseSession& close : control.close()) {
      if (made_.erase(close.session_id()) > 0) {
        event.add_closed()->set_session_id(close.session_id());
      }
    }
    if (event.verdicts_size() + event.closed_size() > 0) {
      worker_.target.Send(std::move(event));
    }
  }

  std::map<uint64_t, Made> made_;
  FakeWorker worker_{v1::WORKER_ROLE_TARGET};
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_ENDLESS_TARGET_H_
