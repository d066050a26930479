#include "worker/engine/token_ids.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "model/language_model.h"

namespace nacre::worker {
namespace {

TEST(TokenIdsTest, IdsWithinTheVocabularyAreFine) {
  EXPECT_TRUE(CheckTokenIds("ids", {}, 16).ok());
  EXPECT_TRUE(CheckTokenIds("ids", {0, 15, 7}, 16).ok());
}

TEST(TokenIdsTest, NamesTheFirstIdOutside) {
  EXPECT_EQ(CheckTokenIds("stop", {0, 16, -1}, 16),
            absl::InvalidArgumentError(
                "stop[1] is 16, outside the vocabulary of 16"));
  EXPECT_EQ(CheckTokenIds("stop", {-1}, 16),
            absl::InvalidArgumentError(
                "stop[0] is -1, outside the vocabulary of 16"));
}

TEST(TokenIdsTest, APromptIsTheFirstOfTheIds) {
  EXPECT_TRUE(CheckPrompt(1, {3, 4}, 16).ok());
  EXPECT_TRUE(CheckPrompt(2, {3, 4}, 16).ok());
  EXPECT_EQ(CheckPrompt(3, {3, 4}, 16),
            absl::InvalidArgumentError(
                "prompt_length 3 is outside 1 to 2, the number of token_ids"));
  EXPECT_EQ(CheckPrompt(0, {3, 4}, 16).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckPrompt(1, {3, 16}, 16),
            absl::InvalidArgumentError(
                "token_ids[1] is 16, outside the vocabulary of 16"));
}

TEST(TokenIdsTest, ATreeHasAFewSlots) {
  EXPECT_TRUE(CheckNumSlots(0).ok());
  EXPECT_TRUE(CheckNumSlots(model::LanguageModel::kMostSlots).ok());
  EXPECT_EQ(CheckNumSlots(-1), absl::InvalidArgumentError(absl::StrCat(
                                   "num_slots -1 is outside 0 to ",
                                   model::LanguageModel::kMostSlots)));
  EXPECT_EQ(CheckNumSlots(model::LanguageModel::kMostSlots + 1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TokenIdsTest, ABiasNeedsAnIdOfTheVocabularyAndAValidValue) {
  SamplingParams params;
  params.logit_bias = {{15, 1.0f}};
  EXPECT_TRUE(CheckSampling(params, 16).ok());
  EXPECT_EQ(CheckSampling(params, 15),
            absl::InvalidArgumentError(
                "logit_bias[0] is 15, outside the vocabulary of 15"));
  params.logit_bias = {{15, 101.0f}};
  EXPECT_EQ(CheckSampling(params, 16).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::worker
