// The prefix cache under the real engines and the bundled pair: the same tokens
// with and without, whatever was shared, rolled back or evicted.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/in_process_pair.h"

namespace nacre::worker {
namespace {

using model::LanguageModel;
using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using nacre::testing::PairRequest;

// By the type of keys and values.
class PrefixCacheTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanguageModel> Load(const char* name, int64_t kv_bytes,
                                      bool prefix_cache,
                                      int64_t store_bytes = 0) {
    model::ModelOptions options;
    options.kv_cache_bytes = kv_bytes;
    options.prefix_cache = prefix_cache;
    options.prefix_store.bytes = store_bytes;
    auto model = LoadModel(std::string(NACRE_MODELS "/") + name, backend_.get(),
                           options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // Prompts of which many begin alike; the answer to one begins the next.
  static std::vector<int32_t> Prompt(int kind, int length) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < length; ++i) {
      const bool common = i < 40 + 10 * (kind % 3);
      prompt.push_back(300 + (common ? i * 7 : i * 11 + kind) % 3000);
    }
    return prompt;
  }

  std::unique_ptr<kernels::Backend> backend_ =
      *kernels::CreateBackend({.kv_type = GetParam()});
};
INSTANTIATE_TEST_SUITE_P(KvTypes, PrefixCacheTest,
                         ::testing::Values("f32", "bf16", "int8"),
                         [](const auto& info) { return info.param; });

TEST_P(PrefixCacheTest, GenerationsAreTheSameTokensAndLeaveNoKv) {
  const auto plain = Load("target", 64 << 20, false);
  const auto target = Load("target", 64 << 20, true);
  const auto draft = Load("draft", 64 << 20, true);
  const int64_t target_free = target->kv_free_tokens();
  const int64_t draft_free = draft->kv_free_tokens();
  InProcessPair pair(target.get(), draft.get(), 7);
  const speculation::Method methods[] = {
      speculation::Method::kAsync, speculation::Method::kPearl,
      speculation::Method::kSd, speculation::Method::kAr};
  std::vector<int32_t> last;
  uint64_t prompt_tokens = 0;
  for (int i = 0; i < 8; ++i) {
    PairRequest request;
    request.prompt = Prompt(i, 60 + i);
    // A second turn: what was said before and its answer.
    if (i % 4 == 3)
      request.prompt.insert(request.prompt.begin(), last.begin(), last.end());
    request.max_tokens = 24;
    request.method = methods[i % 4];
    if (i % 2 == 1) {
      request.sampling.temperature = 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    const std::vector<int32_t> output = pair.Generate(request);
    EXPECT_EQ(output, GenerateAlone(*plain, request)) << i;
    prompt_tokens += request.prompt.size();
    last = request.prompt;
    last.insert(last.end(), output.begin(), output.end());
    EXPECT_EQ(target->kv_free_tokens(), target_free);
    EXPECT_EQ(draft->kv_free_tokens(), draft_free);
  }
  EXPECT_GE(pair.cached_tokens(), 6 * 32);
  EXPECT_EQ(pair.target_stats().prefix_hits,
            static_cast<uint64_t>(pair.cached_tokens()));
  EXPECT_EQ(pair.target_stats().prefix_queries, prompt_tokens);
  EXPECT_GT(pair.draft_stats().prefix_hits, 0u);
  EXPECT_LT(pair.draft_stats().prefix_hits, pair.draft_stats().prefix_queries);
}

TEST_P(PrefixCacheTest, EvictionChangesNothing) {
  // Room for two sessions or so: the cache is always full.
  const int64_t bytes =
      (int64_t{1} << 19) *
      static_cast<int64_t>(kernels::SizeOf(backend_->kv_type()));
  const auto plain = Load("target", 64 << 20, false);
  const auto target = Load("target", bytes, true);
  const auto draft = Load("draft", bytes, true);
  const int64_t room = target->kv_free_tokens();
  InProcessPair pair(target.get(), draft.get(), 8);
  const int length = static_cast<int>(std::min<int64_t>(room - 60, 150));
  ASSERT_GT(length, 60);
  for (int i = 0; i < 6; ++i) {
    PairRequest request;
    request.prompt = Prompt(i % 4, length);
    request.max_tokens = 16;
    EXPECT_EQ(pair.Generate(request), GenerateAlone(*plain, request)) << i;
    EXPECT_EQ(target->kv_free_tokens(), room);
  }
  EXPECT_GT(pair.cached_tokens(), 0);
}

TEST_P(PrefixCacheTest, WhatIsBroughtBackChangesNothing) {
  const int64_t bytes =
      (int64_t{1} << 19) *
      static_cast<int64_t>(kernels::SizeOf(backend_->kv_type()));
  const auto plain = Load("target", 64 << 20, false);
  // All that is computed here, and half of it.
  const auto target = Load("target", bytes, true, 16 * bytes);
  const auto draft = Load("draft", bytes, true, bytes);
  const int64_t room = target->kv_free_tokens();
  InProcessPair pair(target.get(), draft.get(), 8);
  const int length = static_cast<int>(std::min<int64_t>(room - 60, 150));
  uint64_t prompt_tokens = 0;
  for (int i = 0; i < 8; ++i) {
    PairRequest request;
    request.prompt = Prompt(i % 4, length);
    request.max_tokens = 16;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = 3;
    EXPECT_EQ(pair.Generate(request), GenerateAlone(*plain, request)) << i;
    EXPECT_EQ(target->kv_free_tokens(), room);
    if (i >= 4) prompt_tokens += request.prompt.size();
  }
  // Each prompt that came again was there, but for its last block.
  EXPECT_GE(pair.target_stats().prefix_hits, prompt_tokens - 4 * 16);
  EXPECT_GT(pair.target_stats().prefix_brought, 0u);
  EXPECT_LE(pair.target_stats().prefix_brought,
            pair.target_stats().prefix_hits);
}

}  // namespace
}  // namespace nacre::worker
