#include "model/even_positions.h"

#include <gtest/gtest.h>

#include "model/config.h"

namespace nacre::model {
namespace {

// Llama 3 8B, whose layers have 6.98 G weights in matrices.
ModelConfig Llama8b() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  return config;
}

TEST(EvenPositionsTest, IsWhereAttentionTakesAsManyMultiplications) {
  ModelConfig config = Llama8b();
  EXPECT_EQ(EvenPositions(config), 6979321856 / (32 * 2 * 4096));
  // Fewer heads of keys and values make no row of queries cheaper.
  config.num_key_value_heads = 32;
  EXPECT_EQ(EvenPositions(config),
            (6979321856 + 32LL * 2 * 4096 * 3072) / (32 * 2 * 4096));
  config = Llama8b();
  config.blocks.has_gate = false;
  EXPECT_EQ(EvenPositions(config),
            (6979321856 - 32LL * 4096 * 14336) / (32 * 2 * 4096));
}

TEST(EvenPositionsTest, OfExpertsThoseOfOneTokenCount) {
  ModelConfig config = Llama8b();
  const int dense = EvenPositions(config);
  config.experts.count = 64;
  config.experts.per_token = 2;
  config.experts.size = 7168;
  EXPECT_EQ(EvenPositions(config), dense);
  config.experts.per_token = 4;
  EXPECT_EQ(EvenPositions(config), dense + 3 * 14336 / 2);
  config.experts.dense_layers.assign(32, true);
  EXPECT_EQ(EvenPositions(config), dense);
}

TEST(EvenPositionsTest, WindowsAreFree) {
  ModelConfig config = Llama8b();
  const int dense = EvenPositions(config);
  config.windows.sizes.assign(32, 4096);
  EXPECT_EQ(EvenPositions(config), 0);
  for (size_t layer = 0; layer < 32; layer += 2) {
    config.windows.sizes[layer] = 0;
  }
  EXPECT_EQ(EvenPositions(config), 2 * dense);
}

}  // namespace
}  // namespace nacre::model
