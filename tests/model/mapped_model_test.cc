#include "model/mapped_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/table_model.h"

namespace nacre::model {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MappedModelTest : public ::testing::Test {
 protected:
  // A model of 16 ids; the other vocabulary has 5.
  std::unique_ptr<MappedModel> Make(std::vector<int32_t> fed,
                                    std::vector<int32_t> drawn) {
    TableModelOptions options;
    options.eos_token_ids = {3};
    auto model = std::make_unique<TableModel>(options);
    alone_ = model.get();
    return *MappedModel::Create(std::move(model), std::move(fed),
                                std::move(drawn));
  }
  absl::Status CreateError(std::vector<int32_t> fed,
                           std::vector<int32_t> drawn) {
    return MappedModel::Create(
               std::make_unique<TableModel>(TableModelOptions()),
               std::move(fed), std::move(drawn))
        .status();
  }

  TableModel* alone_ = nullptr;
};

TEST_F(MappedModelTest, IsAskedInTheIdsOfTheOtherVocabulary) {
  const auto model = Make({7, 3, 15, 0, 7}, {7, 3, 15, 0, -1});
  EXPECT_EQ(model->info().vocab_size, 5);
  EXPECT_THAT(model->info().eos_token_ids, ElementsAre(1));
  EXPECT_FALSE(model->draws_tokens());
  const auto first = *model->NewSequence(8);
  const auto second = *model->NewSequence(8);
  // Two rows of one sequence with logits, the last of three of another.
  const std::vector<int32_t> some = {0, 1};
  const std::vector<int32_t> others = {4, 2, 3};
  const SequenceRows batch[] = {
      {.sequence = first.get(), .token_ids = some, .num_logits = 2},
      {.sequence = second.get(), .token_ids = others, .num_logits = 1}};
  const auto logits = model->Forward(batch);
  ASSERT_TRUE(logits.ok()) << logits.status();
  std::vector<float> expected;
  for (const std::vector<int32_t>& fed :
       {std::vector<int32_t>{7}, {7, 3}, {7, 15, 0}}) {
    const std::vector<float> own = alone_->Logits(fed);
    expected.insert(expected.end(),
                    {own[7], own[3], own[15], own[0], kLeastLogit});
  }
  EXPECT_EQ(std::vector<float>(logits->begin(), logits->end()), expected);
  EXPECT_EQ(first->length(), 2);
  EXPECT_EQ(second->length(), 3);
  // Not the caller's ids.
  EXPECT_EQ(some[0], 0);
}

TEST_F(MappedModelTest, AnIdOutsideTheOtherVocabularyIsRefused) {
  const auto model = Make({7, 3}, {7, 3});
  const auto sequence = *model->NewSequence(8);
  for (const int32_t id : {-1, 2, 7}) {
    const SequenceRows rows = {
        .sequence = sequence.get(), .token_ids = {&id, 1}, .num_logits = 1};
    const absl::Status status = model->Forward({&rows, 1}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(status.message(), HasSubstr("outside the vocabulary of 2"));
    EXPECT_EQ(sequence->length(), 0);
  }
}

TEST_F(MappedModelTest, MapsThatNameNoIdOfTheModelAreRefused) {
  EXPECT_THAT(CreateError({16}, {1}).message(),
              HasSubstr("id 0 is fed as 16, the model has 16 ids"));
  EXPECT_THAT(CreateError({-1}, {1}).message(), HasSubstr("is fed as -1"));
  EXPECT_THAT(CreateError({1, 1}, {1, -2}).message(),
              HasSubstr("id 1 is drawn as -2"));
  EXPECT_THAT(CreateError({1, 1}, {1}).message(),
              HasSubstr("2 ids that are fed and 1"));
  EXPECT_TRUE(absl::IsInvalidArgument(CreateError({}, {})));
}

}  // namespace
}  // namespace nacre::model
