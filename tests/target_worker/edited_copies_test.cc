// Answers that copy most of their prompt, drafted from suffixes alone: few
// steps, and no other token. build/bin/bench_copies says what that is in time.

#include "tests/testing/edited_copies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/target_worker/target_fixture.h"
#include "tokenizer/tokenizer.h"

namespace nacre::target_worker {
namespace {

using nacre::testing::EditedCopy;
using nacre::testing::ReplayedText;

std::string HumanEval() {
  std::ostringstream text;
  text << std::ifstream("tests/data/humaneval.jsonl").rdbuf();
  return text.str();
}

TEST(EditedCopies, EditsSmallParts) {
  const auto copies = nacre::testing::MakeEditedCopies(
      R"({"id": "a", "prompt": "\ndef f(x):\n    \"\"\" x of f, if \"\"\"\n"})"
      "\n"
      R"({"id": "b", "prompt": "def f(x):\n    \"\"\"\n    >>> f(1)\n    2\n"})"
      "\n\n"
      R"({"id": "c", "prompt": "def f(x):\n    >>> f(1)\n    2\n    3"})"
      "\n"
      R"({"id": "none", "prompt": "nothing"})");
  ASSERT_TRUE(copies.ok()) << copies.status();
  ASSERT_EQ(copies->size(), 3u);
  EXPECT_EQ((*copies)[0].prompt,
            "Copy this code, but rename the function:\n\n"
            "def f(x):\n    \"\"\" x of f, if \"\"\"\n\nThe copy:\n\n");
  EXPECT_EQ((*copies)[0].answer,
            "def solve_task(x):\n    \"\"\" x of solve_task, if \"\"\"");
  EXPECT_EQ((*copies)[1].answer,
            "def f(given_value):\n    \"\"\"\n    >>> f(1)\n    2");
  EXPECT_EQ((*copies)[2].answer, "def f(x):\n    assert f(1) == 2\n    3");
}

TEST(EditedCopies, RefusesOtherLines) {
  for (const char* lines :
       {"{", "[]", "{\"id\": 1, \"prompt\": \"\"}", "{\"id\": \"a\"}"}) {
    EXPECT_EQ(nacre::testing::MakeEditedCopies(lines).status().code(),
              absl::StatusCode::kInvalidArgument)
        << lines;
  }
}

TEST(EditedCopies, KnowsLoops) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 24; ++i) ids.push_back(i % 8);
  EXPECT_TRUE(nacre::testing::Loops(ids));
  ids.pop_back();
  EXPECT_FALSE(nacre::testing::Loops(ids));
  ids.assign(17, 5);
  EXPECT_TRUE(nacre::testing::Loops(ids));
  ids.clear();
  for (int32_t i = 0; i < 90; ++i) ids.push_back(i % 9);
  EXPECT_FALSE(nacre::testing::Loops(ids));
}

TEST(EditedCopies, TakeFewStepsAndChangeNoToken) {
  const auto tokenizer = tokenizer::LoadTokenizer("models/target");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto copies = nacre::testing::MakeEditedCopies(HumanEval());
  ASSERT_TRUE(copies.ok()) << copies.status();
  ReplayedText text;
  nacre::testing::TableModelOptions model;
  model.vocab_size = (*tokenizer)->vocab_size();
  model.context_length = 4096;
  model.on_row = [&text](absl::Span<const int32_t> tokens,
                         std::vector<float>* logits) {
    text.Say(tokens, logits);
  };
  TargetFixture fixture(std::move(model));
  // What rows cost on a device: 2 % for eight.
  fixture.engine->LearnStepTimes(
      std::vector<worker::StepTime>{{1, 100'000}, {8, 102'000}, {16, 103'000}});
  size_t steps = 0;
  size_t tokens = 0;
  uint64_t id = 0;
  for (const EditedCopy& copy : *copies) {
    if (++id > 8) break;
    SCOPED_TRACE(copy.id);
    const auto encoded = nacre::testing::Encoded(copy, **tokenizer);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    text = *encoded;
    OpenTarget open = MakeOpen(
        id,
        {text.token_ids.begin(), text.token_ids.begin() + text.prompt_length},
        text.answer_length());
    open.suffixes.emplace();
    fixture.verdicts.clear();
    fixture.Open(std::move(open));
    fixture.RunToEnd(id);
    EXPECT_EQ(fixture.tokens[id], text.token_ids);
    steps += fixture.verdicts.size();
    tokens += static_cast<size_t>(text.answer_length());
  }
  EXPECT_LT(steps * 2, tokens);
}

}  // namespace
}  // namespace nacre::target_worker
