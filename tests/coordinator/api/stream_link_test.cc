// What of the two ends of a hidden-state channel crosses the wire. The rest of
// the client is tested with what uses it.

#include "coordinator/api/stream_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "coordinator/dispatch/clock.h"
#include "tests/coordinator/fake_worker.h"

namespace nacre::coordinator {
namespace {

constexpr uint64_t kChannel = 0xF000000000000001u;

template <typename Link>
class Dialled {
 public:
  explicit Dialled(const FakeWorker& worker) {
    typename Link::Callbacks callbacks;
    callbacks.on_ready = [this](uint64_t attachment) { ready.Put(attachment); };
    callbacks.on_events = [this](const typename Link::Events&) {
      heard.Put(true);
    };
    callbacks.on_lost = [this](const absl::Status&) { lost.Put(true); };
    link = Link::Connect(worker.address(), {}, std::move(callbacks));
  }
  ~Dialled() {
    link->Cancel();
    EXPECT_TRUE(lost.Await([](bool) { return true; }));
  }

  Mailbox<uint64_t> ready;
  Mailbox<bool> heard;  // one value for every message
  Mailbox<bool> lost;
  std::shared_ptr<Link> link;
};

std::shared_ptr<RequestSpec> SmallRequest() {
  auto request = std::make_shared<RequestSpec>();
  request->prompt_ids = {1, 2};
  request->max_tokens = 4;
  return request;
}

TEST(StreamLinkTest, ADraftHearsOfTheHiddenChannel) {
  FakeWorker worker(v1::WORKER_ROLE_DRAFT);
  worker.draft.attachment = kChannel + 1;
  Dialled<DraftStreamLink> draft(worker);
  DraftOpening opening;
  opening.session_id = 3;
  opening.request = SmallRequest();
  opening.hidden_address = "target:5";
  opening.channels.hidden = kChannel;
  draft.link->OpenDraft(opening);
  draft.link->Cut();
  draft.link->Flush();
  EXPECT_TRUE(worker.draft.controls.Await([](const auto& control) {
    return control.open_size() == 1 &&
           control.open(0).hidden_address() == "target:5" &&
           control.open(0).hidden_channel() == kChannel;
  }));
  EXPECT_TRUE(draft.ready.Await(
      [](uint64_t number) { return number == kChannel + 1; }));
}

TEST(StreamLinkTest, ATargetHearsOfTheHiddenChannel) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.attachment = kChannel + 1;
  Dialled<TargetStreamLink> target(worker);
  TargetOpening opening;
  opening.session_id = 3;
  opening.request = SmallRequest();
  opening.channels.hidden = kChannel;
  target.link->OpenTarget(opening);
  target.link->Cut();
  target.link->Flush();
  EXPECT_TRUE(worker.target.controls.Await([](const auto& control) {
    return control.open_size() == 1 &&
           control.open(0).hidden_channel() == kChannel;
  }));
  EXPECT_TRUE(target.ready.Await(
      [](uint64_t number) { return number == kChannel + 1; }));
}

// It would make the round trip the shortest one for ever, and its clock count.
TEST(StreamLinkTest, AnAnswerToAPingToComeIsNone) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.answers_pings = false;
  Dialled<TargetStreamLink> target(worker);
  ASSERT_TRUE(worker.target.controls.Await(
      [](const auto& control) { return control.has_ping(); }));
  const int64_t now_ns = MonotonicNs();
  const auto answer = [&](int64_t sent_ns, int64_t worker_ns,
                          uint64_t attachment) {
    v1::TargetEvent event;
    event.mutable_pong()->set_coordinator_ns(static_cast<uint64_t>(sent_ns));
    event.mutable_pong()->set_worker_ns(worker_ns);
    event.mutable_pong()->set_attachment(attachment);
    EXPECT_TRUE(worker.target.Send(std::move(event)));
  };
  answer(now_ns + 3600 * kSecond, 7 * kSecond, kChannel + 1);
  answer(now_ns, 7 * kSecond, kChannel + 2);
  ASSERT_TRUE(target.ready.Await([](uint64_t) { return true; }));
  EXPECT_EQ(target.ready.values().front(), kChannel + 2);
  // The worker's clock when half of the round trip was over.
  EXPECT_LE(target.link->clock_offset_ns(), 7 * kSecond - now_ns);
  EXPECT_GT(target.link->clock_offset_ns(),
            7 * kSecond - now_ns - 60 * kSecond);
}

