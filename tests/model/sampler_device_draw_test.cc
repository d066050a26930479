// When a device may draw a token in the sampler's place, and that it is the
// same one.

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/sampler.h"
#include "tests/model/random_rows.h"
#include "tests/testing/draw_token.h"

namespace nacre::model {
namespace {

// As a device does it, token by token.
TEST(SamplerDeviceDrawTest, IsTheSamplersToken) {
  std::mt19937 rng(23);
  SamplingScratch scratch;
  for (int trial = 0; trial < 4000; ++trial) {
    const int vocab_size = Pick(rng, {1, 2, 5, 63, 64, 65, 300, 1500});
    const int vocab_limit =
        std::max(1, vocab_size - static_cast<int>(rng() % 3));
    SamplingParams params;
    params.temperature =
        Pick(rng, {0.0f, 0.3f, 1.0f, 2.0f, 1e-3f, 1e-40f, 1e30f});
    params.seed = rng() * uint64_t{0x100000001};
    const std::vector<float> logits = trial % 2 == 0
                                          ? RandomLogits(&rng, vocab_size)
                                          : HardLogits(&rng, vocab_size);
    const int position = static_cast<int>(rng() % 100000);
    Sampler sampler(params, vocab_limit, {}, &scratch);
    const absl::optional<TokenDraw> draw = sampler.DeviceDraw(position);
    ASSERT_TRUE(draw.has_value());
    EXPECT_EQ(nacre::testing::DrawToken(logits, *draw),
              AsDrawn(logits, vocab_limit,
                      sampler.Sample(logits, position, TokenHistory(0))))
        << "trial " << trial;
  }
}

TEST(SamplerDeviceDrawTest, IsForWhatNothingElseChanges) {
  SamplingParams plain;
  plain.temperature = 0.8f;
  plain.seed = 5;
  const auto draws = [](const SamplingParams& params, EndRule end_rule = {}) {
    return Sampler(params, 100, std::move(end_rule)).DeviceDraw(9).has_value();
  };
  const absl::optional<TokenDraw> draw = Sampler(plain, 100).DeviceDraw(9);
  ASSERT_TRUE(draw.has_value());
  EXPECT_EQ(draw->seed, 5u);
  EXPECT_EQ(draw->position, 9);
  EXPECT_EQ(draw->temperature, 0.8f);
  EXPECT_EQ(draw->vocab_limit, 100);
  const auto with = [&plain](const auto& change) {
    SamplingParams params = plain;
    change(params);
    return params;
  };
  // Before the temperature, so at temperature 0 too.
  for (const SamplingParams& params :
       {with([](auto& p) { p.repetition_penalty = 1.1f; }),
        with([](auto& p) { p.frequency_penalty = -0.1f; }),
        with([](auto& p) { p.presence_penalty = 0.1f; }), with([](auto& p) {
          p.logit_bias = {{3, 1.0f}};
        })}) {
    EXPECT_FALSE(draws(params));
    SamplingParams greedy = params;
    greedy.temperature = 0.0f;
    EXPECT_FALSE(draws(greedy));
  }
  // Past it: the best is always kept.
  for (const SamplingParams& params :
       {with([](auto& p) { p.top_k = 99; }),
        with([](auto& p) { p.top_p = 0.99f; }),
        with([](auto& p) { p.min_p = 0.01f; })}) {
    EXPECT_FALSE(draws(params));
    SamplingParams greedy = params;
    greedy.temperature = 0.0f;
    EXPECT_TRUE(draws(greedy));
  }
  EXPECT_TRUE(draws(with([](auto& p) { p.top_k = 100; })));  // all of them
  // Forbidden ends, while they are.
  EXPECT_FALSE(draws(plain, {10, {3}}));
  EXPECT_TRUE(draws(plain, {9, {3}}));
  EXPECT_TRUE(draws(plain, {10, {}}));
}

}  // namespace
}  // namespace nacre::model
