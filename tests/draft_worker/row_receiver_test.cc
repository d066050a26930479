// The target's keys and values in the draft engine: the text that a session
// begins with waits for its rows, nothing else does, and each session sees its
// own.

#include "draft_worker/row_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr model::TargetRowShape kShape = {1, 1, 1};  // two numbers a row

class FakeReader final : public worker::TensorReader {
 public:
  void Subscribe(Subscription subscription) override {
    EXPECT_EQ(open.count(subscription.channel), 0u) << "subscribed to twice";
    open[subscription.channel] = std::move(subscription);
  }
  void WantRows(uint64_t channel, int end) override {
    open.at(channel).rows->end = end;
  }
  void Unsubscribe(uint64_t channel) override {
    EXPECT_EQ(open.erase(channel), 1u);
  }
  std::map<uint64_t, Subscription> open;
};

class RowReceiverTest : public ::testing::Test {
 protected:
  explicit RowReceiverTest(worker::StepBudget budget = {},
                           model::TargetRowShape shape = kShape,
                           int max_lag = 0) {
    TableModelOptions options;
    options.reads_target = shape;
    options.max_lag = max_lag;
    options.context_length = 4000;
    // A row sees what is there when it is fed.
    options.on_sequence = [this](const model::SequenceRows& rows) {
      ASSERT_EQ(rows.target != nullptr, has_target_);
      const int there = has_target_ ? rows.target->length() : 0;
      for (size_t i = 0; i < rows.token_ids.size(); ++i) {
        const int position = rows.sequence->length() + static_cast<int>(i);
        missing_.push_back(std::max(0, position - there));
      }
      if (has_target_) last_target_ = rows.target;
    };
    fixture_ = std::make_unique<DraftFixture>(options, budget, nullptr, nullptr,
                                              &reader_);
  }

  static OpenDraft Opening(uint64_t id = 1, int num_slots = 0) {
    OpenDraft open = MakeOpen(id, {3, 4, 5, 6, 7}, /*lead=*/3);
    open.sampling.repetition_penalty = 1;
    open.hidden_address = "target:1";
    open.kv_channel = 70 + id;
    open.num_slots = num_slots;
    open.max_length = 2500;
    return open;
  }
  // Rows `first` to `end` - 1, whose values say which they are.
  void Send(uint64_t id, int first, int end, uint32_t epoch = 3) {
    worker::ReceivedTensor received;
    received.tensor.tag.channel = 70 + id;
    received.tensor.tag.epoch = epoch;
    received.tensor.tag.position = first;
    received.tensor.tag.is_rows = true;
    received.tensor.shape = {end - first, kShape.row_size()};
    std::vector<float> values;
    for (int i = first; i < end; ++i) {
      values.push_back(static_cast<float>(100 * id) + static_cast<float>(i));
      values.push_back(0.5f);
    }
    received.tensor.Own(std::move(values));
    sinks_.at(id)->OnTensor(std::move(received));
  }
  void Open(const OpenDraft& open) {
    fixture_->Open(open);
    fixture_->Drain();
    const auto it = reader_.open.find(70 + open.session_id);
    if (it != reader_.open.end()) sinks_[open.session_id] = it->second.sink;
  }
  void Close(uint64_t id) {
    DraftCommands commands;
    commands.stream = 1;
    commands.close = {id};
    fixture_->engine->Push(std::move(commands));
    fixture_->Drain();
  }
  std::vector<int32_t> Drafted(uint64_t id = 1) {
    fixture_->Drain();
    return fixture_->TakeDrafted(id);
  }
  std::vector<int> TakeMissing() { return std::exchange(missing_, {}); }

  FakeReader reader_;
  std::map<uint64_t, std::shared_ptr<worker::TensorSink>> sinks_;
  bool has_target_ = true;
  std::vector<int> missing_;  // of each row fed
  model::TargetSequence* last_target_ = nullptr;
  std::unique_ptr<DraftFixture> fixture_;
};

