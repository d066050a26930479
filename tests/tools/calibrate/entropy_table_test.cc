#include "tools/calibrate/entropy_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace nacre::tools {
namespace {

TEST(EntropyTableTest, CountsAcceptedTokensByEntropy) {
  std::vector<RecordedToken> recorded;
  for (const auto& [entropy, accepted] :
       std::vector<std::pair<float, bool>>{{0.0f, true},
                                           {0.05f, true},
                                           {0.0999f, false},
                                           {0.1f, true},
                                           {2.5f, false},
                                           {3.0f, true},
                                           {11.0f, false}}) {
    RecordedToken token;
    token.line.entropy = entropy;
    token.accepted = accepted;
    recorded.push_back(token);
  }
  std::vector<const RecordedToken*> tokens;
  for (const RecordedToken& token : recorded) tokens.push_back(&token);
  const std::vector<EntropyBin> bins = AcceptanceByEntropy(tokens);
  int count = 0;
  double last = 0.0;
  for (const EntropyBin& bin : bins) {
    EXPECT_GT(bin.below, last);
    last = bin.below;
    count += bin.tokens;
  }
  EXPECT_EQ(count, 7);
  EXPECT_TRUE(std::isinf(last));
  EXPECT_EQ(EntropyLine(bins),
            "< 0.01: 100.0 % of 1; < 0.1: 50.0 % of 2; < 0.3: 100.0 % of 1; "
            "< 3: 0.0 % of 1; >= 3: 50.0 % of 2");
  EXPECT_EQ(EntropyLine(AcceptanceByEntropy({})), "");
}

}  // namespace
}  // namespace nacre::tools
