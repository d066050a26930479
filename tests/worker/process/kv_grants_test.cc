#include "worker/process/kv_grants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace nacre::worker {
namespace {

using Shares = std::vector<int64_t>;

wire::KvReport GrantReport(uint64_t serial, int64_t reserved, int64_t need = 0,
                           uint64_t need_session = 0, int64_t wanted = 0) {
  wire::KvReport report;
  report.serial = serial;
  report.reserved = reserved;
  report.need = need;
  report.need_session = need_session;
  report.wanted = wanted;
  return report;
}

TEST(DivideKvTest, OneCoordinatorHasAll) {
  EXPECT_EQ(DivideKv(1600, {{{0, 0, 0}}}), Shares({1600}));
  EXPECT_EQ(DivideKv(1600, {{{320, 160, 4000}}}), Shares({1600}));
  EXPECT_EQ(DivideKv(1600, {}), Shares());
}

TEST(DivideKvTest, WhatIsLeftIsDividedEqually) {
  EXPECT_EQ(DivideKv(1600, {{{0, 0, 0}, {320, 0, 0}}}), Shares({640, 960}));
}

TEST(DivideKvTest, EqualPartsAreWholeBlocks) {
  EXPECT_EQ(DivideKv(1600, {{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}}),
            Shares({528, 528, 544}));
}

TEST(DivideKvTest, WhatIsWantedComesBeforeWhatIsLeft) {
  EXPECT_EQ(DivideKv(1600, {{{0, 160, 1120}, {0, 0, 0}}}), Shares({1360, 240}));
  // Both want more than there is.
  EXPECT_EQ(DivideKv(1600, {{{0, 160, 9999}, {320, 320, 9999}}}),
            Shares({560, 1040}));
}

// As of drafts.
TEST(DivideKvTest, WhatIsWantedWithoutAFirstNeedSavesNothingUp) {
  EXPECT_EQ(DivideKv(1600, {{{0, 0, 1120}, {0, 0, 0}}}), Shares({1360, 240}));
  EXPECT_EQ(DivideKv(1600, {{{0, 0, 9999}, {320, 0, 9999}}}),
            Shares({640, 960}));
}

TEST(DivideKvTest, TheFirstNeedThatDoesNotFitSavesUp) {
  EXPECT_EQ(DivideKv(1600, {{{0, 1600, 1600}, {640, 16, 16}}}),
            Shares({960, 640}));
  EXPECT_EQ(DivideKv(1600, {{{640, 16, 16}, {0, 1600, 1600}}}),
            Shares({656, 944}));
}

TEST(DivideKvTest, WhatIsReservedStays) {
  EXPECT_EQ(DivideKv(1600, {{{1600, 0, 0}, {0, 16, 16}}}), Shares({1600, 0}));
  // No worker lets it come to this.
  EXPECT_EQ(DivideKv(1600, {{{1600, 0, 0}, {160, 16, 16}}}),
            Shares({1600, 160}));
}

// Every division of a small cache among up to three coordinators.
TEST(DivideKvTest, SharesAreWithinTheCapacity) {
  constexpr int64_t kKvBlock = 16;
  constexpr int64_t kBlocks = 5;
  std::vector<KvClaim> choices;
  for (int64_t reserved = 0; reserved <= kBlocks; ++reserved) {
    for (int64_t need = 0; need <= kBlocks; ++need) {
      for (const int64_t more : {0, 1, 7}) {
        if (need == 0 && more > 0) continue;
        choices.push_back(
            {reserved * kKvBlock, need * kKvBlock, (need + more) * kKvBlock});
      }
    }
  }
  const auto check = [&](const std::vector<KvClaim>& claims) {
    int64_t reserved = 0;
    for (const KvClaim& claim : claims) reserved += claim.reserved;
    if (reserved > kBlocks * kKvBlock) return;
    const Shares shares = DivideKv(kBlocks * kKvBlock, claims);
    ASSERT_EQ(shares.size(), claims.size());
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}),
              kBlocks * kKvBlock);
    int64_t free = kBlocks * kKvBlock - reserved;
    for (size_t i = 0; i < claims.size(); ++i) {
      EXPECT_GE(shares[i], claims[i].reserved);
      if (free < claims[i].need) break;
      // All needs before the first that does not fit have their room.
      EXPECT_GE(shares[i], claims[i].reserved + claims[i].need);
      free -= claims[i].need;
    }
  };
  for (const KvClaim& a : choices) {
    check({a});
    for (const KvClaim& b : choices) {
      check({a, b});
      for (const KvClaim& c : choices) check({a, b, c});
    }
  }
}