TEST_F(RowReceiverTest, AsksForWhatTheDrafterReads) {
  Open(Opening());
  ASSERT_EQ(reader_.open.size(), 1u);
  const auto& subscription = reader_.open.at(71);
  EXPECT_EQ(subscription.address, "target:1");
  EXPECT_EQ(subscription.num_values, 2u);
  ASSERT_TRUE(subscription.rows.has_value());
  EXPECT_EQ(subscription.rows->shape, kShape);
  EXPECT_EQ(subscription.rows->end, 4 + RowReceiver::kAhead);
  EXPECT_EQ(subscription.rows->epoch, 3u);
  Close(1);
  EXPECT_THAT(reader_.open, IsEmpty());
  Send(1, 0, 2);  // on its way when the session was closed
  fixture_->Drain();
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 1u);
}

TEST_F(RowReceiverTest, WithoutAChannelItReadsNothing) {
  has_target_ = false;
  OpenDraft open = Opening();
  open.kv_channel = 0;
  Open(open);
  EXPECT_THAT(reader_.open, IsEmpty());
  EXPECT_EQ(Drafted().size(), 3u);
}

// A row is fed when the target's rows before it are there.
TEST_F(RowReceiverTest, TheFirstTextWaitsForItsRows) {
  for (const int num_slots : {0, 16}) {
    SCOPED_TRACE(num_slots);
    const uint64_t id = num_slots == 0 ? 1 : 2;
    Open(Opening(id, num_slots));
    EXPECT_EQ(TakeMissing(), std::vector<int>{0}) << "the first row sees none";
    Send(id, 0, 2);
    fixture_->Drain();
    EXPECT_THAT(fixture_->tails[id], IsEmpty());
    EXPECT_THAT(TakeMissing(), ElementsAre(0, 0));
    Send(id, 2, 4);
    fixture_->Drain();
    EXPECT_THAT(fixture_->tails[id], Not(IsEmpty()));
    // The rest of the text, then what it drafts, ahead of the target.
    EXPECT_THAT(std::vector<int>(missing_.begin(), missing_.begin() + 2),
                Each(0));
    EXPECT_GT(missing_.back(), 0);
    TakeMissing();
  }
}

TEST_F(RowReceiverTest, RowsComeAgainAndInParts) {
  Open(Opening());
  Send(1, 0, 2);
  Send(1, 0, 2);  // again
  Send(1, 1, 3);  // in part again
  Send(1, 3, 9);  // and on
  EXPECT_EQ(Drafted().size(), 3u);
  ASSERT_NE(last_target_, nullptr);
  ASSERT_EQ(last_target_->length(), 9);
  const auto& rows =
      static_cast<const nacre::testing::TargetTable*>(last_target_)->rows;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(rows[static_cast<size_t>(2 * i)], 100.0f + static_cast<float>(i));
  }
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 1u);
  EXPECT_EQ(fixture_->engine->tensor_use().used, 3u) << "runs";
}

TEST_F(RowReceiverTest, RowsForADraftBeforeAreDropped) {
  Open(Opening());
  Send(1, 0, 4, /*epoch=*/2);
  EXPECT_THAT(Drafted(), IsEmpty());
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 1u);
  Send(1, 0, 4);
  EXPECT_EQ(Drafted().size(), 3u);
}

TEST_F(RowReceiverTest, EachSessionSeesItsOwn) {
  Open(Opening(1));
  Open(Opening(2));
  Send(2, 0, 4);
  EXPECT_EQ(Drafted(2).size(), 3u);
  EXPECT_THAT(Drafted(1), IsEmpty());
  ASSERT_NE(last_target_, nullptr);
  EXPECT_EQ(static_cast<const nacre::testing::TargetTable*>(last_target_)
                ->rows.front(),
            200.0f);
  Send(1, 0, 4);
  EXPECT_EQ(Drafted(1).size(), 3u);
}