// The shorter the way, the less is guessed of when the worker looked.
TEST(StreamLinkTest, TheShortestRoundTripTellsTheWorkersClock) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.answers_pings = false;
  Dialled<TargetStreamLink> target(worker);
  ASSERT_TRUE(worker.target.controls.Await(
      [](const auto& control) { return control.has_ping(); }));
  const int64_t now_ns = MonotonicNs();
  int answers = 0;
  const auto offset_after = [&](int64_t took_ns) {
    v1::TargetEvent event;
    event.mutable_pong()->set_coordinator_ns(
        static_cast<uint64_t>(now_ns - took_ns));
    EXPECT_TRUE(worker.target.Send(std::move(event)));
    EXPECT_TRUE(target.heard.Await([](bool) { return true; }, ++answers));
    return target.link->clock_offset_ns() + now_ns;
  };
  // They took that long, and what has passed since: the worker's clock said 0
  // in the middle.
  const int64_t long_ns = std::min<int64_t>(now_ns / 2, 3600 * kSecond);
  const int64_t first = offset_after(long_ns);
  EXPECT_LE(first, long_ns / 2);
  const int64_t second = offset_after(0);
  EXPECT_LE(second, 0);
  EXPECT_LT(second, first);
  EXPECT_EQ(offset_after(long_ns), second);
}

// One slow answer is no slow network: each counts an eighth. The first pays for
// the connection and does not count.
TEST(StreamLinkTest, RoundTripsAreSmoothed) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.answers_pings = false;
  Dialled<TargetStreamLink> target(worker);
  ASSERT_TRUE(worker.target.controls.Await(
      [](const auto& control) { return control.has_ping(); }));
  int answers = 0;
  const auto round_trip_after = [&](int64_t sent_ns) {
    v1::TargetEvent event;
    event.mutable_pong()->set_coordinator_ns(static_cast<uint64_t>(sent_ns));
    EXPECT_TRUE(worker.target.Send(std::move(event)));
    EXPECT_TRUE(target.heard.Await([](bool) { return true; }, ++answers));
    return target.link->round_trip_ns();
  };
  EXPECT_EQ(round_trip_after(0), 0);
  const int64_t first = round_trip_after(MonotonicNs());
  EXPECT_GT(first, 0);
  // As if sent when the clock began, which is `first` and more ago.
  const int64_t second = round_trip_after(0);
  const int64_t now_ns = MonotonicNs();
  EXPECT_GT(second, first);
  EXPECT_LE(second, first + (now_ns - first) / 8);
}

// The worker applies what it is to keep before all else of a message.
TEST(StreamLinkTest, WhatIsKeptGoesInAMessageBehindTheCloses) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  Dialled<TargetStreamLink> target(worker);
  target.link->Close(3);
  target.link->Keep({4, 5});
  target.link->LoseDraft(4);
  target.link->Cut();
  target.link->Flush();
  EXPECT_TRUE(worker.target.controls.Await([](const auto& control) {
    return control.has_kept() && control.kept().session_ids_size() == 2 &&
           control.draft_lost_size() == 1 && control.close_size() == 0;
  }));
}

// One thread decides at a time, any thread sends.
TEST(StreamLinkTest, MessagesLeaveInTheOrderInWhichTheyWereCut) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 500;  // of each
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  Dialled<TargetStreamLink> target(worker);
  const auto client = target.link;
  ASSERT_TRUE(target.ready.Await([](uint64_t) { return true; }));
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
}

}  // namespace
}  // namespace nacre::coordinator
