// The target's hidden states in the draft engine: they reach the policy of
// their session at their commit, and a session goes on without them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using speculation::StopMark;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using wire::Span;

constexpr uint64_t kChannel = 77;
constexpr char kLost[] =
    "no model score: the target's hidden states stopped coming";

class FakeReader final : public worker::TensorReader {
 public:
  void Subscribe(Subscription subscription) override {
    EXPECT_EQ(open.count(subscription.channel), 0u) << "subscribed to twice";
    open[subscription.channel] = std::move(subscription);
  }
  void Unsubscribe(uint64_t channel) override {
    EXPECT_EQ(open.erase(channel), 1u);
  }
  std::map<uint64_t, Subscription> open;
};

// A policy that goes on if the target's state says so, and stops after every
// token where there is none.
PolicyFile CaliTs(int target_size = 2) {
  PolicyFile file;
  file.target_fingerprint = "big";
  file.calibration.defaults =
      *speculation::ParsePolicySpec("cali-ts:sigma-model=1e-6,theta0=0");
  speculation::CaliTsModel model;
  model.target_size = target_size;
  model.draft_size = 16;
  const size_t size = static_cast<size_t>(target_size);
  for (int step = 0; step < speculation::CaliTsModel::kSteps; ++step) {
    for (size_t i = 0; i < size * size; ++i) {
      model.step_weights.push_back(i % (size + 1) == 0 ? 1.0f : 0.0f);
    }
  }
  model.mix.assign(2 * (size + 16), 0.0f);
  model.mix[size + 16] = 1.0f;  // the first of the state's values
  file.calibration.cali_ts = speculation::CaliTsScorer(model);
  return file;
}

class EngineHiddenTest : public ::testing::Test {
 protected:
  EngineHiddenTest() {
    policies_.Add(speculation::PolicyKind::kCaliTs, CaliTs());
    TableModelOptions options;
    options.shows_hidden = true;
    fixture_ = std::make_unique<DraftFixture>(options, worker::StepBudget(),
                                              &policies_, nullptr, &reader_);
  }

  static OpenDraft Opening(uint64_t id = 1, uint64_t channel = kChannel) {
    OpenDraft open = MakeOpen(id, {3, 4, 5}, /*lead=*/4);
    open.policy = "cali-ts";
    open.target_fingerprint = "big";
    open.hidden_address = "target:1";
    open.hidden_channel = channel;
    return open;
  }
  // The state of `position`: one that lets the policy go on, or stop.
  static worker::ReceivedTensor State(int position, bool goes_on,
                                      int64_t received_ns = 0,
                                      uint32_t epoch = 3) {
    worker::ReceivedTensor received;
    received.tensor.tag = {kChannel, epoch, position, 0, true};
    received.tensor.shape = {2};
    received.tensor.Own({goes_on ? 100.0f : -100.0f, 0.0f});
    received.received_ns = received_ns;
    return received;
  }
  void Send(worker::ReceivedTensor received) {
    reader_.open.at(received.tensor.tag.channel)
        .sink->OnTensor(std::move(received));
  }
  // What the policy said of the tokens drafted since the last call.
  std::vector<StopMark> Drafted(uint64_t id = 1) {
    fixture_->Drain();
    std::vector<StopMark> marks;
    for (const speculation::Tail& tail : fixture_->tails[id]) {
      marks.push_back(tail.stop);
    }
    fixture_->tails[id].clear();
    return marks;
  }
  // A verdict that rejects the first drafted token: the share stays 0.
  void Reject(uint64_t id, int position, int32_t drafted) {
    fixture_->Commit(id, position, {(drafted + 1) % 16});
  }
  std::vector<Span> HiddenSpans() {
    std::vector<Span> spans;
    for (const Span& span : fixture_->spans) {
      if (span.kind == Span::Kind::kHidden) spans.push_back(span);
    }
    return spans;
  }
  uint64_t num_rejected() {
    return fixture_->engine->stats().rejected_messages;
  }
  int32_t FirstDrafted() { return fixture_->tails[1].at(0).token_ids.at(0); }