// The target has failed, or does not have what was asked for.
TEST_F(RowReceiverTest, LostItGoesOnWithWhatIsThere) {
  Open(Opening());
  Send(1, 0, 2);
  EXPECT_THAT(Drafted(), IsEmpty());
  sinks_.at(1)->OnLost(71, absl::UnavailableError("gone"));
  EXPECT_EQ(Drafted().size(), 3u);
  EXPECT_EQ(last_target_->length(), 2);
  Close(1);
  EXPECT_THAT(reader_.open, IsEmpty());
}

// A request keeps its channel when it gets another target.
TEST_F(RowReceiverTest, TheLossOfTheTargetBeforeMayBeHeardOfLate) {
  Open(Opening());
  const auto before = sinks_.at(1);
  Close(1);
  OpenDraft open = Opening();
  open.epoch = 4;
  Open(open);
  before->OnLost(71, absl::UnavailableError("gone"));
  EXPECT_THAT(Drafted(), IsEmpty());  // it waits for rows
  Send(1, 0, 4, /*epoch=*/4);
  EXPECT_EQ(Drafted().size(), 3u);
  EXPECT_EQ(last_target_->length(), 4);
  EXPECT_EQ(fixture_->engine->tensor_use().stale, 0u);
}

// Such as one that does not know of rows: it never answers.
TEST_F(RowReceiverTest, ATargetThatSendsNoneIsNotWaitedForForEver) {
  Open(Opening());
  std::vector<int32_t> drafted;
  int committed = 5;
  while (drafted.empty() && committed < 500) {
    fixture_->Commit(1, committed, {2, 9});
    committed += 2;
    drafted = Drafted();
  }
  EXPECT_EQ(drafted.size(), 3u);
  EXPECT_GT(committed, 4 + RowReceiver::kPatience);
  EXPECT_LE(committed, 4 + RowReceiver::kPatience + 2);
}

// What is not finite would be kept, and shared, as keys of the draft's own.
TEST_F(RowReceiverTest, RowsThatMakeNoSenseEndTheChannel) {
  Open(Opening(1));
  Open(Opening(2));
  Send(1, 0, 2);
  Send(1, 3, 5);  // one is missing
  EXPECT_EQ(Drafted(1).size(), 3u);
  EXPECT_EQ(reader_.open.count(71), 0u);
  worker::ReceivedTensor received;
  received.tensor.tag = {72, 3, 0, 0, false, true};
  received.tensor.shape = {2, 2};
  received.tensor.Own({1, 2, std::numeric_limits<float>::quiet_NaN(), 4});
  sinks_.at(2)->OnTensor(std::move(received));
  EXPECT_EQ(Drafted(2).size(), 3u);
  EXPECT_EQ(last_target_->length(), 0);
  EXPECT_THAT(reader_.open, IsEmpty());
  EXPECT_EQ(fixture_->engine->tensor_use().malformed_rows, 2u);
  EXPECT_EQ(fixture_->engine->tensor_use().used, 1u);
}

// Of a draft's own keys others may have those that saw all of the target.
TEST(SeenTargetTest, KnowsWhatWasFedWithAllRows) {
  SeenTarget seen;
  auto rows = std::make_unique<nacre::testing::TargetTable>(1);
  nacre::testing::TargetTable* const table = rows.get();
  seen.rows = std::move(rows);
  seen.OnFed(0, 5);
  EXPECT_EQ(seen.whole_length, 1) << "the first one sees none";
  table->Append(std::vector<float>(4));
  seen.OnFed(5, 1);
  EXPECT_EQ(seen.whole_length, 1) << "what came before was not whole";
  seen.OnFed(1, 3);  // again, after a roll-back
  EXPECT_EQ(seen.whole_length, 4);
  seen.OnFed(4, 4);
  EXPECT_EQ(seen.whole_length, 5);
  seen.OnFed(2, 1);
  EXPECT_EQ(seen.whole_length, 3);
}

