// Draws tokens where the logits are, so that they need not cross a bus. A
// device whose backend has one (Backend::token_drawer) draws the very tokens
// that model::Sampler draws from the same logits. The host has none, for there
// the sampler looks at a small part of a row only.
//
// As the backend that owns it.

#ifndef KERNELS_TOKEN_DRAWER_H_
#define KERNELS_TOKEN_DRAWER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/token_draw.h"

namespace nacre::kernels {

struct RowDraw {
  TokenDraw draw;
  int row = 0;  // of the logits
};

class TokenDrawer {
 public:
  virtual ~TokenDrawer() = default;

  // ids[i] = the token that draws[i] gives of its row, or kUnsoundDraw
  // (common/token_draw.h).
  // Leaves its errors to Backend::Synchronize. Fatal: a vocab_limit outside
  // [1, cols].   logits [rows, cols], ids [draws.size], both the device's
  virtual void Draw(const float* logits, int cols,
                    absl::Span<const RowDraw> draws, int32_t* ids) = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_TOKEN_DRAWER_H_