  const std::vector<StopMark> kStops = {StopMark::kChunk, StopMark::kChunk,
                                        StopMark::kChunk, StopMark::kLead};
  const std::vector<StopMark> kGoesOn = {StopMark::kNone, StopMark::kNone,
                                         StopMark::kNone, StopMark::kLead};
  PolicyLibrary policies_;
  FakeReader reader_;
  std::unique_ptr<DraftFixture> fixture_;
};

TEST_F(EngineHiddenTest, ASessionReadsItsChannelAsLongAsItIsOpen) {
  fixture_->Open(Opening());
  fixture_->Drain();
  ASSERT_EQ(reader_.open.size(), 1u);
  const auto& subscription = reader_.open.at(kChannel);
  EXPECT_EQ(subscription.address, "target:1");
  EXPECT_EQ(subscription.num_values, 2u);
  EXPECT_THAT(fixture_->policy_notes, ElementsAre(""));
  DraftCommands commands;
  commands.stream = 1;
  commands.close = {1};
  fixture_->engine->Push(std::move(commands));
  fixture_->Drain();
  EXPECT_TRUE(reader_.open.empty());
  // The same session may come back, and end with its stream.
  fixture_->Open(Opening());
  fixture_->Drain();
  EXPECT_EQ(reader_.open.size(), 1u);
  DraftCommands end;
  end.stream = 1;
  end.stream_ended = true;
  fixture_->engine->Push(std::move(end));
  fixture_->Drain();
  EXPECT_TRUE(reader_.open.empty());
}

TEST_F(EngineHiddenTest, TheStateOfTheCommitDecides) {
  fixture_->Open(Opening());
  fixture_->Drain();
  int32_t drafted = FirstDrafted();
  EXPECT_EQ(Drafted(), kStops);  // before the first verdict
  for (const bool early : {false, true}) {
    for (const bool goes_on : {true, false, true}) {
      // The newest token is the one that the state of the position before it
      // gave.
      const int length = 3 + static_cast<int>(HiddenSpans().size());
      if (early) Send(State(length - 1, goes_on, fixture_->now_ns));
      Reject(1, length, drafted);
      if (!early) Send(State(length - 1, goes_on, fixture_->now_ns + 5000));
      fixture_->Drain();
      drafted = FirstDrafted();
      EXPECT_EQ(Drafted(), goes_on ? kGoesOn : kStops);
      const Span span = HiddenSpans().back();
      EXPECT_EQ(span.session_id, 1u);
      EXPECT_EQ(span.bytes, 8);
      EXPECT_EQ(span.length, length + 1);
      if (early) {
        EXPECT_EQ(span.duration_ns, 0);
      } else {
        EXPECT_GT(span.duration_ns, 4000);
        EXPECT_LE(span.duration_ns, 5000);
      }
      fixture_->now_ns += 10000;
    }
  }
  EXPECT_EQ(HiddenSpans().size(), 6u);
  EXPECT_EQ(num_rejected(), 0u);
  int64_t lag_ns = 0;
  for (const Span& span : HiddenSpans()) lag_ns += span.duration_ns;
  const worker::TensorUse use = fixture_->engine->tensor_use();
  EXPECT_EQ(use.used, 6u);
  EXPECT_EQ(use.lag_ns, lag_ns);
  EXPECT_EQ(use.stale, 0u);
}

TEST_F(EngineHiddenTest, ACommitWithoutItsStateHasNoScore) {
  fixture_->Open(Opening());
  fixture_->Drain();
  Reject(1, 3, FirstDrafted());
  Send(State(2, true));
  fixture_->tails[1].clear();
  fixture_->Drain();
  const int32_t drafted = FirstDrafted();
  EXPECT_EQ(Drafted(), kGoesOn);
  Reject(1, 4, drafted);
  EXPECT_EQ(Drafted(), kStops);
}

TEST_F(EngineHiddenTest, StaleStatesAreDroppedAndCounted) {
  fixture_->Open(Opening());
  fixture_->Drain();
  Reject(1, 3, FirstDrafted());
  fixture_->tails[1].clear();
  Send(State(1, true));
  Send(State(2, true, 0, /*epoch=*/2));
  EXPECT_EQ(Drafted(), kStops);
  EXPECT_EQ(num_rejected(), 2u);
  EXPECT_THAT(HiddenSpans(), IsEmpty());
  // Of a session that is closed by now.
  const auto sink = reader_.open.at(kChannel).sink;
  DraftCommands commands;
  commands.stream = 1;
  commands.close = {1};
  fixture_->engine->Push(std::move(commands));
  sink->OnTensor(State(2, true));
  fixture_->Drain();
  EXPECT_EQ(num_rejected(), 3u);
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 3u);
  EXPECT_EQ(fixture_->engine->tensor_use().used, 0u);
  // And of an engine that is gone.
  fixture_ = nullptr;
  sink->OnTensor(State(2, true));
  sink->OnLost(kChannel, absl::UnavailableError("gone"));
}