TEST_F(RowReceiverTest, SharesNoKeysThatSawLessThanAll) {
  Open(Opening());
  Send(1, 0, 4);
  fixture_->Drain();
  EXPECT_EQ(fixture_->model.most_shared(), 5);
  // A session of the same text that gets no rows shares nothing of its own.
  OpenDraft blind = Opening(2);
  blind.kv_channel = 0;
  blind.token_ids = {3, 4, 5, 6, 7, 8, 9};
  blind.prompt_length = 7;
  has_target_ = false;
  Open(blind);
  EXPECT_FALSE(Drafted(2).empty());
  EXPECT_EQ(fixture_->model.most_shared(), 5);
}

TEST_F(RowReceiverTest, IsNotRecorded) {
  TableModelOptions options;
  options.reads_target = kShape;
  const std::string path = ::testing::TempDir() + "/row_receiver_features";
  const auto file = *worker::FeatureFile::Open(path);
  DraftFixture fixture(options, {}, nullptr, file.get(), &reader_);
  const absl::Status status = fixture.engine->Prepare();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      status.ToString(),
      ::testing::HasSubstr("--record-features needs a draft that reads"));
}

TEST_F(RowReceiverTest, AsksForMoreAsRowsCome) {
  Open(Opening());
  const int first = 4 + RowReceiver::kAhead;
  Send(1, 0, 500);
  fixture_->Drain();
  EXPECT_EQ(reader_.open.at(71).rows->end, first);
  Send(1, 500, 600);
  fixture_->Drain();
  EXPECT_EQ(reader_.open.at(71).rows->end, 600 + RowReceiver::kAhead);
}

// What it drafts is what it would draft: rows change no token of a table.
TEST_F(RowReceiverTest, CommitsGoOnBesideRows) {
  const OpenDraft open = Opening();
  Open(open);
  Send(1, 0, 4);
  std::vector<int32_t> text = open.token_ids;
  for (int turn = 0; turn < 20; ++turn) {
    const std::vector<int32_t> drafted = Drafted();
    ASSERT_THAT(drafted, Not(IsEmpty()));
    EXPECT_EQ(drafted, Continue(fixture_->model, open, text,
                                static_cast<int>(drafted.size())));
    // The target disagrees at the second one.
    const int at = static_cast<int>(text.size());
    text.push_back(drafted[0]);
    text.push_back((drafted[1] + 1) % 16);
    fixture_->Commit(1, at, {text[text.size() - 2], text.back()});
    if (turn % 2 == 0) Send(1, at - 1, at + 1);
  }
  EXPECT_TRUE(fixture_->failures.empty());
}

// Two numbers a position, and it can say two tokens after the newest one.
class FeatureReceiverTest : public RowReceiverTest {
 protected:
  FeatureReceiverTest() : RowReceiverTest({}, {.num_features = 2}, 2) {}

  static OpenDraft Opening(int num_slots = 0) {
    OpenDraft open = RowReceiverTest::Opening(1, num_slots);
    open.plan = {8, 8};
    return open;
  }
  // Of a chain: what a step fed beyond its rows, it fed alone.
  void ExpectFedOneAtATime() {
    const std::vector<int> missing = TakeMissing();
    EXPECT_THAT(missing, Each(::testing::Le(1))) << "at most to the horizon";
  }
  speculation::StopMark LastStop() {
    EXPECT_THAT(fixture_->tails[1], Not(IsEmpty()));
    return fixture_->tails[1].empty() ? speculation::StopMark::kNone
                                      : fixture_->tails[1].back().stop;
  }
};

