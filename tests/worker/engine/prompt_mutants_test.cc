// Each bug planted in what decides how a position of a prompt is computed
// (prompt_mutants.cmake) changes what sessions say that are opened again, share
// prefixes or follow each other. Without one, each is what it is alone.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "tests/testing/child_run.h"
#include "tests/testing/mutant.h"
#include "tests/worker/engine/prompt_target.h"

namespace nacre::worker {
namespace {

using Ids = std::vector<int32_t>;
using Values = std::vector<float>;

constexpr int kMostPositions = 100;
constexpr int kEnd = 70;

class PromptMutantsTest : public PromptTarget {
 protected:
  PromptMutantsTest() {
    request_.sampling.temperature = 1.0f;
    std::mt19937 random(8);
    for (int i = 0; i < kEnd; ++i) {
      ids_.push_back(static_cast<int32_t>(random() % 101));
    }
  }

  // Its logits after the text as far as `end`, and its length before.
  Values Feed(model::LanguageModel* model, model::Sequence* sequence, int end) {
    Values values = {static_cast<float>(sequence->length())};
    const auto rows = absl::MakeConstSpan(ids_).subspan(
        static_cast<size_t>(sequence->length()),
        static_cast<size_t>(end - sequence->length()));
    const auto logits = model->Forward({{{sequence, rows, 1}}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    values.insert(values.end(), logits->begin(), logits->end());
    return values;
  }
  static std::unique_ptr<model::Sequence> New(model::LanguageModel* model,
                                              int prompt_positions,
                                              const Ids& known = {}) {
    return *model->NewPromptSequence(prompt_positions, kMostPositions, 0,
                                     known);
  }
  static Values ToValues(const std::vector<TokenLogprobs>& answer) {
    Values values;
    for (const TokenLogprobs& token : answer) {
      values.push_back(static_cast<float>(token.token_id));
      values.push_back(token.logprob);
    }
    return values;
  }

  // An answer, and what engines say that go on with it in the middle.
  void RunEngines(std::vector<Values>* all) {
    Loaded first = Load(/*prefix_cache=*/false);
    Loaded caching = Load(/*prefix_cache=*/true);
    const auto answer = GoOn(first.model.get(), {}, 0);
    all->push_back(ToValues(answer));
    for (Loaded* loaded : {&first, &caching, &caching}) {
      all->push_back(ToValues(GoOn(loaded->model.get(), answer, 6)));
    }
  }

  // Sessions of one text after others that computed it in another way: each
  // takes over what it may before it begins, or a little later.
  void RunSharing(model::LanguageModel* model, std::vector<Values>* all) {
    for (const int prompt_positions : {0, 40, 41}) {
      const auto sequence = New(model, prompt_positions);
      Feed(model, sequence.get(), kEnd - 1);
      sequence->Share(ids_);
    }
    for (const int prompt_positions : {40, 41, 20, 0}) {
      const auto later = New(model, prompt_positions, ids_);
      all->push_back(Feed(model, later.get(), kEnd));
      const auto begun = New(model, prompt_positions);
      Feed(model, begun.get(), 5);
      begun->TakeOver(ids_, 0);
      all->push_back(Feed(model, begun.get(), kEnd));
    }
  }
  // What those say that compute all of it themselves, and share nothing.
  void RunAlone(model::LanguageModel* model, std::vector<Values>* all) {
    for (const int prompt_positions : {40, 41, 20, 0}) {
      const auto sequence = New(model, prompt_positions);
      Feed(model, sequence.get(), kEnd - 1);
      all->push_back(Feed(model, sequence.get(), kEnd));
    }
  }

  // All of it, in a new process: a check may end it. Nothing then.
  nacre::testing::ChildRun RunAll(const std::string& mutant) {
    return nacre::testing::RunInChild([&](std::FILE* file) {
      active_mutant = mutant;
      std::vector<Values> all;
      RunEngines(&all);
      Loaded caching = Load(/*prefix_cache=*/true);
      RunSharing(caching.model.get(), &all);
      for (const Values& values : all) {
        std::fwrite(values.data(), sizeof(float), values.size(), file);
      }
    });
  }

  Ids ids_;
};

TEST_F(PromptMutantsTest, WithoutOneEachIsWhatItIsAlone) {
  std::vector<Values> engines, sharing, alone;
  RunEngines(&engines);
  for (const Values& values : engines) EXPECT_EQ(values, engines[0]);
  Loaded caching = Load(/*prefix_cache=*/true);
  Loaded plain = Load(/*prefix_cache=*/false);
  RunSharing(caching.model.get(), &sharing);
  RunAlone(plain.model.get(), &alone);
  // The lengths that were shared: blocks of 16.
  const std::vector<float> lengths = {64, 64, 16, 64};
  ASSERT_EQ(sharing.size(), 2 * alone.size());
  for (size_t i = 0; i < sharing.size(); ++i) {
    EXPECT_EQ(sharing[i][0], lengths[i / 2]) << i;
    Values expected = alone[i / 2];
    expected[0] = lengths[i / 2];
    EXPECT_EQ(sharing[i], expected) << i;
  }
}

TEST_F(PromptMutantsTest, EachIsFound) {
  const std::string expected = RunAll("").output;
  ASSERT_GT(expected.size(), 500 * sizeof(float));
  EXPECT_TRUE(RunAll("").output == expected);
  const std::vector<std::string> mutants = absl::StrSplit(NACRE_MUTANTS, ',');
  for (const std::string& mutant : mutants) {
    const nacre::testing::ChildRun run = RunAll(mutant);
    EXPECT_FALSE(run.crashed()) << mutant << ": " << run.How();
    EXPECT_TRUE(run.output != expected) << mutant << ": " << run.How();
  }
}

}  // namespace
}  // namespace nacre::worker
