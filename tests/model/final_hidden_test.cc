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

INSTANTIATE_TEST_SUITE_P(Backends, FinalHiddenTest,
                         ::testing::Values("reference", "cpu"));

}  // namespace
}  // namespace nacre::model
