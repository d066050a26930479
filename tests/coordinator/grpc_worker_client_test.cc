// What of the two ends of a hidden-state channel crosses the wire. The rest of
// the client is tested with what uses it.

#include "coordinator/grpc_worker_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/coordinator/fake_worker.h"

namespace nacre::coordinator {
namespace {

TEST(GrpcWorkerClientTest, DraftsAndTargetsHearOfTheHiddenChannel) {
  constexpr uint64_t kChannel = 0xF000000000000001u;
  const auto request = std::make_shared<RequestSpec>();
  request->prompt_ids = {1, 2};
  request->max_tokens = 4;
  for (const WorkerRole role : {WorkerRole::kDraft, WorkerRole::kTarget}) {
    FakeWorker worker(role == WorkerRole::kDraft ? v1::WORKER_ROLE_DRAFT
                                                 : v1::WORKER_ROLE_TARGET);
    worker.draft.attachment = worker.target.attachment = kChannel + 1;
    Mailbox<bool> lost;
    GrpcWorkerClient::Callbacks callbacks;
    Mailbox<uint64_t> ready;
    callbacks.on_ready = [&](uint64_t attachment) { ready.Put(attachment); };
    callbacks.on_events = [](const WorkerEvents&) {};
    callbacks.on_lost = [&](const absl::Status&) { lost.Put(true); };
    const auto client = GrpcWorkerClient::Connect(role, worker.address(), {},
                                                  std::move(callbacks));
    if (role == WorkerRole::kDraft) {
      DraftOpening opening;
      opening.session_id = 3;
      opening.request = request;
      opening.hidden_address = "target:5";
      opening.hidden_channel = kChannel;
      client->OpenDraft(opening);
      client->Cut();
      client->Flush();
      EXPECT_TRUE(worker.draft.controls.Await([](const auto& control) {
        return control.open_size() == 1 &&
               control.open(0).hidden_address() == "target:5" &&
               control.open(0).hidden_channel() == kChannel;
      }));
    } else {
      TargetOpening opening;
      opening.session_id = 3;
      opening.request = request;
      opening.hidden_channel = kChannel;
      client->OpenTarget(opening);
      client->Cut();
      client->Flush();
      EXPECT_TRUE(worker.target.controls.Await([](const auto& control) {
        return control.open_size() == 1 &&
               control.open(0).hidden_channel() == kChannel;
      }));
    }
    EXPECT_TRUE(
        ready.Await([](uint64_t number) { return number == kChannel + 1; }));
    client->Cancel();
    EXPECT_TRUE(lost.Await([](bool) { return true; }));
  }
}

// One thread decides at a time, any thread sends.
TEST(GrpcWorkerClientTest, MessagesLeaveInTheOrderInWhichTheyWereCut) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 500;  // of each
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  Mailbox<bool> ready, lost;
  GrpcWorkerClient::Callbacks callbacks;
  callbacks.on_ready = [&](uint64_t) { ready.Put(true); };
  callbacks.on_events = [](const WorkerEvents&) {};
  callbacks.on_lost = [&](const absl::Status&) { lost.Put(true); };
  const auto client = GrpcWorkerClient::Connect(
      WorkerRole::kTarget, worker.address(), {}, std::move(callbacks));
  ASSERT_TRUE(ready.Await([](bool) { return true; }));
  absl::Mutex dispatchers;
  int decided = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kMessages; ++j) {
        {
          absl::MutexLock lock(&dispatchers);
          client->Acknowledge(/*session_id=*/1, ++decided);
          client->Cut();
        }
        if (j % 100 == 0) client->Ping();
        client->Flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(worker.target.controls.Await([](const auto& control) {
    return control.acknowledge_size() == 1 &&
           control.acknowledge(0).committed_length() == kThreads * kMessages;
  }));
  uint32_t last = 0;
  for (const v1::TargetControl& control : worker.target.controls.values()) {
    ASSERT_LE(control.acknowledge_size(), 1);
    if (control.acknowledge_size() == 0) continue;  // a ping
    EXPECT_EQ(control.acknowledge(0).committed_length(), ++last);
  }
  client->Cancel();
  EXPECT_TRUE(lost.Await([](bool) { return true; }));
}

}  // namespace
}  // namespace nacre::coordinator
