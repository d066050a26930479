#include "model/even_positions.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace nacre::model {

int EvenPositions(const ModelConfig& config) {
  const int64_t queries = config.q_size();
  const int64_t attention = 2 * (queries + config.kv_size());
  const int64_t matrices = config.blocks.has_gate ? 3 : 2;
  int64_t products = 0;
  int64_t a_position = 0;  // products with its key and its value
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const int64_t inner =
        config.has_experts(layer)
            ? int64_t{config.experts.per_token} * config.experts.size
            : config.intermediate_size;
    products += config.hidden_size * (attention + matrices * inner);
    if (config.window(layer) == 0) a_position += 2 * queries;
  }
  if (a_position == 0) return 0;
  return static_cast<int>(std::clamp<int64_t>(products / a_position, 1,
                                              std::numeric_limits<int>::max()));
}

}  // namespace nacre::model