TEST_F(FeatureReceiverTest, DraftsAsFarBeyondItsRowsAsItCan) {
  for (const bool in_slots : {false, true}) {
    SCOPED_TRACE(in_slots);
    fixture_->tails.clear();
    Open(Opening(in_slots ? 16 : 0));
    EXPECT_EQ(reader_.open.at(71).rows->draft_fingerprint,
              fixture_->model.info().fingerprint);
    EXPECT_EQ(LastStop(), speculation::StopMark::kLead) << "not yet";
    Send(1, 0, 4);
    fixture_->Drain();
    // Position 5 is that of the token after row 4's, which is not there.
    EXPECT_EQ(LastStop(), speculation::StopMark::kLead);
    if (!in_slots) {
      EXPECT_EQ(Drafted().size(), 2u);
    }
    fixture_->tails[1].clear();
    Send(1, 4, 5);
    fixture_->Drain();
    EXPECT_THAT(fixture_->tails[1], Not(IsEmpty())) << "one more";
    Close(1);
  }
}

// They came before the commit: what the draft has there may be another token.
TEST_F(FeatureReceiverTest, RowsWaitForTheTokensThatTheyAreOf) {
  Open(Opening());
  Send(1, 0, 4);
  const std::vector<int32_t> drafted = Drafted();
  ASSERT_EQ(drafted.size(), 2u);
  Send(1, 4, 8);
  EXPECT_EQ(Drafted().size(), 1u) << "row 4 is of a token that it knows";
  EXPECT_EQ(last_target_->length(), 5);
  // Positions 5 to 8; what stands at 5 is another token.
  fixture_->Commit(1, 5, {(drafted[0] + 1) % 16, 2, 3, 4});
  EXPECT_EQ(Drafted().size(), 2u);
  EXPECT_EQ(last_target_->length(), 8);
  const auto& rows =
      static_cast<const nacre::testing::TargetTable*>(last_target_)->rows;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(rows[static_cast<size_t>(2 * i)], 100.0f + static_cast<float>(i));
  }
  ExpectFedOneAtATime();
  const worker::TensorUse use = fixture_->engine->tensor_use();
  EXPECT_EQ(use.rows, 8u);
  EXPECT_EQ(use.used, 2u);
  EXPECT_EQ(use.row_commits, 1u);
  EXPECT_EQ(use.missing_rows, 0u);
}

TEST_F(FeatureReceiverTest, CatchesUpATokenAtATime) {
  Open(Opening());
  Send(1, 0, 4);
  EXPECT_EQ(Drafted().size(), 2u);
  TakeMissing();
  // All of another text, and no rows of it: 6 is the last that it may feed.
  fixture_->Commit(1, 5, {1, 1, 1, 1});
  EXPECT_THAT(Drafted(), IsEmpty());
  EXPECT_EQ(fixture_->engine->tensor_use().missing_rows, 4u);
  ExpectFedOneAtATime();
  Send(1, 4, 8);
  EXPECT_EQ(Drafted().size(), 2u);
  ExpectFedOneAtATime();
}

TEST_F(FeatureReceiverTest, TheFirstRowsMayBeLostAndNoOthers) {
  Open(Opening());
  Send(1, 3, 4);
  EXPECT_EQ(Drafted().size(), 2u);
  EXPECT_EQ(
      static_cast<const nacre::testing::TargetTable*>(last_target_)->first, 3);
  fixture_->Commit(1, 5, {1, 2, 3});
  EXPECT_EQ(fixture_->engine->tensor_use().lost_rows, 3u);
  Send(1, 5, 7);  // one is missing
  EXPECT_THAT(Drafted(), IsEmpty());
  EXPECT_EQ(last_target_->length(), 4);
  EXPECT_EQ(fixture_->engine->tensor_use().lost_rows, 4u);
  EXPECT_EQ(fixture_->engine->tensor_use().given_up, 1u);
  EXPECT_THAT(reader_.open, IsEmpty()) << "it asks no more";
}

// A target took over more of a prompt than the draft had asked for.
TEST_F(FeatureReceiverTest, ManyRowsMayBeLostAtFirst) {
  OpenDraft open = Opening();
  open.token_ids.assign(1500, 3);
  open.prompt_length = 1500;
  Open(open);
  Send(1, 1499, 1500);
  EXPECT_EQ(Drafted().size(), 3u);
  EXPECT_EQ(fixture_->engine->tensor_use().lost_rows, 1499u);
  fixture_->Commit(1, 1500, {1, 2, 3});
  Send(1, 1500, 1503);
  EXPECT_EQ(Drafted().size(), 3u);
  EXPECT_EQ(fixture_->engine->tensor_use().missing_rows, 2u);
  EXPECT_EQ(reader_.open.size(), 1u);
}

