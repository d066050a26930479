#include "model/config_cross.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config_fields.h"

namespace nacre::model {
namespace {

constexpr char kHeads[] = "large_num_attention_heads";
constexpr char kKvHeads[] = "large_num_key_value_heads";
constexpr char kHeadSize[] = "large_head_dim";
constexpr char kHiddenSize[] = "large_hidden_size";
// As of the config of a model.
constexpr int kMaxLargeHeads = 4096;
constexpr int kMaxLargeHeadDim = 512;
constexpr int kMaxLargeHidden = kMaxLargeHeads * kMaxLargeHeadDim;
constexpr int kDefaultBlockSize = 5;  // as published
constexpr double kCrossRopeTheta = 10000;

}  // namespace

bool HasCross(const Json& json) {
  for (const char* field : {kHeads, kKvHeads, kHeadSize, kHiddenSize}) {
    if (!IsAbsent(json, field)) return true;
  }
  const Json* const architectures = FindField(json, "architectures");
  return architectures != nullptr &&
         *architectures == Json::array({"smallLlamaForCausalLM"});
}

bool IsCrossTensor(const std::string& name) {
  return absl::StrContains(name, ".cross_attn.");
}

absl::StatusOr<CrossOptions> ParseCross(const Json& json) {
  NACRE_ASSIGN_OR_RETURN(const bool is_remapped,
                         BoolOr(json, "use_remap", false));
  if (is_remapped) {
    return absl::UnimplementedError(
        "use_remap true is not supported; supported: false");
  }
  CrossOptions cross;
  NACRE_ASSIGN_OR_RETURN(cross.num_heads,
                         RequiredInt(json, kHeads, kMaxLargeHeads));
  NACRE_ASSIGN_OR_RETURN(
      cross.num_key_value_heads,
      IntOr(json, kKvHeads, cross.num_heads, 1, kMaxLargeHeads));
  if (cross.num_heads % cross.num_key_value_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKvHeads, " is ", cross.num_key_value_heads,
                     ", no divisor of ", kHeads, ", ", cross.num_heads));
  }
  if (IsAbsent(json, kHeadSize)) {
    NACRE_ASSIGN_OR_RETURN(const int hidden,
                           RequiredInt(json, kHiddenSize, kMaxLargeHidden));
    cross.head_dim = hidden / cross.num_heads;
    if (hidden % cross.num_heads != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(kHiddenSize, " is ", hidden, ", no multiple of ", kHeads,
                       ", ", cross.num_heads));
    }
  } else {
    NACRE_ASSIGN_OR_RETURN(cross.head_dim,
                           RequiredInt(json, kHeadSize, kMaxLargeHeadDim));
  }
  if (cross.head_dim < 2 || cross.head_dim > kMaxLargeHeadDim ||
      cross.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kHeadSize, " is ", cross.head_dim,
                     ", not even or outside 2 to ", kMaxLargeHeadDim));
  }
  NACRE_ASSIGN_OR_RETURN(
      cross.max_depth,
      IntOr(json, "block_size", kDefaultBlockSize, 1, kMaxCrossDepth));
  return cross;
}

ModelConfig CrossHeads(const CrossOptions& cross) {
  ModelConfig heads;
  heads.rope.theta = kCrossRopeTheta;
  heads.num_attention_heads = cross.num_heads;
  heads.num_key_value_heads = cross.num_key_value_heads;
  heads.head_dim = cross.head_dim;
  return heads;
}

}  // namespace nacre::model