TEST(KvGrantsTest, AGrantShrinksInTwoSteps) {
  KvGrants grants(1600);
  grants.Join(1);
  const KvGrants::Grant all = grants.Tell(1);
  EXPECT_EQ(all.tokens, 1600);
  grants.OnReport(1, GrantReport(all.serial, 640));
  grants.Join(2);
  // The first one is asked for half of what is free, and has it all until it
  // answers.
  EXPECT_EQ(grants.Tell(2).tokens, 0);
  const KvGrants::Grant less = grants.Tell(1);
  EXPECT_EQ(less.tokens, 1120);
  EXPECT_EQ(grants.held(1), 1600);
  // Of the time before it heard: no answer.
  grants.OnReport(1, GrantReport(all.serial, 1520));
  EXPECT_EQ(grants.held(1), 1600);
  EXPECT_EQ(grants.Tell(2).tokens, 0);
  // It has promised more meanwhile than it may from now on.
  const KvGrants::Grant least = grants.Tell(1);
  grants.OnReport(1, GrantReport(least.serial, 1568));
  EXPECT_EQ(grants.held(1), 1568);
  // Half of what is left.
  EXPECT_EQ(grants.Tell(2).tokens, 16);
  EXPECT_EQ(grants.total_held(), 1584);
}

TEST(KvGrantsTest, AnAnswerThatCrossesALargerGrantFreesNothing) {
  KvGrants grants(1600);
  grants.Join(1);
  const uint64_t all = grants.Tell(1).serial;
  grants.OnReport(1, GrantReport(all, 0));
  grants.Join(2);
  grants.Tell(2);
  const KvGrants::Grant half = grants.Tell(1);
  EXPECT_EQ(half.tokens, 800);
  grants.Leave(2);
  const KvGrants::Grant again = grants.Tell(1);
  EXPECT_EQ(again.tokens, 1600);
  grants.OnReport(1, GrantReport(half.serial, 0));
  EXPECT_EQ(grants.held(1), 1600);
}

TEST(KvGrantsTest, WhoLeavesGivesAllBack) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  EXPECT_EQ(grants.Tell(1).tokens, 800);
  EXPECT_EQ(grants.Tell(2).tokens, 800);
  grants.OnReport(1, GrantReport(1, 800));
  grants.Leave(1);
  EXPECT_FALSE(grants.contains(1));
  EXPECT_EQ(grants.Tell(2).tokens, 1600);
  // Late words of it.
  grants.OnReport(1, GrantReport(1, 800));
  EXPECT_EQ(grants.total_held(), 1600);
}

TEST(KvGrantsTest, GrantsThatWereNeverMadeAreIgnored) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  const uint64_t serial = grants.Tell(1).serial;
  grants.OnReport(1, GrantReport(serial + 1, 0, 1600, 7, 1600));
  EXPECT_EQ(grants.Tell(2).tokens, 800);
}

TEST(KvGrantsTest, SaysWhatRunsForOthers) {
  KvGrants grants(1600);
  for (const uint64_t id : {1, 2, 3}) {
    grants.Join(id);
    wire::KvReport report = GrantReport(grants.Tell(id).serial, 0);
    report.sessions = static_cast<int>(10 * id);
    grants.OnReport(id, report);
  }
  EXPECT_EQ(grants.Tell(1).other_sessions, 50);
  EXPECT_EQ(grants.Tell(3).other_sessions, 30);
}

