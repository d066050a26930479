#include "speculation/own_purse.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "speculation/suffix_account.h"

namespace nacre::speculation {
namespace {

constexpr double kCredit = SuffixAccount::kCredit;
constexpr double kShare = SuffixAccount::kShare;

TEST(OwnPurseTest, GivesWhatAnAccountLacksOrNothing) {
  OwnPurse purse;
  SuffixAccount account;
  EXPECT_TRUE(purse.FillUp(kCredit, &account)) << "it lacks nothing";
  EXPECT_FALSE(purse.FillUp(kCredit + 0.25, &account)) << "it is empty";
  EXPECT_EQ(account.budget(), kCredit);
  purse.Put(1);
  EXPECT_TRUE(purse.FillUp(kCredit + 0.25, &account));
  EXPECT_EQ(account.budget(), kCredit + 0.25);
  EXPECT_EQ(purse.held(), 0.75);
  EXPECT_FALSE(purse.FillUp(kCredit + 1.25, &account)) << "it has too little";
  EXPECT_EQ(purse.held(), 0.75);
  EXPECT_EQ(account.budget(), kCredit + 0.25);
}

TEST(OwnPurseTest, HoldsNoMoreThanItsMost) {
  OwnPurse purse;
  for (int i = 0; i < 5; ++i) purse.Put(OwnPurse::kMost / 4);
  EXPECT_EQ(purse.held(), OwnPurse::kMost);
}

TEST(OwnPurseTest, NoSessionEmptiesItWithLooksInVain) {
  OwnPurse purse;
  purse.Put(OwnPurse::kMost);
  SuffixAccount account;
  int looks = 0;
  for (int step = 0; step < 1000; ++step) {
    if (purse.FillUp(0.4, &account)) {
      account.Spend(0.4);
      ++looks;
    }
    account.OnStep(1, 0);
  }
  EXPECT_GE(purse.held(), OwnPurse::kMost - SuffixAccount::kMostDrawn);
  EXPECT_GT(looks * 0.4, 1000 * kShare + SuffixAccount::kMostDrawn)
      << "but it draws";
  EXPECT_LE(looks * 0.4,
            1000 * kShare + kCredit + SuffixAccount::kMostDrawn + 1e-9);
}

// What a worker makes of one drafter, whose looks all cost the same.
class Worker {
 public:
  Worker(double price, bool has_purse) : price_(price), has_purse_(has_purse) {}

  // A request of so many steps, whose looks are right so often, three tokens
  // then, and whose suffixes are so often. Returns how often it looked.
  int Run(int steps, int percent_right, int percent_suffixes = 0) {
    SuffixAccount account;
    const double before = lost_;
    int looks = 0;
    for (int step = 0; step < steps; ++step) {
      const bool looked =
          account.budget() >= price_ ||
          (has_purse_ && purse_.FillUp(price_ + kShare, &account));
      if (looked) {
        account.Spend(price_);
        lost_ += price_;
        ++looks;
      }
      const int said = looked && IsHit(percent_right) ? 3 : 0;
      const int suffixes = IsHit(percent_suffixes) ? 2 : 0;
      const int accepted = std::max(said, suffixes);
      lost_ -= accepted * account.worth();
      account.OnStep(1 + accepted, accepted, std::max(0, said - suffixes));
      purse_.Put(account.TakeSurplus());
    }
    bound_ += kCredit + kShare * steps;
    EXPECT_LE(lost_ - before,
              kCredit + kShare * steps + SuffixAccount::kMostDrawn + 1e-9);
    EXPECT_LE(lost_, bound_ + 1e-9);
    purse_.Put(account.TakeAll());
    return looks;
  }

  double lost() const { return lost_; }  // in steps
  // What it may lose without a purse.
  double bound() const { return bound_; }
  const OwnPurse& purse() const { return purse_; }

 private:
  bool IsHit(int percent) {
    return static_cast<int>(random_() % 100) < percent;
  }

  const double price_;
  const bool has_purse_;
  OwnPurse purse_;
  std::mt19937_64 random_{5};
  double lost_ = 0;
  double bound_ = 0;
};

// Each request beyond the first that looks in vain does so with its credit
// alone, or with what the first has earned.
TEST(OwnPurseTest, ARequestLooksAgainWhereLooksWereWorthIt) {
  int looks[2];
  for (const bool has_purse : {false, true}) {
    Worker worker(0.4, has_purse);
    worker.Run(96, 100);
    looks[has_purse] = worker.Run(96, 0);
  }
  EXPECT_LE(looks[0], 3);
  EXPECT_GE(looks[1], looks[0] + 4);
}

// Looks that take half a step: without a purse the second one comes 50 steps
// after the first, if that was in vain.
TEST(OwnPurseTest, RequestsOfAGoodDrafterGoOnLooking) {
  int idle[2] = {0, 0};
  for (const bool has_purse : {false, true}) {
    Worker worker(0.5, has_purse);
    for (int i = 0; i < 400; ++i) {
      if (worker.Run(96, 60) < 10) ++idle[has_purse];
    }
  }
  EXPECT_GT(idle[0], 40);
  EXPECT_LE(idle[1], idle[0] / 5);
}

TEST(OwnPurseTest, AUselessDraftNeverFillsIt) {
  for (const int percent_suffixes : {0, 60}) {
    Worker with(0.4, true);
    Worker without(0.4, false);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(with.Run(600, 0, percent_suffixes),
                without.Run(600, 0, percent_suffixes));
    }
    EXPECT_EQ(with.purse().held(), 0);
    EXPECT_EQ(with.lost(), without.lost());
  }
}

// Good requests and such as are made to waste what these have earned, in any
// order. Run() compares with the law.
TEST(OwnPurseTest, AllTogetherLoseNoMoreThanWithoutIt) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Worker worker(0.1 + 0.1 * static_cast<double>(seed % 12), true);
    for (int i = 0; i < 30; ++i) {
      const int percent = static_cast<int>(random() % 3) * 40;
      worker.Run(static_cast<int>(random() % 200), percent,
                 static_cast<int>(random() % 2) * 30);
      ASSERT_GE(worker.purse().held(), 0);
      ASSERT_LE(worker.purse().held(), OwnPurse::kMost);
    }
    // From now on nothing is right.
    const double lost = worker.lost();
    const double bound = worker.bound();
    for (int i = 0; i < 30; ++i) worker.Run(100, 0);
    EXPECT_LE(worker.lost() - lost,
              worker.bound() - bound + OwnPurse::kMost + 1e-9);
    EXPECT_LT(worker.purse().held(), SuffixAccount::kMostDrawn);
  }
}

}  // namespace
}  // namespace nacre::speculation
