#include "speculation/policies/oracle.h"

#include "gtest/gtest.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

DraftRow RowOf(int generated, int32_t token_id) {
  DraftRow row;
  row.generated = generated;
  row.token = DrawnToken{token_id, 0.5f};
  return row;
}

TEST(OraclePolicy, SubmitsTheMatchingPrefixOnly) {
  TurnTaker turns(MakeOraclePolicy({5, 6, 7, 8}));
  const int32_t drawn[] = {5, 6, 9};
  EXPECT_EQ(turns.Draft([&](int i) { return RowOf(i, drawn[i]); }), 2);
  turns.Verify(2);
  // The target says 7 by itself; the next token stands at 3.
  EXPECT_EQ(turns.Draft([&](int i) { return RowOf(3 + i, 8 + i); }), 1);
}

TEST(OraclePolicy, MayDraftNothing) {
  TurnTaker turns(MakeOraclePolicy({5}));
  EXPECT_EQ(turns.Draft([](int) { return RowOf(0, 4); }), 0);
  turns.Verify(0);
}

TEST(OraclePolicy, KnowsNothingBehindItsRecording) {
  const auto policy = MakeOraclePolicy({5, 6});
  EXPECT_EQ(policy->Decide(RowOf(1, 6)), LengthDecision::kContinue);
  EXPECT_EQ(policy->Decide(RowOf(2, 6)), LengthDecision::kDiscard);
  EXPECT_EQ(MakeOraclePolicy({})->Decide(RowOf(0, 0)),
            LengthDecision::kDiscard);
}

TEST(OraclePolicy, LooksAtTheToken) {
  const auto policy = MakeOraclePolicy({});
  EXPECT_TRUE(policy->looks_at_token());
  EXPECT_EQ(policy->needs(), RowNeeds());
}

}  // namespace
}  // namespace nacre::speculation
