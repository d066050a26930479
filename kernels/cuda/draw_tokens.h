// Draws tokens from rows of logits (common/token_draw.h); all pointers are the
// device's. A token is a pure function of its row and its draw. It has the
// largest of numbers that no two tokens share, so the order of comparing
// decides nothing.
//
// Queues two kernels and does not block; what it returns is their launches'.
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_DRAW_TOKENS_H_
#define KERNELS_CUDA_DRAW_TOKENS_H_

#include <cstdint>

#include "common/token_draw.h"
#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

struct DeviceDraw {
  TokenDraw draw;
  int32_t row = 0;  // of the logits

  bool operator==(const DeviceDraw&) const = default;
};

struct DrawArgs {
  const float* logits = nullptr;  // [rows, cols]
  int cols = 0;
  const DeviceDraw* draws = nullptr;  // [count], vocab_limit <= cols
  int count = 0;
  uint64_t* keys = nullptr;  // scratch [count, DrawParts(cols)]
  int32_t* ids = nullptr;    // out [count]
};

// Parts that a row is cut into, one block each.
int DrawParts(int cols);

cudaError_t DrawTokens(const Queue& queue, const DrawArgs& args);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_DRAW_TOKENS_H_
