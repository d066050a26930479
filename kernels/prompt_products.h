// Products of rows of prompts by a library that is faster at many rows, within
// a numerics_id of their own. Which rows those are is a function of the request
// (NewPromptSequence of model/language_model.h), never of what shares a step.
// So it stays true that a row has the same bits in every batch:
//
//   * The library only ever multiplies kChunk rows, by one algorithm for each
//     shape of weights. The row of position p is row p % kChunk of them.
//   * The other rows are what they are. A row of a product is a function of its
//     own inputs, of the shape and of where it stands.
//
// As the backend that owns it.

#ifndef KERNELS_PROMPT_PRODUCTS_H_
#define KERNELS_PROMPT_PRODUCTS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/product_ops.h"

namespace nacre::kernels {

// Rows of a step, one after the other, at positions one after the other.
struct PromptRun {
  int first_row = 0;  // of the step
  int position = 0;   // of that row
  int count = 0;

  bool operator==(const PromptRun&) const = default;
};

class PromptProducts {
 public:
  // Rows of a product. Fewer would read weights more often than they multiply
  // them. More would waste more of the last chunk of a prompt.
  static constexpr int kChunk = 256;

  virtual ~PromptProducts() = default;

  // Prepares products with `w`, of the backend, which it then also keeps in the
  // library's layout. The numerics_id of the backend names its algorithm
  // afterwards. INVALID_ARGUMENT for weights that are not bf16,
  // RESOURCE_EXHAUSTED, UNIMPLEMENTED where the library cannot.
  virtual absl::Status Add(PackedMatrix* w) = 0;
  // Bytes of the device that Add takes for weights of that shape.
  virtual int64_t AddedBytes(int rows, int cols) const = 0;

  // Which rows of the step are the library's in products with what was added;
  // in order. Until the next call; empty: none.
  virtual void SetRows(absl::Span<const PromptRun> runs) = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_PROMPT_PRODUCTS_H_
