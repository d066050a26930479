// A target whose prompts are multiplied by cublasLt says what it says alone,
// whatever drafts for it, and goes on with what it said before wherever it is
// opened again. On the emulated device, with a cublasLt of the tests.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/in_process_pair.h"
#include "tests/worker/engine/prompt_target.h"
#include "worker/engine/canary.h"

namespace nacre::worker {
namespace {

using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using speculation::Method;
using Ids = std::vector<int32_t>;

class PromptPairTest : public PromptTarget {};

TEST_F(PromptPairTest, EveryMethodSaysTheSame) {
  Loaded target = Load(/*prefix_cache=*/true);
  // Guesses as it does, but for rounding.
  kernels::BackendOptions options;
  options.kind = "cpu";
  const auto draft_backend = *kernels::CreateBackend(options);
  const auto draft =
      *model::LoadModel(dir_, draft_backend.get(), {.kv_cache_bytes = 1 << 20});
  for (const float temperature : {0.0f, 0.9f}) {
    request_.sampling.temperature = temperature;
    const Ids expected = GenerateAlone(*target.model, request_);
    for (const Method method :
         {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
      request_.method = method;
      InProcessPair pair(target.model.get(), draft.get(), /*seed=*/3);
      // The second time its prompt is in the cache.
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(pair.Generate(request_), expected)
            << speculation::MethodName(method) << " at " << temperature;
      }
    }
  }
}

// A library that begins to compute wrongly is found as a device is.
TEST_F(PromptPairTest, TheCanaryGoesBothWays) {
  Loaded target = Load(/*prefix_cache=*/false);
  Canary canary(target.model.get());
  EXPECT_TRUE(*canary.Ask());
  EXPECT_TRUE(*canary.Ask());
  state_->error = 0.25f;
  EXPECT_FALSE(*canary.Ask());
  state_->error = 0;
  EXPECT_TRUE(*canary.Ask());
}

TEST_F(PromptPairTest, OpenedAgainAtEveryCutItGoesOn) {
  request_.sampling.temperature = 1.0f;
  Loaded first = Load(/*prefix_cache=*/false);
  Loaded other = Load(/*prefix_cache=*/false);
  Loaded caching = Load(/*prefix_cache=*/true);
  const auto answer = GoOn(first.model.get(), {}, 0);
  ASSERT_EQ(answer.size(), static_cast<size_t>(request_.max_tokens));
  for (int known = 1; known < request_.max_tokens; ++known) {
    for (Loaded* loaded : {&first, &other, &caching}) {
      EXPECT_EQ(GoOn(loaded->model.get(), answer, known), answer) << known;
    }
  }
}

}  // namespace
}  // namespace nacre::worker
