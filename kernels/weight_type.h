// The types that a backend keeps weights, keys and values in: names, and the
// one sentence that lists them for users.
//
// Values and pure functions.

#ifndef KERNELS_WEIGHT_TYPE_H_
#define KERNELS_WEIGHT_TYPE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"

namespace nacre::kernels {

// BackendOptions::weights.
enum class WeightType {
  // bf16 and f32 as they are, f16 as f32: exact. On some CPUs the "auto" of
  // users is kBF16A16 (model/model_backend.h).
  kAuto,
  kBF16,  // everything rounded to bf16
  // Likewise, and so are the inputs of products, as on GPUs. The sums stay
  // float32.
  kBF16A16,
  kF32,   // everything widened to f32: exact
  kInt8,  // quantized (kernels/quantization.h)
  kInt4,  // likewise
  kFp8,   // quantized (kernels/cuda/gemm_layout.h): cuda only
};

// The help of every --weights and --kv-type.
inline constexpr char kWeightTypesHelp[] =
    "type that weights are kept in: auto, f32, bf16, bf16a16 (the inputs of "
    "products, too), int8, int4 or fp8 (auto: as in the checkpoint, and where "
    "its matrices are bf16 and the CPU multiplies pairs of them bf16a16; all "
    "but f32 may change outputs; fp8 on cuda only)";
inline constexpr char kKvTypesHelp[] =
    "type that keys and values are kept in: auto, f32, bf16 or int8 (bf16 "
    "halves the KV cache, int8 halves it again; both change outputs; int8 not "
    "on cuda; auto: bf16 on cuda where the checkpoint's matrices are bf16 and "
    "--weights is not f32, else f32)";
inline constexpr char kAutoWeights[] = "auto";
inline constexpr char kAutoKvType[] = "auto";

// INVALID_ARGUMENT names `name` and the types that there are.
absl::StatusOr<WeightType> ParseWeightType(const std::string& name);

// What a numerics id says of the weight type: "-" and its name; nothing of
// kAuto.
std::string WeightTypeSuffix(WeightType type);

// BackendOptions::kv_type; nothing of "auto". INVALID_ARGUMENT names `name` and
// the types that there are.
absl::StatusOr<absl::optional<DType>> ParseKvType(const std::string& name);

// "f32", "bf16" or "int8".
const char* KvTypeName(DType type);

// What "auto" is. `bf16_checkpoint` is that of BackendOptions.
DType AutoKvType(const std::string& kind, WeightType weights,
                 bool bf16_checkpoint);

}  // namespace nacre::kernels

#endif  // KERNELS_WEIGHT_TYPE_H_
