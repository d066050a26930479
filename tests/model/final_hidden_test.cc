// The hidden states behind the logits: what the head multiplies.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/dtype.h"
#include "model/checkpoint.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;

class FinalHiddenTest : public ::testing::TestWithParam<const char*> {
 protected:
  FinalHiddenTest() : dir_(TestFolder("hidden")) {
    WriteTinyCheckpoint(TinyCheckpoint(), dir_);
    kernels::BackendOptions options;
    options.kind = GetParam();
    backend_ = *kernels::CreateBackend(options);
    model_ = *LoadModel(dir_, backend_.get(), {1 << 22, {}});
  }

  // The head's weights as floats, [vocab_size, hidden_size].
  std::vector<float> Head() const {
    const ModelInfo& info = model_->info();
    const auto checkpoint = *Checkpoint::Open(dir_);
    const char* name = checkpoint->Contains("lm_head.weight")
                           ? "lm_head.weight"
                           : "model.embed_tokens.weight";
    const auto matrix =
        *checkpoint->Matrix(name, info.vocab_size, info.hidden_size);
    std::vector<float> values;
    const auto* bits = static_cast<const uint16_t*>(matrix.data);
    const auto* floats = static_cast<const float*>(matrix.data);
    for (int i = 0; i < info.vocab_size * info.hidden_size; ++i) {
      values.push_back(matrix.dtype == kernels::DType::kF32 ? floats[i]
                       : matrix.dtype == kernels::DType::kBF16
                           ? kernels::FromBF16(bits[i])
                           : kernels::FromF16(bits[i]));
    }
    return values;
  }

  const std::string dir_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
};

TEST_P(FinalHiddenTest, TheHeadTurnsItIntoTheLogits) {
  const auto first = *model_->NewSequence(16);
  const auto prompt = *model_->NewSequence(16);
  const auto second = *model_->NewSequence(16);
  const std::vector<int32_t> a = {1, 2, 3, 4};
  const std::vector<int32_t> b = {5, 6};
  const std::vector<int32_t> c = {7};
  const std::vector<SequenceRows> batch = {
      {first.get(), a, 2}, {prompt.get(), b, 0}, {second.get(), c, 1}};
  const auto logits = model_->Forward(batch);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto hidden_size = static_cast<size_t>(model_->info().hidden_size);
  const auto vocab_size = static_cast<size_t>(model_->info().vocab_size);
  const absl::Span<const float> hidden = model_->final_hidden().host();
  ASSERT_EQ(hidden.size(), 3 * hidden_size);
  const std::vector<float> head = Head();
  for (size_t row = 0; row < 3; ++row) {
    for (size_t id = 0; id < vocab_size; ++id) {
      double expected = 0.0;
      for (size_t i = 0; i < hidden_size; ++i) {
        expected +=
            double{head[id * hidden_size + i]} * hidden[row * hidden_size + i];
      }
      ASSERT_NEAR((*logits)[row * vocab_size + id], expected, 1e-4)
          << "row " << row << " id " << id;
    }
  }
}

TEST_P(FinalHiddenTest, IsEmptyWhereNoLogitsWereAskedFor) {
  EXPECT_TRUE(model_->final_hidden().empty());
  const auto sequence = *model_->NewSequence(16);
  const std::vector<int32_t> tokens = {1, 2};
  ASSERT_TRUE(
      model_->Forward(std::vector<SequenceRows>{{sequence.get(), tokens, 1}})
          .ok());
  EXPECT_FALSE(model_->final_hidden().empty());
  ASSERT_TRUE(
      model_->Forward(std::vector<SequenceRows>{{sequence.get(), tokens, 0}})
          .ok());
  EXPECT_TRUE(model_->final_hidden().empty());
}

// Of all rows of all sequences in batch order, also of those without logits and
// of nodes of a tree.
TEST_P(FinalHiddenTest, TapsKeepAllRows) {
  using Kind = FeatureTap::Kind;
  const int layers = model_->info().num_layers;
  ASSERT_TRUE(
      model_->SetTaps({{{Kind::kFinal}, {Kind::kIn, 0}, {Kind::kIn, layers}}})
          .ok());
  const std::vector<int32_t> a = {1, 2, 3, 4, 4};
  const std::vector<int32_t> b = {5, 1};
  const std::vector<TreeNode> nodes = {{0, kNoSlot, 3}, {1, kNoSlot, 3}};
  const auto run = [&](int num_logits) {
    const auto first = *model_->NewTreeSequence(16, 2, {});
    const auto second = *model_->NewSequence(16);
    const std::vector<SequenceRows> batch = {{.sequence = first.get(),
                                              .token_ids = a,
                                              .num_logits = num_logits,
                                              .nodes = nodes},
                                             {second.get(), b, 2}};
    ASSERT_TRUE(model_->Forward(batch).ok());
  };
  run(5);
  const auto hidden_size = static_cast<size_t>(model_->info().hidden_size);
  const absl::Span<const float> hidden = model_->final_hidden().host();
  const std::vector<float> all(hidden.begin(), hidden.end());
  ASSERT_EQ(all.size(), 7 * hidden_size);
  EXPECT_EQ(model_->features(0), absl::MakeConstSpan(all));
  run(1);
  EXPECT_EQ(model_->features(0), absl::MakeConstSpan(all));
  const auto row = [&](int tap, size_t index) {
    const absl::Span<const float> rows = model_->features(tap);
    EXPECT_EQ(rows.size(), 7 * hidden_size);
    return rows.subspan(index * hidden_size, hidden_size);
  };
  EXPECT_EQ(row(1, 3), row(1, 4)) << "embeddings of one token";
  EXPECT_EQ(row(1, 0), row(1, 6)) << "likewise, in another sequence";
  EXPECT_EQ(row(2, 3), row(2, 4)) << "after the same path";
  EXPECT_NE(row(2, 0), row(2, 6));
  EXPECT_NE(row(2, 3), row(0, 3)) << "the last norm";
}

TEST_P(FinalHiddenTest, TapsOfLayersThatThereAreNone) {
  using Kind = FeatureTap::Kind;
  const int layers = model_->info().num_layers;
  for (const int layer : {-1, layers + 1}) {
    const absl::Status status = model_->SetTaps({{{Kind::kIn, layer}}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << layer;
  }
  EXPECT_EQ(model_->SetTaps({{{Kind::kKv, 0}}}).code(),
            absl::StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(Backends, FinalHiddenTest,
                         ::testing::Values("reference", "cpu"));

}  // namespace
}  // namespace nacre::model
