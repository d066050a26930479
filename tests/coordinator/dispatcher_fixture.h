// A dispatcher with recorded workers and clients, for its tests.

#ifndef TESTS_COORDINATOR_DISPATCHER_FIXTURE_H_
#define TESTS_COORDINATOR_DISPATCHER_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_client.h"
#include "tests/coordinator/recording_observer.h"
#include "tests/coordinator/recording_sink.h"

namespace nacre::coordinator {

class DispatcherTest : public ::testing::Test {
 protected:
  struct Worker {
    uint64_t id = 0;
    std::shared_ptr<RecordingClient> client;
    WorkerRole role = WorkerRole::kTarget;
  };
  struct Run {
    uint64_t id = 0;
    std::shared_ptr<RecordingSink> sink;
  };

  // Changes the dispatcher's options before it is made.
  using Adjust = std::function<void(Dispatcher::Options*)>;
  explicit DispatcherTest(const Adjust& adjust = [](Dispatcher::Options*) {})
      : dispatcher_(MakeOptions(adjust)) {}

  static WorkerInfo Info(WorkerRole role, const std::string& address) {
    WorkerInfo info;
    info.role = role;
    info.address = address;
    info.fingerprint = role == WorkerRole::kTarget ? "big" : "small";
    info.model_name = "pearl";
    info.model_vocab_size = 300;
    info.tokenizer_vocab_size = 290;
    info.context_length = 1024;
    info.eos_token_ids = {ByteTokenizer::kEos};
    info.step_times_ns = {{1, 5000000}};
    return info;
  }
  Worker AddWith(WorkerInfo info) {
    Worker worker;
    worker.client = std::make_shared<RecordingClient>();
    worker.role = info.role;
    const absl::StatusOr<uint64_t> id =
        AddWorker(&dispatcher_, std::move(info), worker.client);
    EXPECT_TRUE(id.ok()) << id.status();
    worker.id = id.value_or(0);
    return worker;
  }
  // `kv_tokens` 0: a worker that does not tell what it has room for.
  Worker Add(WorkerRole role, const std::string& address,
             int64_t kv_tokens = 0) {
    WorkerInfo info = Info(role, address);
    info.kv_capacity_tokens = kv_tokens;
    return AddWith(std::move(info));
  }
  // A target that computes other bits than those of other ids.
  Worker AddKind(const std::string& address, const std::string& numerics_id,
                 int64_t kv_tokens = 0) {
    WorkerInfo info = Info(WorkerRole::kTarget, address);
    info.numerics_id = numerics_id;
    info.kv_capacity_tokens = kv_tokens;
    return AddWith(std::move(info));
  }
  Worker AddTarget(const std::string& address = "target",
                   int64_t kv_tokens = 0) {
    return Add(WorkerRole::kTarget, address, kv_tokens);
  }
  Worker AddDraft(const std::string& address = "draft", int64_t kv_tokens = 0) {
    return Add(WorkerRole::kDraft, address, kv_tokens);
  }

  static RequestSpec Request(const std::string& request_id) {
    RequestSpec request;
    request.request_id = request_id;
    request.prompt_ids = {7, 8};
    request.max_tokens = 1000;
    request.stream = true;
    return request;
  }
  Run Start(RequestSpec request) {
    Run run;
    run.sink = std::make_shared<RecordingSink>();
    const absl::StatusOr<uint64_t> id =
        dispatcher_.Start(std::move(request), run.sink);
    EXPECT_TRUE(id.ok()) << id.status();
    run.id = id.value_or(0);
    return run;
  }
  // A prompt of 2 and the rest: `tokens` in all.
  static RequestSpec Sized(const std::string& id, int tokens) {
    RequestSpec request = Request(id);
    request.max_tokens = tokens - 2;
    return request;
  }
  Run Start(const std::string& request_id = "r") {
    return Start(Request(request_id));
  }

  void Verdict(
      const Worker& worker, uint64_t session_id, int base_length,
      std::vector<int32_t> token_ids,
      speculation::FinishReason finish = speculation::FinishReason::kNone) {
    speculation::Verdict verdict;
    verdict.base_length = base_length;
    verdict.token_ids = std::move(token_ids);
    verdict.finish = finish;
    wire::TargetEvents events;
    events.verdicts.push_back({session_id, std::move(verdict)});
    dispatcher_.OnEvents(worker.id, events);
  }
  void Tail(const Worker& worker, uint64_t session_id, uint32_t epoch,
            int base_length, std::vector<int32_t> token_ids) {
    speculation::Tail tail;
    tail.epoch = epoch;
    tail.base_length = base_length;
    tail.first_position = base_length;
    tail.token_ids = std::move(token_ids);
    wire::DraftEvents events;
    events.tails.push_back({session_id, std::move(tail)});
    dispatcher_.OnEvents(worker.id, events);
  }
  void Fail(const Worker& worker, uint64_t session_id, int code,
            const std::string& message, uint32_t epoch = 0) {
    wire::SessionEvents events;
    events.failures.push_back(
        {session_id, absl::Status(static_cast<absl::StatusCode>(code), message),
         epoch});
    Say(worker, std::move(events));
  }
  // The worker has closed the session.
  void Closed(const Worker& worker, uint64_t session_id) {
    wire::SessionEvents events;
    events.closed.push_back(session_id);
    Say(worker, std::move(events));
  }
  // What both kinds of worker may say.
  void Say(const Worker& worker, wire::SessionEvents events) {
    if (worker.role == WorkerRole::kTarget) {
      dispatcher_.OnEvents(worker.id, wire::TargetEvents{std::move(events)});
    } else {
      dispatcher_.OnEvents(worker.id, wire::DraftEvents{std::move(events)});
    }
  }
  std::string DraftAddress(uint64_t session_id) {
    for (const SessionStatus& session : dispatcher_.sessions()) {
      if (session.id == session_id) return session.draft_address;
    }
    return "no such session";
  }
  std::string TargetAddress(uint64_t session_id) {
    for (const SessionStatus& session : dispatcher_.sessions()) {
      if (session.id == session_id) return session.target_address;
    }
    return "no such session";
  }
  int NumSessions(const Worker& worker) {
    for (const WorkerStatus& status : dispatcher_.workers()) {
      if (status.id == worker.id) return status.sessions;
    }
    return -1;
  }

  // KV that is promised to sessions on it.
  int64_t Reserved(const Worker& worker) {
    for (const WorkerStatus& status : dispatcher_.workers()) {
      if (status.id == worker.id) return status.reserved_tokens;
    }
    return -1;
  }

  const ByteTokenizer tokenizer_;
  // The dispatcher's clock stands still until a test moves it.
  int64_t now_ns_ = 1000;
  std::vector<int64_t> wakes_;  // what the dispatcher asked for
  RecordingObserver observer_;
  Dispatcher dispatcher_;

 private:
  Dispatcher::Options MakeOptions(const Adjust& adjust) {
    Dispatcher::Options options;
    options.tokenizer = &tokenizer_;
    options.observer = &observer_;
    options.now_ns = [this] { return now_ns_; };
    options.wake_at = [this](int64_t at_ns) { wakes_.push_back(at_ns); };
    adjust(&options);
    return options;
  }
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_DISPATCHER_FIXTURE_H_
