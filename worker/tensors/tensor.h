// A tensor on its way from the worker that computes it to its readers. It
// may lie in memory of the host or of a device: a transport copies it to where
// it needs it.
//
// Plain values. Of a device only the thread that computes on it may read them.

#ifndef WORKER_TENSORS_TENSOR_H_
#define WORKER_TENSORS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/float_view.h"

namespace nacre::worker {

// Which one it is (TensorChunk of proto/tensors.proto).
struct TensorTag {
  uint64_t channel = 0;  // a session's, never 0
  uint32_t epoch = 0;    // of the session's draft
  int position = 0;      // of the token that was fed in this row
  int layer = 0;         // whose output it is: 0 the last, 1 the one before
  bool after_norm = false;
  // Rows of positions from `position` on (model::TargetRowShape), [rows,
  // row_size]: keys and values, or features, and not hidden states.
  bool is_rows = false;
  bool operator==(const TensorTag&) const = default;
};

struct Tensor {
  TensorTag tag;
  std::vector<int> shape;
  kernels::FloatView values;  // [product of shape]
  // Of the values' memory. Null: the maker of the tensor owns it, and says how
  // long it is valid.
  std::shared_ptr<const void> owner;
  // On the wire: its values are numbers of bf16, or are rounded to them. Only
  // of rows.
  bool in_bf16 = false;

  size_t num_bytes() const { return values.size() * sizeof(float); }
  // Of the values on a stream.
  size_t wire_bytes() const {
    return values.size() * (in_bf16 ? sizeof(uint16_t) : sizeof(float));
  }

  // Makes these its values.
  void Own(std::vector<float> floats);
  // This tensor if it owns memory of the host; else one that owns a copy there.
  Tensor OnHost() const;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_H_
