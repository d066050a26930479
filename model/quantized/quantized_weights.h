// The weights of a published checkpoint that are quantized
// (quantized/quantization.h): which are, and what they stand for. Everything
// about their tensors is checked; every error names the tensor.
//
// Thread-safe: immutable. Of the checkpoint only a reference is kept.

#ifndef MODEL_QUANTIZED_QUANTIZED_WEIGHTS_H_
#define MODEL_QUANTIZED_QUANTIZED_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/dtype.h"
#include "model/checkpoint.h"
#include "model/quantized/dequantize.h"
#include "model/quantized/quantization.h"

namespace nacre::model {

class QuantizedWeights {
 public:
  QuantizedWeights(const Checkpoint& checkpoint,
                   const Quantization& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  // Whether `weight` (its name ends in ".weight") is quantized, rather than
  // floats under its own name. INVALID_ARGUMENT if it is both or says of itself
  // something else than its scales do, NOT_FOUND if it is neither.
  absl::StatusOr<bool> Has(const std::string& weight) const;

  // The type that its values are rounded to: that of its scales. Errors of
  // Read about them.
  absl::StatusOr<kernels::DType> TypeOf(const std::string& weight) const;

  // Of a weight of `rows` whose product has no biases in the config: quantizers
  // have written some nevertheless. INVALID_ARGUMENT unless all are 0.
  absl::Status CheckNoBiases(const std::string& weight, int rows) const;

  // UNIMPLEMENTED if the activation beside `weight` has scales, as AutoAWQ
  // gives the GELU of GPT-NeoX and StarCoder: outputs would be divided by them.
  absl::Status CheckNoActivationScales(absl::string_view weight) const;

  struct Values {
    kernels::DType dtype;
    std::string bytes;         // [rows, cols]
    int64_t stored_bytes = 0;  // of the tensors that they were made of
  };
  // NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED with the tensor that is
  // missing or has another type, shape or content than it must.
  absl::StatusOr<Values> Read(const std::string& weight, int rows,
                              int cols) const;

 private:
  // A tensor of a weight: `name` in place of ".weight".
  absl::StatusOr<RawTensor> Find(const std::string& weight, const char* name,
                                 absl::string_view dtype,
                                 const std::vector<int64_t>& shape) const;
  absl::Status SetCodes(const std::string& weight,
                        QuantizedMatrix* matrix) const;
  absl::Status SetScales(const std::string& weight,
                         QuantizedMatrix* matrix) const;
  absl::Status SetZeros(const std::string& weight,
                        QuantizedMatrix* matrix) const;
  // Which column belongs to which scale, where g_idx says so.
  absl::StatusOr<std::vector<int64_t>> ColumnBlocks(
      const std::string& weight, const QuantizedMatrix& matrix) const;
  absl::Status CheckShape(const std::string& weight,
                          const QuantizedMatrix& matrix) const;

  const char* CodesName() const;
  const char* ScalesName() const;

  const Checkpoint& checkpoint_;
  const Quantization quantization_;
};

}  // namespace nacre::model

#endif  // MODEL_QUANTIZED_QUANTIZED_WEIGHTS_H_
