#include "tools/calibrate/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(SplitPromptsTest, EveryPromptIsInOnePart) {
  for (const int count : {3, 4, 20, 101}) {
    const auto split = SplitPrompts(count, 5);
    ASSERT_TRUE(split.ok()) << split.status();
    std::vector<int> all;
    for (const auto* part :
         {&split->training, &split->validation, &split->test}) {
      EXPECT_FALSE(part->empty()) << count;
      EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
      all.insert(all.end(), part->begin(), part->end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_THAT(all, SizeIs(count));
    for (int i = 0; i < count; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  }
  EXPECT_THAT(SplitPrompts(100, 5)->validation, SizeIs(15));
  EXPECT_THAT(SplitPrompts(100, 5)->test, SizeIs(15));
}

TEST(SplitPromptsTest, TheSeedDecides) {
  EXPECT_EQ(SplitPrompts(40, 5)->test, SplitPrompts(40, 5)->test);
  EXPECT_NE(SplitPrompts(40, 5)->test, SplitPrompts(40, 6)->test);
}

TEST(SplitPromptsTest, TooFewAreRefused) {
  const auto split = SplitPrompts(2, 1);
  EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(split.status().message()),
              HasSubstr("2 prompts are too few"));
}

TEST(ExamplesTest, AreAsThePolicyReadsThem) {
  RecordedToken token;
  token.line.position = 250;
  for (size_t i = 0; i < token.line.top.size(); ++i) {
    token.line.top[i] = 1.0f / static_cast<float>(i + 2);
  }
  token.line.entropy = 1.5f;
  token.line.probability = 0.125f;
  token.accepted = true;
  token.fed_state = {3.0f, 4.0f};
  RecordedToken rejected = token;
  rejected.accepted = false;
  const std::vector<const RecordedToken*> tokens = {&token, &rejected};
  const std::vector<Example> examples = ExamplesOf(tokens);
  ASSERT_THAT(examples, SizeIs(2));
  EXPECT_TRUE(examples[0].accepted);
  EXPECT_FALSE(examples[1].accepted);
  EXPECT_EQ(examples[0].inputs[0], 0.5f);
  EXPECT_EQ(examples[0].inputs[9], 1.0f / 11.0f);
  EXPECT_EQ(examples[0].inputs[10], 1.5f);
  EXPECT_FLOAT_EQ(examples[0].inputs[11], 0.25f);
  const std::vector<StateExample> states = StateExamplesOf(tokens);
  ASSERT_THAT(states, SizeIs(2));
  EXPECT_THAT(states[0].state, ElementsAre(3.0f, 4.0f));
  EXPECT_EQ(states[0].accepted, 1.0);
  EXPECT_EQ(states[1].accepted, 0.0);
}

}  // namespace
}  // namespace nacre::tools
