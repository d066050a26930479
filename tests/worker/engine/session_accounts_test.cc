#include "worker/engine/session_accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/engine/fake_session.h"
#include "wire/draft_messages.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::Span;

class SessionAccountsTest : public ::testing::Test {
 protected:
  const std::vector<Span>& spans() { return outbox_.Common(1).spans; }

  EventOutbox<wire::DraftEvents> outbox_{nullptr};
  SessionAccounts accounts_{&outbox_, [] { return int64_t{77}; }};
};

TEST_F(SessionAccountsTest, WhatIsCutIsCountedAndTold) {
  FakeSession session(1, 5, /*length=*/12);
  accounts_.TruncateKv(session, 12);
  EXPECT_THAT(spans(), IsEmpty());
  accounts_.TruncateKv(session, 9);
  EXPECT_EQ(session.sequence->length(), 9);
  EXPECT_EQ(accounts_.counts().rollback_tokens, 3u);
  Span span;
  span.session_id = 5;
  span.kind = Span::Kind::kRollback;
  span.start_ns = 77;
  span.rows = 3;
  span.length = 9;
  EXPECT_THAT(spans(), ElementsAre(span));
}

TEST_F(SessionAccountsTest, WhatOthersHaveComputedIsCountedAndTold) {
  FakeSession session(1, 5, /*length=*/4, /*others_have=*/8);
  FakeSession alone(1, 6, /*length=*/4);
  accounts_.BeginPlan(100);
  accounts_.TakeOver(session, {});
  accounts_.TakeOver(alone, {});
  EXPECT_EQ(accounts_.counts().prefix_hits, 8u);
  EXPECT_EQ(accounts_.counts().prefix_brought, 4u);
  EXPECT_THAT(outbox_.Common(1).cached, ElementsAre(wire::SessionCached{5, 8}));
  EXPECT_FALSE(session.takes_over);
}

// One that comes first has what is left of a plan last.
TEST_F(SessionAccountsTest, SessionsShareWhatAPlanMayCopy) {
  FakeSession first(1, 5, /*length=*/4, /*others_have=*/40);
  FakeSession second(1, 6, /*length=*/4, /*others_have=*/16);
  FakeSession third(1, 7, /*length=*/4, /*others_have=*/8);
  const auto plan = [&] {
    accounts_.BeginPlan(3);
    const uint64_t before = accounts_.counts().prefix_brought;
    for (FakeSession* session : {&first, &second, &third}) {
      accounts_.TakeOver(*session, {});
    }
    return accounts_.counts().prefix_brought - before;
  };
  EXPECT_EQ(plan(), 12u);
  EXPECT_TRUE(first.takes_over);
  EXPECT_TRUE(second.takes_over);
  EXPECT_TRUE(third.takes_over);
  EXPECT_EQ(plan(), 12u);
  EXPECT_FALSE(first.takes_over);
  EXPECT_EQ(first.sequence->length(), 44);
  EXPECT_TRUE(second.takes_over);
  EXPECT_EQ(second.sequence->length(), 12);
  EXPECT_TRUE(third.takes_over);
  EXPECT_EQ(plan(), 8u);
  EXPECT_FALSE(second.takes_over);
  EXPECT_FALSE(third.takes_over);
}

TEST_F(SessionAccountsTest, AWaitIsOneSpanUntilItEndsOrIsAnother) {
  FakeSession session(1, 5);
  accounts_.EndWait(session, 5);
  accounts_.NoteWait(session, {.kind = Span::Kind::kWaitVerdict}, 10);
  accounts_.NoteWait(session, {.kind = Span::Kind::kWaitVerdict}, 20);
  EXPECT_THAT(spans(), IsEmpty());
  accounts_.NoteWait(session, {.kind = Span::Kind::kWaitAcknowledge}, 30);
  accounts_.EndWait(session, 70);
  accounts_.EndWait(session, 80);
  ASSERT_EQ(spans().size(), 2u);
  EXPECT_EQ(spans()[0].kind, Span::Kind::kWaitVerdict);
  EXPECT_EQ(spans()[0].start_ns, 10);
  EXPECT_EQ(spans()[0].duration_ns, 20);
  EXPECT_EQ(spans()[0].length, 100);
  EXPECT_EQ(spans()[1].kind, Span::Kind::kWaitAcknowledge);
  EXPECT_EQ(spans()[1].start_ns, 30);
  EXPECT_EQ(spans()[1].duration_ns, 40);
}

// The draft's token came while the target waited for it, and was another.
TEST_F(SessionAccountsTest, AWaitAfterAMissIsASpanOfItsOwn) {
  FakeSession session(1, 5);
  const auto kind = Span::Kind::kWaitDraftTokens;
  accounts_.NoteWait(session, {.kind = kind, .after_miss = false}, 10);
  accounts_.NoteWait(session, {.kind = kind, .after_miss = true}, 20);
  accounts_.NoteWait(session, {.kind = kind, .after_miss = true}, 25);
  accounts_.EndWait(session, 50);
  ASSERT_EQ(spans().size(), 2u);
  EXPECT_FALSE(spans()[0].after_miss);
  EXPECT_EQ(spans()[0].duration_ns, 10);
  EXPECT_TRUE(spans()[1].after_miss);
  EXPECT_EQ(spans()[1].duration_ns, 30);
}

TEST_F(SessionAccountsTest, OfAClosingSessionNothingIsTold) {
  FakeSession session(1, 5, /*length=*/12);
  session.closing = true;
  accounts_.TruncateKv(session, 2);
  EXPECT_EQ(session.sequence->length(), 2);
  EXPECT_THAT(spans(), IsEmpty());
}

}  // namespace
}  // namespace nacre::worker
