// What the host tells a step before it begins (Backend::SendInputs), so that a
// device takes it in one copy.
//
// Values. What they point to stays as it is until the step has been queued.

#ifndef KERNELS_STEP_INPUTS_H_
#define KERNELS_STEP_INPUTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/kv_layer.h"
#include "kernels/token_drawer.h"

namespace nacre::kernels {

struct StepInputs {
  // Of the caller's own: angles, and what else its ops read.
  absl::Span<const float> values;
  // What the ops will be given in turn. One that is given something else sends
  // that by itself.
  absl::Span<const int32_t> token_ids;    // one a row; empty: of EmbedDrawn
  absl::Span<const RowContext> contexts;  // one a row, at least one
  absl::Span<const RowDraw> draws;        // at most one a row
  int num_heads = 0;                      // of attention
  const KvLayer* layer = nullptr;         // any, of the shape of all
};

}  // namespace nacre::kernels

#endif  // KERNELS_STEP_INPUTS_H_
