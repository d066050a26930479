// The bundled pair on the cuda backend, which draws its tokens: they are those
// that a sampler draws from the target's logits. On the emulated device.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/in_process_pair.h"

namespace nacre::worker {
namespace {

using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using nacre::testing::PairRequest;
using speculation::Method;

// Counts what comes to the host.
class CountingModel : public model::LanguageModel {
 public:
  CountingModel(const std::string& name, kernels::Backend* backend) {
    auto loaded = model::LoadModel(std::string(NACRE_MODELS "/") + name,
                                   backend, {4 << 20, {}});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    model_ = *std::move(loaded);
  }

  const model::ModelInfo& info() const override { return model_->info(); }
  void BindComputeThread() override { model_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      int max_length) override {
    return model_->NewSequence(max_length);
  }
  int64_t kv_free_tokens() const override { return model_->kv_free_tokens(); }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::SequenceRows> batch) override {
    auto logits = model_->Forward(batch);
    if (logits.ok()) logits_copied += static_cast<int64_t>(logits->size());
    draws += static_cast<int64_t>(model_->drawn_tokens().size());
    return logits;
  }
  bool draws_tokens() const override {
    return lets_draw && model_->draws_tokens();
  }
  absl::Span<const int32_t> drawn_tokens() const override {
    return model_->drawn_tokens();
  }
  model::QueuedSteps queued_steps() const override {
    return model_->queued_steps();
  }
  kernels::FloatView final_hidden() override { return model_->final_hidden(); }

  bool lets_draw = true;
  int64_t logits_copied = 0;
  int64_t draws = 0;

 private:
  std::unique_ptr<model::LanguageModel> model_;
};

std::unique_ptr<kernels::Backend> MakeCuda() {
  kernels::BackendOptions options;
  options.kind = "cuda";
  return *kernels::CreateBackend(options);
}

TEST(DeviceDrawPairTest, SaysTheSameWithAndWithout) {
  const auto target_backend = MakeCuda();
  const auto draft_backend = MakeCuda();
  CountingModel target("target", target_backend.get());
  CountingModel draft("draft", draft_backend.get());
  PairRequest request;
  request.prompt = {1, 40, 77, 300, 12};
  request.max_tokens = 9;
  for (const Method method : {Method::kSd, Method::kAsync}) {
    for (const float temperature : {0.0f, 0.8f}) {
      request.method = method;
      request.sampling.temperature = temperature;
      request.sampling.seed = 9;
      const std::vector<int32_t> expected = GenerateAlone(target, request);
      for (const bool lets_draw : {true, false}) {
        target.lets_draw = draft.lets_draw = lets_draw;
        target.logits_copied = target.draws = 0;
        draft.logits_copied = draft.draws = 0;
        const uint64_t queued = draft.queued_steps().used;
        InProcessPair pair(&target, &draft, /*seed=*/3);
        EXPECT_EQ(pair.Generate(request), expected)
            << "at " << temperature << ", draws " << lets_draw;
        EXPECT_EQ(target.draws > 0, lets_draw);
        EXPECT_EQ(draft.draws > 0, lets_draw);
        EXPECT_EQ(target.logits_copied > 0, !lets_draw);
        EXPECT_EQ(draft.logits_copied > 0, !lets_draw);
        EXPECT_EQ(draft.queued_steps().used > queued, lets_draw);
      }
    }
  }
}

TEST(DeviceDrawPairTest, WhatNeedsLogitsSaysTheSame) {
  const auto target_backend = MakeCuda();
  const auto draft_backend = MakeCuda();
  CountingModel target("target", target_backend.get());
  CountingModel draft("draft", draft_backend.get());
  PairRequest request;
  request.prompt = {1, 40, 77, 300, 12};
  request.max_tokens = 8;
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 4;
  request.sampling.top_p = 0.9f;
  EXPECT_EQ(InProcessPair(&target, &draft, 3).Generate(request),
            GenerateAlone(target, request));
  // Of each, the row after its prompt that is only looked at.
  EXPECT_EQ(target.draws, 1);
  EXPECT_EQ(draft.draws, 1);
  // The draft's policy reads rows, the target's tokens are drawn.
  request.sampling.top_p = 1.0f;
  request.policy = "svip";
  target.draws = draft.draws = 0;
  EXPECT_EQ(InProcessPair(&target, &draft, 3).Generate(request),
            GenerateAlone(target, request));
  EXPECT_GT(target.draws, 1);
  EXPECT_EQ(draft.draws, 1);
}

}  // namespace
}  // namespace nacre::worker