TEST(KvGrantsTest, TellsAtOnceWhatARequestWaitsFor) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0));
  grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0));
  EXPECT_TRUE(grants.Urgent().empty());
  grants.OnReport(2, GrantReport(2, 160));
  // That can wait for the next heartbeats.
  EXPECT_NE(grants.Tell(1).tokens, 800);
  grants.OnReport(1, GrantReport(3, 0, 1440, 7, 1440));
  EXPECT_EQ(grants.Urgent(), std::vector<uint64_t>({1, 2}));
  const KvGrants::Grant less = grants.Tell(2);
  EXPECT_EQ(less.tokens, 160);
  grants.OnReport(2, GrantReport(less.serial, 160));
  EXPECT_EQ(grants.Urgent(), std::vector<uint64_t>({1}));
  EXPECT_EQ(grants.Tell(1).tokens, 1440);
  EXPECT_TRUE(grants.Urgent().empty());
}

TEST(KvGrantsTest, AnUnchangedGrantKeepsItsSerial) {
  KvGrants grants(1600);
  grants.Join(1);
  const uint64_t serial = grants.Tell(1).serial;
  EXPECT_EQ(serial, 1u);
  EXPECT_EQ(grants.Tell(1).serial, serial);
  grants.Join(2);
  EXPECT_EQ(grants.Tell(1).serial, serial + 1);  // half of it
  EXPECT_EQ(grants.Tell(2).serial, serial + 2);  // none yet, but told
  EXPECT_EQ(grants.Tell(2).serial, serial + 2);
  EXPECT_EQ(grants.Tell(3).serial, 0u);  // it has not joined
}

TEST(KvGrantsTest, ReportsAreWithinWhatMayBe) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  const uint64_t first = grants.Tell(1).serial;
  grants.Tell(2);
  grants.OnReport(1, GrantReport(first, -160));
  EXPECT_EQ(grants.Tell(1).tokens, 800);
  // More than it was ever granted it cannot have promised.
  grants.OnReport(1, GrantReport(first, 5000, 9999, 7, 99999));
  EXPECT_EQ(grants.held(1), 800);
  EXPECT_EQ(grants.Tell(2).tokens, 0);
  // Needs of no request are none.
  grants.OnReport(1, GrantReport(first, 0, 1600, /*need_session=*/0, 0));
  EXPECT_EQ(grants.Tell(2).tokens, 800);
  EXPECT_EQ(grants.held(3), 0);
}

// Both need all there is. The first has it, and leaves it unused.
TEST(KvGrantsTest, ATurnThatIsNotTakenGoesToTheNext) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0, 1600, 7, 1600));
  grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0, 1600, 9, 1600));
  const KvGrants::Grant all = grants.Tell(1);
  EXPECT_EQ(all.tokens, 1600);
  for (int i = 1; i < KvGrants::kMaxIdleReports; ++i) {
    grants.OnReport(1, GrantReport(all.serial, 0, 1600, 7, 1600));
    EXPECT_EQ(grants.Tell(1).tokens, 1600) << i;
  }
  grants.OnReport(1, GrantReport(all.serial, 0, 1600, 7, 1600));
  EXPECT_EQ(grants.Tell(1).tokens, 0);
}

TEST(KvGrantsTest, WhoGotItsRoomOrGaveUpHasHadItsTurn) {
  for (const uint64_t next_session : {uint64_t{0}, uint64_t{8}}) {
    KvGrants grants(1600);
    grants.Join(1);
    grants.Join(2);
    grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0, 1600, 7, 1600));
    grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0, 1600, 9, 1600));
    const KvGrants::Grant all = grants.Tell(1);
    EXPECT_EQ(all.tokens, 1600);
    grants.OnReport(1, GrantReport(all.serial, 0, next_session == 0 ? 0 : 1600,
                                   next_session, next_session == 0 ? 0 : 1600));
    EXPECT_EQ(grants.Tell(1).tokens, 0) << next_session;
  }
}

