#include "model/kv_budget.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGigabyte = int64_t{1} << 30;

// A Llama 3 of 8B.
ModelConfig Config() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  return config;
}

// 80 GB of which 16 are weights.
kernels::DeviceMemory Memory() {
  return {80 * kGigabyte, 64 * kGigabyte, 16 * kGigabyte, {}};
}

TEST(KvBudgetTest, TheScratchHoldsLogitsAndGrowsWithTheRows) {
  const ModelConfig config = Config();
  EXPECT_GT(ScratchBytes(config, 512), int64_t{512} * 128256 * 4);
  EXPECT_LT(ScratchBytes(config, 512), kGigabyte);
  EXPECT_EQ(ScratchBytes(config, 512), 512 * ScratchBytes(config, 1));
}

TEST(KvBudgetTest, TheScratchHoldsQueriesIntoATargetsKeys) {
  ModelConfig config = Config();
  const int64_t without = ScratchBytes(config, 4);
  config.cross.emplace();
  config.cross->num_heads = 64;
  config.cross->num_key_value_heads = 8;
  config.cross->head_dim = 128;
  EXPECT_EQ(ScratchBytes(config, 4) - without, 4 * 4 * 2 * 64 * 128);
}

TEST(KvBudgetTest, TheCacheGetsItsShareOfWhatIsLeft) {
  const auto all = KvBytes(Config(), Memory(), {.step_rows = 512});
  ASSERT_TRUE(all.ok());
  EXPECT_LT(*all, 64 * kGigabyte - ScratchBytes(Config(), 512));
  EXPECT_GT(*all, 62 * kGigabyte);
  const auto half =
      KvBytes(Config(), Memory(), {.share = 0.5, .step_rows = 512});
  EXPECT_EQ(*half, *all / 2);
  const auto most =
      KvBytes(Config(), Memory(), {.most = kGigabyte, .step_rows = 512});
  EXPECT_EQ(*most, kGigabyte);
}

TEST(KvBudgetTest, WeightsCacheAndScratchStayBelowALimit) {
  kernels::DeviceMemory memory = Memory();
  memory.limit = 20 * kGigabyte;
  const auto bytes = KvBytes(Config(), memory, {.step_rows = 512});
  ASSERT_TRUE(bytes.ok());
  EXPECT_LE(memory.used + *bytes + ScratchBytes(Config(), 512), *memory.limit);
  EXPECT_GT(*bytes, 2 * kGigabyte);
  memory.limit = 200 * kGigabyte;  // no limit at all
  EXPECT_EQ(*KvBytes(Config(), memory, {.step_rows = 512}),
            *KvBytes(Config(), Memory(), {.step_rows = 512}));
}

// A draft that comes later has room, for as many tokens.
TEST(KvBudgetTest, LeavesRoomForADraft) {
  kernels::DeviceMemory memory = Memory();
  memory.limit = 20 * kGigabyte;
  constexpr int64_t kToken = 1000;
  const KvBudget budget = {.step_rows = 512, .draft = {kGigabyte, kToken / 10}};
  const auto bytes = KvBytes(Config(), memory, budget, kToken);
  ASSERT_TRUE(bytes.ok());
  const int64_t tokens = *bytes / kToken;
  EXPECT_LE(memory.used + *bytes + ScratchBytes(Config(), 512) +
                budget.draft.bytes + tokens * budget.draft.per_token,
            *memory.limit);
  const auto alone = KvBytes(Config(), memory, {.step_rows = 512}, kToken);
  EXPECT_NEAR(static_cast<double>(*bytes),
              static_cast<double>(*alone - kGigabyte) / 1.1, 2);
  memory.limit = memory.used + kGigabyte;
  EXPECT_THAT(
      std::string(KvBytes(Config(), memory, budget, kToken).status().message()),
      HasSubstr(", 1073741824 of them for a draft, "));
}

TEST(KvBudgetTest, SaysWhatIsMissing) {
  kernels::DeviceMemory memory = Memory();
  memory.limit = memory.used + 1000;
  const auto limited = KvBytes(Config(), memory, {.step_rows = 512});
  EXPECT_EQ(limited.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(limited.status().message()),
              AllOf(HasSubstr("a step of 512 rows needs"),
                    HasSubstr("of the limit of 17179870184 are used")));
  memory = Memory();
  memory.free = 1000;
  EXPECT_EQ(KvBytes(Config(), memory, {.step_rows = 512}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace nacre::model