// A draft may have less room than its target.
TEST_F(FeatureReceiverTest, RowsBeyondItsRoomAreDropped) {
  OpenDraft open = Opening();
  open.max_length = 8;
  Open(open);
  Send(1, 0, 4);
  EXPECT_FALSE(Drafted().empty());
  fixture_->Commit(1, 5, {1, 2, 3, 4, 5, 6});
  Send(1, 4, 8);
  Send(1, 8, 10);
  fixture_->Drain();
  EXPECT_EQ(last_target_->length(), 8);
  EXPECT_EQ(reader_.open.size(), 1u) << "nothing is missing";
}

TEST_F(FeatureReceiverTest, WithoutRowsItSaysNothing) {
  OpenDraft open = Opening();
  open.kv_channel = 0;
  has_target_ = false;
  Open(open);
  EXPECT_THAT(reader_.open, IsEmpty());
  EXPECT_EQ(LastStop(), speculation::StopMark::kEnd) << "none will come";
  EXPECT_THAT(Drafted(), IsEmpty());
  Close(1);
  has_target_ = true;
  Open(Opening());
  EXPECT_EQ(LastStop(), speculation::StopMark::kLead);
  sinks_.at(1)->OnLost(71, absl::UnavailableError("gone"));
  fixture_->Drain();
  EXPECT_EQ(LastStop(), speculation::StopMark::kEnd);
  EXPECT_THAT(Drafted(), IsEmpty());
  fixture_->Commit(1, 5, {1, 2, 3});
  fixture_->Drain();
  EXPECT_THAT(fixture_->tails[1], IsEmpty()) << "it has said so";
  EXPECT_TRUE(fixture_->failures.empty());
}

// The draft keeps none of the rows that it did not ask for.
TEST_F(FeatureReceiverTest, MoreThanWasAskedForEndsTheChannel) {
  Open(Opening());
  const int asked = reader_.open.at(71).rows->end;
  EXPECT_EQ(asked, RowReceiver::kAhead);
  Send(1, 0, 600);
  fixture_->Drain();
  EXPECT_EQ(reader_.open.at(71).rows->end, asked)
      << "the draft has read five of them";
  Send(1, 600, asked + 1);
  fixture_->Drain();
  EXPECT_THAT(reader_.open, IsEmpty());
}

// As long as some come, however many tokens are committed meanwhile.
TEST_F(FeatureReceiverTest, IsPatientWhileRowsCome) {
  OpenDraft open = Opening();
  open.token_ids.assign(600, 3);
  open.prompt_length = 600;
  Open(open);
  int committed = 600;
  for (int first = 0; first < 640; first += 8) {
    Send(1, first, first + 8);
    fixture_->Commit(1, committed, std::vector<int32_t>(8, 3));
    committed += 8;
    fixture_->Drain();
    ASSERT_EQ(reader_.open.size(), 1u) << first;
  }
  // What was fed is asked for anew, to the end of the session's room.
  EXPECT_GT(reader_.open.at(71).rows->end, RowReceiver::kAhead);
}

TEST_F(RowReceiverTest, WithoutRoomForRowsItDraftsWithout) {
  has_target_ = false;
  OpenDraft open = Opening();
  TableModelOptions options;
  options.reads_target = kShape;
  options.kv_capacity_tokens = 700;  // the sequence leaves 200
  DraftFixture fixture(options, {}, nullptr, nullptr, &reader_);
  open.max_length = 500;
  fixture.Open(open);
  fixture.Drain();
  EXPECT_THAT(reader_.open, IsEmpty());
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 3u);
}

}  // namespace
}  // namespace nacre::draft_worker
