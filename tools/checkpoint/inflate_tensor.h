// One tensor of an inflated checkpoint, written row by row: the input's tensor
// in the top left corner, the rest filled.

#ifndef TOOLS_CHECKPOINT_INFLATE_TENSOR_H_
#define TOOLS_CHECKPOINT_INFLATE_TENSOR_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/dtype.h"
#include "model/checkpoint.h"
#include "model/safetensors_writer.h"

namespace nacre::tools {

// What the elements that the input does not have are made of. Random ones have
// either sign and a magnitude in [1/64, 1/32): exact in every type, and small
// enough that nothing overflows.
enum class Fill { kZero, kOne, kRandom };

struct InflatedTensor {
  model::TensorSpec spec;  // one or two dimensions
  model::Tensor source;  // the same dtype and as many dimensions, none larger;
                         // without bytes: nothing is copied
  Fill fill = Fill::kZero;
};

// Thread-compatible.
class InflatedTensorWriter {
 public:
  // `writer` outlives this object.
  InflatedTensorWriter(model::SafetensorsWriter* writer, uint64_t seed)
      : writer_(writer),
        key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  // The next tensor in the order the writer was told. Errors of the disk.
  absl::Status Write(const InflatedTensor& tensor);

 private:
  // Fills columns [begin, end) of row_, which holds zeros there.
  void FillColumns(const InflatedTensor& tensor, size_t row, size_t begin,
                   size_t end);

  model::SafetensorsWriter* writer_;
  std::array<uint32_t, 2> key_;
  uint32_t tensor_index_ = 0;  // each tensor has random numbers of its own
  std::string row_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CHECKPOINT_INFLATE_TENSOR_H_
