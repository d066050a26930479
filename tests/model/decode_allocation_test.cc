// A decode step allocates nothing: the forward, the drawing of its tokens and
// the bookkeeping of a session, as the target worker calls them.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/load_model.h"
#include "model/logprobs.h"
#include "model/sampler.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::AllocationsSoFar;

TEST(AllocationCounterTest, CountsWhateverAllocates) {
  if (!nacre::testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer";
  const auto before = AllocationsSoFar();
  // Volatile: an allocation that is not seen may be left out.
  int* volatile number = new int(7);
  void* volatile aligned = std::aligned_alloc(64, 128);
  const auto after = AllocationsSoFar();
  EXPECT_EQ(after.count, before.count + 2);
  EXPECT_EQ(after.bytes, before.bytes + 128 + int64_t{sizeof(int)});
  delete number;
  std::free(aligned);
}

constexpr int kPromptLength = 200;
constexpr int kSteps = 100;
constexpr int kMaxRows = 16;
constexpr int kLength = kPromptLength + kSteps + kMaxRows;

// The parameters of sampling that take different ways.
std::vector<SamplingParams> AllSampling() {
  std::vector<SamplingParams> all(6);
  all[1].temperature = 1.0f;
  all[2].temperature = 0.8f;
  all[2].top_k = 40;
  all[3].temperature = 1.3f;
  all[3].top_p = 0.95f;
  all[3].repetition_penalty = 1.1f;
  all[4].temperature = 1.0f;
  all[4].top_k = 30;
  all[4].top_p = 0.9f;
  all[4].logit_bias = {{3, 1.0f}, {70, -2.0f}};
  all[5].temperature = 0.7f;
  all[5].min_p = 0.05f;
  return all;
}

// One session of a target worker that verifies `rows` - 1 tail tokens a step,
// all of them wrong or right as it happens.
class Session {
 public:
  Session(LanguageModel* model, const SamplingParams& params,
          SamplingScratch* scratch)
      : model_(model),
        sampler_(params, model->info().vocab_size, {}, scratch),
        history_(kPromptLength),
        sequence_(*model->NewSequence(kLength)) {
    history_.Reserve(kLength);
    committed_.reserve(kLength);
    fed_.reserve(kMaxRows);
    for (int i = 0; i < kPromptLength; ++i) {
      committed_.push_back(i * 7919 % model->info().vocab_size);
      history_.Push(committed_.back());
    }
    const SequenceRows prompt = {
        sequence_.get(),
        absl::MakeConstSpan(committed_).first(kPromptLength - 1), 0};
    EXPECT_TRUE(model->Forward({&prompt, 1}).ok());
  }

  SequenceRows Feed(int rows) {
    fed_.assign(1, committed_.back());
    while (static_cast<int>(fed_.size()) < rows) {
      fed_.push_back((fed_.back() * 31 + 7) % model_->info().vocab_size);
    }
    return {sequence_.get(), fed_, rows};
  }

  // As RowSampler::SampleRows and StepVerdicts do.
  //                                              logits [rows, vocab_size]
  void Draw(absl::Span<const float> logits) {
    const size_t vocab = static_cast<size_t>(model_->info().vocab_size);
    const int base = static_cast<int>(committed_.size());
    for (size_t row = 0; row < fed_.size(); ++row) {
      const int32_t token =
          sampler_.Sample(logits.subspan(row * vocab, vocab),
                          base + static_cast<int>(row), history_);
      committed_.push_back(token);
      if (row + 1 == fed_.size() || token != fed_[row + 1]) break;
      history_.Push(token);
    }
    // A tail of which the second half was wrong.
    committed_.resize(static_cast<size_t>(base) + 1);
    history_.Truncate(base);
    history_.Push(committed_.back());
    sequence_->Truncate(base);
    sequence_->Share(committed_);
  }

 private:
  LanguageModel* model_;
  Sampler sampler_;
  TokenHistory history_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<int32_t> committed_;
  std::vector<int32_t> fed_;
};

struct Case {
  const char* weights;
  size_t threads;
};

class DecodeAllocationTest : public ::testing::TestWithParam<Case> {};

TEST_P(DecodeAllocationTest, AStepOf1To16RowsAllocatesNothing) {
  if (!nacre::testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer";
  const std::vector<int> cores = kernels::AllowedCores(GetParam().threads);
  if (cores.size() < GetParam().threads) GTEST_SKIP() << "too few cores";
  const std::string dir = nacre::testing::TestFolder("model");
  nacre::testing::TinyCheckpoint shape;
  shape.hidden_size = 172;
  shape.intermediate_size = 345;
  shape.head_dim = 34;
  shape.vocab_size = 1500;
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  const auto backend = kernels::MakeBackend("cpu", GetParam().weights, cores);
  ModelOptions options;
  options.kv_cache_bytes = 1 << 23;
  options.prefix_cache = true;
  const auto model = *LoadModel(dir, backend.get(), options);
  SamplingScratch scratch;
  std::vector<std::unique_ptr<Session>> sessions;
  for (const SamplingParams& params : AllSampling()) {
    sessions.push_back(
        std::make_unique<Session>(model.get(), params, &scratch));
  }
  std::vector<SequenceRows> batch;
  batch.reserve(sessions.size());
  const size_t vocab = static_cast<size_t>(shape.vocab_size);
  int64_t step_allocations = 0;
  const auto step = [&](int rows) {
    const auto before = AllocationsSoFar();
    batch.clear();
    for (const auto& session : sessions) batch.push_back(session->Feed(rows));
    const auto logits = model->Forward(batch);
    ASSERT_TRUE(logits.ok());
    const size_t each = static_cast<size_t>(rows) * vocab;
    for (size_t i = 0; i < sessions.size(); ++i) {
      sessions[i]->Draw(logits->subspan(i * each, each));
    }
    step_allocations = AllocationsSoFar().count - before.count;
  };
  step(kMaxRows);  // grows what is kept
  // Over the ends of blocks, which are shared, and of a part of the table of
  // positions.
  for (int i = 1; i < kSteps; ++i) {
    const int rows = 1 + i % kMaxRows;
    step(rows);
    ASSERT_EQ(step_allocations, 0) << "step " << i << ", " << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(WeightsAndThreads, DecodeAllocationTest,
                         ::testing::Values(Case{"f32", 1}, Case{"bf16", 2},
                                           Case{"bf16a16", 1}, Case{"int8", 1},
                                           Case{"int8", 2}, Case{"int4", 2}),
                         [](const auto& info) {
                           return std::string(info.param.weights) + "_" +
                                  std::to_string(info.param.threads);
                         });

// All that is asked for beside the tokens is the answer itself.
TEST(LogprobsAllocationTest, AllocatesTheirResultOnly) {
  if (!nacre::testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer";
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i * 7919 % 5000) * 1e-3f;
  }
  SamplingScratch scratch;
  scratch.Reserve(5000);
  const auto before = AllocationsSoFar();
  EXPECT_TRUE(ComputeLogprobs(logits, 3, 0, &scratch).top.empty());
  const auto between = AllocationsSoFar();
  EXPECT_EQ(between.count, before.count);
  EXPECT_EQ(ComputeLogprobs(logits, 3, 20, &scratch).top.size(), 20u);
  EXPECT_EQ(AllocationsSoFar().count, between.count + 1);
}

}  // namespace
}  // namespace nacre::model