TEST(KvGrantsTest, WhoIsPassedBySmallerOnesKeepsItsTurn) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0, 1600, 7, 1600));
  grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0, 1600, 9, 1600));
  const KvGrants::Grant all = grants.Tell(1);
  for (int i = 0; i < 2 * KvGrants::kMaxIdleReports; ++i) {
    grants.OnReport(1, GrantReport(all.serial, 16, 1600, 7, 1600));
    EXPECT_EQ(grants.Tell(1).tokens, 1600) << i;
  }
}

TEST(KvGrantsTest, ATurnThatIsOfferedAgainCountsAnew) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0, 1600, 7, 1600));
  grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0, 1600, 9, 1600));
  const uint64_t serial = grants.Tell(1).serial;
  const auto report = [&](int64_t reserved) {
    grants.OnReport(1, GrantReport(serial, reserved, 1600, 7, 1600));
    return grants.Tell(1).tokens;
  };
  for (int i = 1; i < KvGrants::kMaxIdleReports; ++i) {
    EXPECT_EQ(report(0), 1600);
  }
  EXPECT_EQ(report(16), 1600);  // a smaller one passes
  EXPECT_EQ(report(0), 1600);   // it has ended
  for (int i = 1; i < KvGrants::kMaxIdleReports; ++i) {
    EXPECT_EQ(report(0), 1600) << i;
  }
  EXPECT_EQ(report(0), 0);
}

TEST(KvGrantsTest, WhereNobodyElseWaitsATurnIsKept) {
  for (const uint64_t next_session : {uint64_t{0}, uint64_t{8}}) {
    KvGrants grants(1600);
    grants.Join(1);
    grants.Join(2);
    grants.OnReport(1, GrantReport(grants.Tell(1).serial, 0, 1600, 7, 1600));
    const uint64_t two = grants.Tell(2).serial;
    grants.OnReport(2, GrantReport(two, 0));
    const uint64_t one = grants.Tell(1).serial;
    grants.OnReport(
        1, GrantReport(one, 0, next_session == 0 ? 0 : 1600, next_session));
    grants.OnReport(1, GrantReport(one, 0, 1600, 8, 1600));
    grants.OnReport(2, GrantReport(two, 0, 1600, 9, 1600));
    EXPECT_EQ(grants.Tell(1).tokens, 1600) << next_session;
    EXPECT_EQ(grants.Tell(2).tokens, 0) << next_session;
  }
}

TEST(KvGrantsTest, WhoNeedsNothingGoesBehindThoseThatWait) {
  KvGrants grants(1600);
  grants.Join(1);
  grants.Join(2);
  const uint64_t one = grants.Tell(1).serial;
  grants.OnReport(2, GrantReport(grants.Tell(2).serial, 0, 1600, 9, 1600));
  grants.OnReport(1, GrantReport(one, 0));
  grants.OnReport(1, GrantReport(one, 0, 1600, 7, 1600));
  EXPECT_EQ(grants.Tell(1).tokens, 0);
}

TEST(KvGrantsTest, OnlyWhoLacksRoomIsUrgent) {
  for (const bool lacks : {false, true}) {
    KvGrants grants(1600);
    grants.Join(1);
    grants.Join(2);
    grants.Tell(2);
    // As of a draft: it wants without a first need.
    grants.OnReport(
        1, GrantReport(grants.Tell(1).serial, 0, 0, 0, lacks ? 816 : 800));
    grants.Leave(2);
    EXPECT_EQ(grants.Urgent(),
              lacks ? std::vector<uint64_t>({1}) : std::vector<uint64_t>());
    EXPECT_EQ(grants.Tell(1).tokens, 1600);
  }
}

// ----------------------------------------------------- many random histories

constexpr int64_t kKvBlock = 16;

// A coordinator that promises room to requests in the order they came, though
// some small ones pass.
struct FakeCoordinator {
  struct Waiting {
    uint64_t session = 0;
    int64_t need = 0;
    int first_since = -1;  // the round in which it became the first
  };
  struct Running {
    int64_t need = 0;
    int until = 0;
  };

