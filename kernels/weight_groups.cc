#include "kernels/weight_groups.h"

#include "kernels/dtype.h"

namespace nacre::kernels {
namespace {

// Of the groups of a block.
void StepsOf(const WeightGroups& groups, const SplitBlock& block, float* steps,
             float* offsets) {
  const float scale = FromF16(block.scale);
  const float offset_scale = FromF16(block.offset_scale);
  for (int i = 0; i < groups.block / groups.group; ++i) {
    steps[i] = scale;
    offsets[i] = offset_scale;
    if (!groups.has_steps) continue;
    steps[i] *= static_cast<float>(block.steps[i]);
    if (!groups.has_offsets) continue;
    offsets[i] *= static_cast<float>(block.offsets[i]);
  }
}

}  // namespace

void GroupedWeights(const WeightGroups& groups, const void* blocks,
                    size_t count, float* out) {
  const auto* from = static_cast<const uint8_t*>(blocks);
  SplitBlock block;
  float steps[kMaxBlockGroups];
  float offsets[kMaxBlockGroups];
  for (size_t b = 0; b < count; ++b, from += groups.block_bytes) {
    groups.split(from, &block);
    StepsOf(groups, block, steps, offsets);
    for (int i = 0; i < groups.block; ++i) {
      const int group = i / groups.group;
      const int integer = block.integers[i];
      *out++ = groups.has_offsets
                   ? steps[group] * static_cast<float>(integer) - offsets[group]
                   : steps[group] * static_cast<float>(integer - groups.zero);
    }
  }
}

}  // namespace nacre::kernels
