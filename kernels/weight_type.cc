#include "kernels/weight_type.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nacre::kernels {
namespace {

struct NamedWeightType {
  const char* name;
  WeightType type;
};

constexpr NamedWeightType kWeightTypes[] = {
    {kAutoWeights, WeightType::kAuto}, {"bf16", WeightType::kBF16},
    {"bf16a16", WeightType::kBF16A16}, {"f32", WeightType::kF32},
    {"int8", WeightType::kInt8},       {"int4", WeightType::kInt4},
    {"fp8", WeightType::kFp8},
};

}  // namespace

absl::StatusOr<WeightType> ParseWeightType(const std::string& name) {
  for (const NamedWeightType& each : kWeightTypes) {
    if (name == each.name) return each.type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights is \"", name,
                   "\", expected \"auto\", \"bf16\", \"bf16a16\", \"f32\", "
                   "\"int8\", \"int4\" or \"fp8\""));
}

std::string WeightTypeSuffix(WeightType type) {
  if (type == WeightType::kAuto) return "";
  for (const NamedWeightType& each : kWeightTypes) {
    if (type == each.type) return absl::StrCat("-", each.name);
  }
  return "";
}

absl::StatusOr<absl::optional<DType>> ParseKvType(const std::string& name) {
  if (name == kAutoKvType) return absl::optional<DType>();
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "int8") return DType::kInt8;
  return absl::InvalidArgumentError(
      absl::StrCat("kv-type is \"", name,
                   "\", expected \"auto\", \"f32\", \"bf16\" or \"int8\""));
}

const char* KvTypeName(DType type) {
  return type == DType::kInt8 ? "int8" : type == DType::kBF16 ? "bf16" : "f32";
}

DType AutoKvType(const std::string& kind, WeightType weights,
                 bool bf16_checkpoint) {
  return kind == "cuda" && weights != WeightType::kF32 && bf16_checkpoint
             ? DType::kBF16
             : DType::kF32;
}

}  // namespace nacre::kernels