  bool alive = false;
  uint64_t serial = 0;
  int64_t granted = 0;
  int64_t reserved = 0;
  uint64_t passed = 0;  // the first request, and how often others passed it
  int passes = 0;
  std::deque<Waiting> queue;
  std::vector<Running> running;
  // On their way, each with the round in which it arrives.
  std::deque<std::pair<int, KvGrants::Grant>> grants;
  std::deque<std::pair<int, wire::KvReport>> reports;
};

class GrantWorld {
 public:
  GrantWorld(uint32_t seed, int num_coordinators)
      : random_(seed),
        blocks_(Draw(4, 64)),
        grants_(blocks_ * kKvBlock),
        coordinators_(static_cast<size_t>(num_coordinators)) {}

  // Twice as long as any request may wait.
  void Run() {
    const int rounds = 2 * MostRounds();
    for (round_ = 0; round_ < rounds && !::testing::Test::HasFailure();
         ++round_) {
      for (size_t i = 0; i < coordinators_.size(); ++i) Live(i + 1);
      Beat();
      Check();
    }
  }
  int num_started() const { return num_started_; }
  int longest_wait() const { return longest_wait_; }

 private:
  int Draw(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  FakeCoordinator& at(uint64_t id) { return coordinators_[id - 1]; }

  void Live(uint64_t id) {
    FakeCoordinator& me = at(id);
    if (!me.alive) {
      if (Draw(0, 9) != 0) return;
      me = FakeCoordinator();
      me.alive = true;
      grants_.Join(id);
    } else if (Draw(0, 399) == 0) {
      me = FakeCoordinator();
      grants_.Leave(id);
      return;
    }
    End(&me);
    Arrive(&me);
    bool heard = false;
    while (!me.grants.empty() && me.grants.front().first <= round_) {
      me.serial = me.grants.front().second.serial;
      me.granted = me.grants.front().second.tokens;
      me.grants.pop_front();
      heard = true;
    }
    const uint64_t first = me.queue.empty() ? 0 : me.queue.front().session;
    StartWaiting(&me);
    if (!me.queue.empty() && me.queue.front().first_since < 0) {
      me.queue.front().first_since = round_;
    }
    const bool changed =
        first != (me.queue.empty() ? 0 : me.queue.front().session);
    if (heard || changed || Draw(0, 3) == 0) Say(&me);
  }
  void End(FakeCoordinator* me) {
    for (size_t i = 0; i < me->running.size();) {
      if (me->running[i].until > round_) {
        ++i;
        continue;
      }
      me->reserved -= me->running[i].need;
      me->running.erase(me->running.begin() + static_cast<int>(i));
    }
  }
  void Arrive(FakeCoordinator* me) {
    if (Draw(0, 1) != 0 || me->queue.size() >= 4) return;
    const int most = Draw(0, 3) == 0 ? static_cast<int>(blocks_)
                                     : static_cast<int>(blocks_) / 4;
    me->queue.push_back({next_session_++, Draw(1, most) * kKvBlock, -1});
  }
  void StartWaiting(FakeCoordinator* me) {
    if (me->queue.empty()) return;
    if (me->passed != me->queue.front().session) me->passes = 0;
    me->passed = me->queue.front().session;
    int passes = 0;
    for (size_t i = 0; i < me->queue.size() && passes < 2;) {
      const FakeCoordinator::Waiting request = me->queue[i];
      if (request.need > me->granted - me->reserved) {
        // Now and then one that fits passes it.
        if (Draw(0, 4) != 0 || me->passes >= kMaxPasses) return;
        ++passes;
        ++i;
        continue;
      }
      if (request.first_since >= 0) {
        longest_wait_ = std::max(longest_wait_, round_ - request.first_since);
      }
      if (i > 0) ++me->passes;
      me->reserved += request.need;
      me->running.push_back({request.need, round_ + Draw(1, kLongest)});
      me->queue.erase(me->queue.begin() + static_cast<int>(i));
      ++num_started_;
    }
  }
  void Say(FakeCoordinator* me) {
    wire::KvReport report;
    report.serial = me->serial;
    report.reserved = me->reserved;
    report.sessions = static_cast<int>(me->running.size());
    if (!me->queue.empty()) {
      report.need = me->queue.front().need;
      report.need_session = me->queue.front().session;
    }
    for (const auto& waiting : me->queue) report.wanted += waiting.need;
    const int last = me->reports.empty() ? 0 : me->reports.back().first;
    me->reports.emplace_back(std::max(last, round_ + Draw(0, kDelay)), report);
  }

  // The worker's side.
  void Beat() {
    for (uint64_t id = 1; id <= coordinators_.size(); ++id) {
      FakeCoordinator& to = at(id);
      while (!to.reports.empty() && to.reports.front().first <= round_) {
        grants_.OnReport(id, to.reports.front().second);
        to.reports.pop_front();
        Check();
      }
    }
    for (const uint64_t id : grants_.Urgent()) Tell(id);
    for (uint64_t id = 1; id <= coordinators_.size(); ++id) {
      if (at(id).alive && Draw(0, 3) == 0) Tell(id);
    }
  }
  void Tell(uint64_t id) {
    FakeCoordinator& to = at(id);
    const int last = to.grants.empty() ? 0 : to.grants.back().first;
    to.grants.emplace_back(std::max(last, round_ + Draw(0, kDelay)),
                           grants_.Tell(id));
    Check();
  }

  void Check() {
    int64_t in_use = 0;
    for (uint64_t id = 1; id <= coordinators_.size(); ++id) {
      const FakeCoordinator& each = at(id);
      const int64_t most = std::max(each.granted, each.reserved);
      ASSERT_LE(most, grants_.held(id)) << "round " << round_;
      in_use += most;
      ASSERT_EQ(each.alive, grants_.contains(id));
      ASSERT_TRUE(each.queue.empty() || each.queue.front().first_since < 0 ||
                  round_ - each.queue.front().first_since <= MostRounds())
          << "a request for " << each.queue.front().need << " of "
          << grants_.capacity() << " waits for ever";
    }
    ASSERT_LE(in_use, grants_.capacity());
    ASSERT_LE(grants_.total_held(), grants_.capacity());
  }
  // Until one that is the first of its coordinator has its room: every other
  // one's turn comes before at most twice, and smaller ones may pass each.
  int MostRounds() const {
    constexpr int kTurn = 2 * kLongest + 8 * (kDelay + 1);
    constexpr int kPass = kLongest + 2 * (kDelay + 1);
    return static_cast<int>(2 * coordinators_.size()) *
           (kTurn + kMaxPasses * kPass);
  }

  static constexpr int kLongest = 8;  // rounds that a session runs
  static constexpr int kMaxPasses = 4;
  static constexpr int kDelay = 3;  // rounds that a message takes

  std::mt19937 random_;
  const int64_t blocks_;
  KvGrants grants_;
  std::vector<FakeCoordinator> coordinators_;
  int round_ = 0;
  uint64_t next_session_ = 1;
  int num_started_ = 0;
  int longest_wait_ = 0;
};

// NACRE_GRANT_SEEDS: how many histories.
TEST(KvGrantsTest, NeverGrantsMoreThanThereIsAndStarvesNone) {
  uint32_t seeds = 400;
  if (const char* text = std::getenv("NACRE_GRANT_SEEDS")) {
    seeds = static_cast<uint32_t>(std::stoul(text));
  }
  int64_t num_started = 0;
  int longest_wait = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    GrantWorld world(seed, 1 + static_cast<int>(seed % 4));
    world.Run();
    if (HasFailure()) return;
    num_started += world.num_started();
    longest_wait = std::max(longest_wait, world.longest_wait());
  }
  EXPECT_GT(num_started, int64_t{20} * seeds);
  RecordProperty("started", static_cast<int>(num_started / seeds));
  RecordProperty("longest_wait", longest_wait);
}

}  // namespace
}  // namespace nacre::worker
