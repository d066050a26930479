// How attention cuts a context into splits, counted from position 0. Decides
// bits: a split is a function of positions alone.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_ATTENTION_SPLITS_H_
#define KERNELS_CUDA_ATTENTION_SPLITS_H_

#include "common/host_device.h"
#include "kernels/kv_layer.h"

namespace nacre::kernels::cuda {

inline constexpr int kAttentionSplit = 128;  // positions of the shortest
inline constexpr int kMostGrowingHeadDim = 128;

// Splits of kAttentionSplit positions, or those for as far as contexts are
// short, then longer ones: fewer parts are to be kept and merged.
struct SplitRule {
  static constexpr int kMiddle = 4096;  // from here on: twice as long
  static constexpr int kLong = 16384;   // four times
  static constexpr int kMiddleSplit = kMiddle / kAttentionSplit;
  static constexpr int kLongSplit =
      kMiddleSplit + (kLong - kMiddle) / (2 * kAttentionSplit);

  bool grows = false;

  // That `position` is in.
  NACRE_HOST_DEVICE constexpr int Of(int position) const {
    if (!grows || position < kMiddle) return position / kAttentionSplit;
    if (position < kLong) {
      return kMiddleSplit + (position - kMiddle) / (2 * kAttentionSplit);
    }
    return kLongSplit + (position - kLong) / (4 * kAttentionSplit);
  }
  NACRE_HOST_DEVICE constexpr int Begin(int split) const {
    if (!grows || split < kMiddleSplit) return split * kAttentionSplit;
    if (split < kLongSplit) {
      return kMiddle + (split - kMiddleSplit) * 2 * kAttentionSplit;
    }
    return kLong + (split - kLongSplit) * 4 * kAttentionSplit;
  }
  // The first that has a part of the window of a row at `position`.
  NACRE_HOST_DEVICE constexpr int First(int position, int window) const {
    const int first = position + 1 - window;
    return first <= 0 ? 0 : Of(first);
  }
};

NACRE_HOST_DEVICE constexpr SplitRule SplitRuleOf(DType type, int head_dim) {
  return {type == DType::kBF16 && head_dim <= kMostGrowingHeadDim};
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_SPLITS_H_
