// A tensor on its way from the worker that computes it to those who read it.
//
// Plain values.

#ifndef WORKER_TENSORS_TENSOR_H_
#define WORKER_TENSORS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nacre::worker {

// Which one it is (TensorChunk of proto/tensors.proto).
struct TensorTag {
  uint64_t channel = 0;  // a session's, never 0
  uint32_t epoch = 0;    // of the session's draft
  int position = 0;      // of the token that was fed in this row
  int layer = 0;         // whose output it is: 0 the last, 1 the one before
  bool after_norm = false;
  bool operator==(const TensorTag&) const = default;
};

struct Tensor {
  TensorTag tag;
  std::vector<int> shape;
  std::vector<float> values;  // [product of shape]

  size_t num_bytes() const { return values.size() * sizeof(float); }
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_H_
