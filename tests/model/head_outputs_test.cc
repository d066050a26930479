// Which rows of a forward are drawn from where they are and which are copied.

#include "model/head_outputs.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/load_model.h"
#include "model/sampler.h"
#include "tests/testing/drawing_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::DrawingBackend;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;
using Draws = std::vector<absl::optional<TokenDraw>>;

class HeadOutputsTest : public ::testing::Test {
 protected:
  HeadOutputsTest() {
    const std::string dir = TestFolder("outputs");
    WriteTinyCheckpoint(TinyCheckpoint(), dir);
    model_ = *LoadModel(dir, &backend_, {1 << 22, {}});
    vocab_ = static_cast<size_t>(model_->info().vocab_size);
    row_bytes_ = vocab_ * sizeof(float);
  }

  static TokenDraw DrawAt(int position, float temperature = 1.0f) {
    return {77, position, temperature, 101};
  }
  int32_t Sampled(absl::Span<const float> logits, const TokenDraw& draw) {
    SamplingParams params;
    params.temperature = draw.temperature;
    params.seed = draw.seed;
    return Sampler(params, draw.vocab_limit)
        .Sample(logits, draw.position, TokenHistory(0));
  }

  DrawingBackend backend_;
  std::unique_ptr<LanguageModel> model_;
  size_t vocab_ = 0;
  size_t row_bytes_ = 0;
};

TEST_F(HeadOutputsTest, RowsAreDrawnFromOrCopiedInBatchOrder) {
  const std::vector<int32_t> a = {1, 2, 3, 4};
  const std::vector<int32_t> b = {5, 6};
  const std::vector<int32_t> c = {7, 8, 9};
  const auto forward = [&](const Draws& of_a, const Draws& of_c) {
    const auto first = *model_->NewSequence(16);
    const auto prompt = *model_->NewSequence(16);
    const auto second = *model_->NewSequence(16);
    const auto logits = model_->Forward({{first.get(), a, 4, of_a},
                                         {prompt.get(), b, 0},
                                         {second.get(), c, 2, of_c}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    return std::vector<float>(logits->begin(), logits->end());
  };
  ASSERT_TRUE(model_->draws_tokens());
  backend_.copied_bytes = 0;
  const std::vector<float> all = forward({}, {});
  ASSERT_EQ(all.size(), 6 * vocab_);
  EXPECT_TRUE(model_->drawn_tokens().empty());
  EXPECT_EQ(backend_.copied_bytes, 6 * row_bytes_);
  const absl::Span<const float> shown = model_->final_hidden().host();
  const std::vector<float> hidden(shown.begin(), shown.end());
  // Every choice of rows.
  for (unsigned chosen = 0; chosen < 64; ++chosen) {
    Draws draws(6);
    std::vector<int32_t> tokens;
    std::vector<float> others;
    for (size_t row = 0; row < 6; ++row) {
      const auto logits =
          absl::MakeConstSpan(all).subspan(row * vocab_, vocab_);
      if ((chosen >> row & 1) != 0) {
        draws[row] = DrawAt(static_cast<int>(row), row == 1 ? 0.0f : 0.7f);
        tokens.push_back(Sampled(logits, *draws[row]));
      } else {
        others.insert(others.end(), logits.begin(), logits.end());
      }
    }
    backend_.copied_bytes = 0;
    EXPECT_EQ(forward({draws.begin(), draws.begin() + 4},
                      {draws.begin() + 4, draws.end()}),
              others)
        << chosen;
    EXPECT_EQ(model_->drawn_tokens(), absl::MakeConstSpan(tokens)) << chosen;
    EXPECT_EQ(backend_.copied_bytes,
              others.size() * sizeof(float) + tokens.size() * sizeof(int32_t));
    EXPECT_EQ(model_->final_hidden().host(), absl::MakeConstSpan(hidden))
        << chosen;
  }
  // Of the last forward only.
  const auto sequence = *model_->NewSequence(16);
  EXPECT_EQ(model_->Forward({{sequence.get(), b, 0}})->size(), 0u);
  EXPECT_TRUE(model_->drawn_tokens().empty());
}

TEST_F(HeadOutputsTest, WithoutRoomAForwardFailsAndChangesNothing) {
  const auto sequence = *model_->NewSequence(16);
  const std::vector<int32_t> tokens = {1, 2, 3};
  const Draws draws = {absl::nullopt, DrawAt(2), DrawAt(3)};
  for (const size_t room : {size_t{7}, row_bytes_ - 1}) {
    backend_.host_bytes = room;
    EXPECT_EQ(
        model_->Forward({{sequence.get(), tokens, 3, draws}}).status().code(),
        absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(sequence->length(), 0);
  }
  backend_.host_bytes = row_bytes_;
  EXPECT_TRUE(model_->Forward({{sequence.get(), tokens, 3, draws}}).ok());
  EXPECT_EQ(sequence->length(), 3);
}

// As on ranks beside the first: nothing is to come to the host.
TEST_F(HeadOutputsTest, ABackendThatCopiesNothingNeedsNoRoomForLogits) {
  backend_.copies = false;
  backend_.host_bytes = row_bytes_ - 1;
  backend_.copied_bytes = 0;
  const auto sequence = *model_->NewSequence(16);
  const std::vector<int32_t> tokens = {1, 2, 3};
  const auto logits = model_->Forward({{sequence.get(), tokens, 3}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_TRUE(logits->empty());
  EXPECT_EQ(backend_.copied_bytes, 0u);
  EXPECT_EQ(sequence->length(), 3);
}

TEST_F(HeadOutputsTest, ThereIsADrawForEachRowOrNone) {
  const auto sequence = *model_->NewSequence(16);
  const std::vector<int32_t> tokens = {1, 2, 3};
  const Draws draws = {DrawAt(2), DrawAt(3)};
  EXPECT_DEATH(model_->Forward({{sequence.get(), tokens, 3, draws}})
                   .status()
                   .IgnoreError(),
               "not one draw for each row");
}

TEST_F(HeadOutputsTest, ABackendOfTheHostDrawsNothing) {
  kernels::ReferenceBackend backend(kernels::WeightType::kAuto);
  EXPECT_EQ(backend.token_drawer(), nullptr);
  HeadOutputs outputs(&backend, 101);
  const Draws draws = {DrawAt(2)};
  const std::vector<SequenceRows> batch = {{nullptr, {}, 1, draws}};
  EXPECT_DEATH(outputs.Plan(batch).IgnoreError(),
               "draws of a backend that draws no tokens");
}

}  // namespace
}  // namespace nacre::model
