#include "coordinator/api/receptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ReceptionsTest : public ::testing::Test {
 protected:
  // `name` is one of the calls below.
  bool Enter(const std::string& name, const std::string& client,
             const std::string& peer) {
    return receptions_.Enter({Owner(name), client, peer,
                              [this, name] { refused_.push_back(name); }});
  }
  void Leave(const std::string& name, int64_t bytes = 0) {
    receptions_.Leave(Owner(name), bytes);
  }
  std::vector<std::string> Weigh() {
    receptions_.Weigh();
    return std::exchange(refused_, {});
  }
  const void* Owner(const std::string& name) { return &owners_[name]; }

  std::map<std::string, int> owners_;
  std::vector<std::string> refused_;
  std::map<std::string, int64_t> received_;  // by peer
  int num_asked_ = 0;
  Receptions receptions_{
      {.max_calls = 4,
       .max_bytes = 100,
       .received = [this](const std::string& peer) -> absl::optional<int64_t> {
         const auto it = received_.find(peer);
         if (it == received_.end()) return absl::nullopt;
         return it->second;
       },
       .weigh_soon = [this] { ++num_asked_; }}};
};

TEST_F(ReceptionsTest, TheClientWithMostCallsMakesRoom) {
  EXPECT_TRUE(Enter("a1", "a", "p1"));
  EXPECT_TRUE(Enter("a2", "a", "p1"));
  EXPECT_TRUE(Enter("a3", "a", "p2"));
  EXPECT_TRUE(Enter("b1", "b", "p3"));
  EXPECT_FALSE(Enter("a4", "a", "p1"));
  EXPECT_TRUE(Enter("c1", "c", "p4"));
  EXPECT_THAT(refused_, ElementsAre("a3"));
  // No client has two more than it has.
  EXPECT_FALSE(Enter("b2", "b", "p3"));
  Leave("a3");  // as refused calls do
  EXPECT_FALSE(Enter("b2", "b", "p3"));
  Leave("c1");
  EXPECT_TRUE(Enter("b2", "b", "p3"));
}

TEST_F(ReceptionsTest, TheHeaviestClientIsRefused) {
  received_ = {{"p1", 1000}, {"p2", 2000}, {"p3", 0}};
  Enter("a1", "a", "p1");
  Enter("a2", "a", "p2");
  Enter("b1", "b", "p3");
  // What came before its call is no part of it.
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p1"] += 40;
  received_["p2"] += 10;
  received_["p3"] += 45;
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p3"] += 6;
  // The heaviest connection is b's, the heaviest client is not.
  received_["p2"] += 5;
  EXPECT_THAT(Weigh(), ElementsAre("a1"));
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p2"] += 500;
  EXPECT_THAT(Weigh(), ElementsAre("a2"));
  EXPECT_THAT(Weigh(), IsEmpty());
}

TEST_F(ReceptionsTest, WhatWasHandedOverWeighsNothing) {
  received_ = {{"p1", 0}};
  Enter("a1", "a", "p1");
  Enter("a2", "a", "p1");
  received_["p1"] = 90;
  Leave("a1", 80);
  received_["p1"] = 180;
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p1"] = 181;
  EXPECT_THAT(Weigh(), ElementsAre("a2"));
}

// Else its client could hide a large one behind others.
TEST_F(ReceptionsTest, ANewCallHidesNothingThatCameBeforeIt) {
  received_ = {{"p1", 0}};
  Enter("a1", "a", "p1");
  received_["p1"] = 90;
  Enter("a2", "a", "p1");
  received_["p1"] = 101;
  EXPECT_THAT(Weigh(), UnorderedElementsAre("a1", "a2"));
}

// Else many small requests could hide a large one.
TEST_F(ReceptionsTest, NoMoreIsHandedOverThanHasCome) {
  received_ = {{"p1", 0}};
  Enter("a1", "a", "p1");
  Enter("a2", "a", "p1");
  Leave("a1", 1000);
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p1"] = 101;
  EXPECT_THAT(Weigh(), ElementsAre("a2"));
}

TEST_F(ReceptionsTest, ClientsOnOneConnectionShareItsWeight) {
  received_ = {{"p1", 0}, {"p2", 0}};
  Enter("a1", "a", "p1");
  Enter("a2", "a", "p1");
  Enter("b1", "b", "p1");
  Enter("c1", "c", "p2");
  received_["p1"] = 90;
  received_["p2"] = 50;
  EXPECT_THAT(Weigh(), UnorderedElementsAre("a1", "a2"));
  // b's share is known no more: it begins anew.
  EXPECT_THAT(Weigh(), IsEmpty());
  received_["p1"] += 51;
  EXPECT_THAT(Weigh(), ElementsAre("b1"));
}

TEST_F(ReceptionsTest, AConnectionThatIsNotKnownWeighsNothing) {
  Enter("a1", "a", "nowhere");
  EXPECT_THAT(Weigh(), IsEmpty());
}

TEST_F(ReceptionsTest, ItIsLookedAtAsLongAsThereAreCalls) {
  Enter("a1", "a", "p1");
  EXPECT_EQ(num_asked_, 1);
  Enter("a2", "a", "p1");
  EXPECT_EQ(num_asked_, 1);
  Weigh();
  EXPECT_EQ(num_asked_, 2);
  Leave("a1");
  Leave("a2");
  Weigh();
  EXPECT_EQ(num_asked_, 2);
  Enter("a3", "a", "p1");
  EXPECT_EQ(num_asked_, 3);
}

}  // namespace
}  // namespace nacre::coordinator
