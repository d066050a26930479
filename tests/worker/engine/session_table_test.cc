#include "worker/engine/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/worker/engine/fake_session.h"
#include "wire/draft_messages.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SessionTableTest : public ::testing::Test {
 protected:
  FakeSession& Add(StreamId stream, uint64_t id) {
    table_.Add(std::make_unique<FakeSession>(stream, id, /*length=*/3),
               /*num_tokens=*/10);
    return *sessions_.Find({stream, id});
  }
  // What a turn visits, with room for so many.
  std::vector<uint64_t> Turn(size_t room) {
    std::vector<uint64_t> visited;
    sessions_.VisitInTurn([&](FakeSession& session) {
      if (visited.size() >= room) return false;
      visited.push_back(session.id);
      return true;
    });
    return visited;
  }

  EventOutbox<wire::DraftEvents> outbox_{nullptr};
  SessionAccounts accounts_{&outbox_, [] { return int64_t{0}; }};
  std::vector<uint64_t> closing_;
  SessionTable table_{&outbox_, &accounts_, [this](EngineSession& session) {
                        closing_.push_back(session.id);
                      }};
  TypedSessions<FakeSession> sessions_{&table_};
};

TEST_F(SessionTableTest, IdsAreOfTheirStreamOnly) {
  FakeSession& first = Add(1, 7);
  FakeSession& second = Add(2, 7);
  EXPECT_NE(&first, &second);
  EXPECT_EQ(sessions_.Find({1, 7}), &first);
  EXPECT_EQ(sessions_.Find({3, 7}), nullptr);
  EXPECT_EQ(table_.CheckNew({1, 7}),
            absl::AlreadyExistsError("session 7 is already open"));
  EXPECT_TRUE(table_.CheckNew({1, 8}).ok());
}

TEST_F(SessionTableTest, AnOpeningTellsAndCountsWhatTheCacheHad) {
  Add(1, 7);
  ASSERT_EQ(outbox_.Common(1).opened.size(), 1u);
  EXPECT_EQ(outbox_.Common(1).opened[0].cached_tokens, 3);
  EXPECT_EQ(accounts_.counts().prefix_queries, 10u);
  EXPECT_EQ(accounts_.counts().prefix_hits, 3u);
}

TEST_F(SessionTableTest, AClosedSessionIsFoundNoMoreButStaysUntilItIsRemoved) {
  FakeSession& session = Add(1, 7);
  Add(1, 8);
  table_.CloseAsTold(session);
  EXPECT_TRUE(session.closing);
  EXPECT_THAT(closing_, ElementsAre(7));
  EXPECT_THAT(outbox_.Common(1).closed, ElementsAre(7));
  EXPECT_EQ(sessions_.Find({1, 7}), nullptr);
  EXPECT_EQ(sessions_.size(), 2u);
  // Neither a kept set nor the stream's end closes it again.
  table_.Reap(1, {8});
  table_.EndStream(1);
  EXPECT_THAT(closing_, ElementsAre(7, 8));
  EXPECT_THAT(outbox_.Common(1).closed, ElementsAre(7));
  EXPECT_EQ(accounts_.counts().reaped_sessions, 0u);
  table_.RemoveClosed();
  EXPECT_TRUE(sessions_.empty());
}

TEST_F(SessionTableTest, TheEndOfAStreamClosesItsOwnSessions) {
  Add(1, 7);
  FakeSession& other = Add(2, 8);
  table_.EndStream(1);
  EXPECT_THAT(closing_, ElementsAre(7));
  EXPECT_FALSE(other.closing);
  EXPECT_EQ(sessions_.Find({2, 8}), &other);
}

TEST_F(SessionTableTest, AFailureIsToldWithTheEpochItBelongsTo) {
  FakeSession& session = Add(1, 7);
  session.failure_epoch = 4;
  table_.Fail(session, absl::InternalError("no luck"));
  EXPECT_THAT(
      outbox_.Common(1).failures,
      ElementsAre(wire::SessionFailure{7, absl::InternalError("no luck"), 4}));
  EXPECT_THAT(outbox_.Common(1).closed, IsEmpty());
  EXPECT_THAT(closing_, ElementsAre(7));
}

TEST_F(SessionTableTest, WhoWasLeftOutIsVisitedFirstInTheNextTurn) {
  for (const uint64_t id : {1, 2, 3}) Add(1, id);
  EXPECT_THAT(Turn(/*room=*/2), ElementsAre(1, 2));
  EXPECT_TRUE(table_.left_out());
  EXPECT_THAT(Turn(/*room=*/2), ElementsAre(3, 1));
  EXPECT_THAT(Turn(/*room=*/3), ElementsAre(2, 3, 1));
  EXPECT_FALSE(table_.left_out());
  // Its turn is kept while there is room for all.
  EXPECT_THAT(Turn(/*room=*/1), ElementsAre(2));
  table_.CloseAsTold(*sessions_.Find({1, 2}));
  table_.CloseAsTold(*sessions_.Find({1, 3}));
  table_.RemoveClosed();
  EXPECT_THAT(Turn(/*room=*/3), ElementsAre(1));
}

}  // namespace
}  // namespace nacre::worker