TEST_F(EngineHiddenTest, ALostChannelIsSaidOnceAndTheSessionGoesOn) {
  fixture_->Open(Opening());
  fixture_->Open(Opening(2, kChannel + 1));
  fixture_->Drain();
  Reject(1, 3, FirstDrafted());
  Send(State(2, true));
  fixture_->tails[1].clear();
  fixture_->Drain();
  const int32_t drafted = FirstDrafted();
  EXPECT_EQ(Drafted(), kGoesOn);
  const auto sink = reader_.open.at(kChannel).sink;
  reader_.open.erase(kChannel);
  sink->OnLost(kChannel, absl::UnavailableError("cut"));
  sink->OnLost(kChannel, absl::UnavailableError("cut"));
  sink->OnTensor(State(3, true));
  Reject(1, 4, drafted);
  EXPECT_EQ(Drafted(), kStops);
  EXPECT_THAT(fixture_->later_notes, ElementsAre(Pair(1u, kLost)));
  EXPECT_EQ(reader_.open.size(), 1u);  // the other session's
  EXPECT_THAT(fixture_->failures, IsEmpty());
}

// A request keeps its channel when it gets another target.
TEST_F(EngineHiddenTest, TheLossOfTheTargetBeforeMayBeHeardOfLate) {
  fixture_->Open(Opening());
  fixture_->Drain();
  const auto before = reader_.open.at(kChannel).sink;
  DraftCommands close;
  close.stream = 1;
  close.close = {1};
  fixture_->engine->Push(std::move(close));
  fixture_->Drain();
  OpenDraft open = Opening();
  open.epoch = 4;
  fixture_->Open(open);
  before->OnLost(kChannel, absl::UnavailableError("cut"));
  fixture_->Drain();
  Send(State(2, true, 0, /*epoch=*/4));
  fixture_->Drain();
  EXPECT_THAT(fixture_->later_notes, IsEmpty());
  EXPECT_EQ(num_rejected(), 0u);
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 0u);
}

TEST_F(EngineHiddenTest, ALossEndsTheScoreOfTheCurrentState) {
  fixture_->Open(Opening());
  fixture_->Drain();
  Reject(1, 3, FirstDrafted());
  Send(State(2, true));
  reader_.open.at(kChannel).sink->OnLost(kChannel, absl::UnknownError(""));
  reader_.open.clear();
  fixture_->tails[1].clear();
  EXPECT_EQ(Drafted(), kStops);
}

TEST_F(EngineHiddenTest, WhatReadsNoneSubscribesToNone) {
  std::vector<OpenDraft> opens;
  OpenDraft open = Opening(1);
  open.policy = "svip";
  opens.push_back(open);
  open = Opening(2);
  open.policy = "";
  opens.push_back(open);
  open = Opening(3);
  open.target_fingerprint = "another";  // its file is not used
  opens.push_back(open);
  open = Opening(4, /*channel=*/0);
  opens.push_back(open);
  open = Opening(5);
  open.hidden_address = "";
  opens.push_back(open);
  for (const OpenDraft& each : opens) fixture_->Open(each);
  fixture_->Drain();
  EXPECT_TRUE(reader_.open.empty());
  using ::testing::HasSubstr;
  EXPECT_THAT(fixture_->policy_notes,
              ElementsAre("", "", HasSubstr("has no file"),
                          HasSubstr("do not come"), HasSubstr("do not come")));
  // A channel belongs to one session. The second session gets none.
  fixture_->Open(Opening(6));
  fixture_->Open(Opening(7));
  fixture_->Drain();
  EXPECT_EQ(reader_.open.size(), 1u);
  EXPECT_THAT(fixture_->policy_notes.back(), HasSubstr("do not come"));
}

}  // namespace
}  // namespace nacre::draft_worker
