#include "model/eagle_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "model/draft_files.h"

namespace nacre::model {
namespace {

enum class Need { kNever, kMay, kMust };

// Of what EAGLE-1 is given, before fc: both or neither.
constexpr char kEmbeddingNorm[] = "embedding_layernorm.weight";
constexpr char kHiddenNorm[] = "hidden_states_layernorm.weight";

struct Part {
  const char* name;
  Need of_first;  // EAGLE-1
  Need of_third;  // EAGLE-3
};

constexpr Part kParts[] = {
    {"embed_tokens.weight", Need::kMay, Need::kMay},
    {"fc.weight", Need::kMust, Need::kMust},
    {"fc.bias", Need::kMay, Need::kNever},
    {kEmbeddingNorm, Need::kMay, Need::kNever},
    {kHiddenNorm, Need::kMay, Need::kNever},
    {"input_norm.weight", Need::kNever, Need::kMay},
    {"layer.input_layernorm.weight", Need::kNever, Need::kMust},
    {"layer.hidden_norm.weight", Need::kNever, Need::kMust},
    {"layer.self_attn.q_proj.weight", Need::kMust, Need::kMust},
    {"layer.self_attn.q_proj.bias", Need::kMay, Need::kMay},
    {"layer.self_attn.k_proj.weight", Need::kMust, Need::kMust},
    {"layer.self_attn.k_proj.bias", Need::kMay, Need::kMay},
    {"layer.self_attn.v_proj.weight", Need::kMust, Need::kMust},
    {"layer.self_attn.v_proj.bias", Need::kMay, Need::kMay},
    {"layer.self_attn.o_proj.weight", Need::kMust, Need::kMust},
    {"layer.self_attn.o_proj.bias", Need::kMay, Need::kMay},
    {"layer.post_attention_layernorm.weight", Need::kMust, Need::kMust},
    {"layer.mlp.gate_proj.weight", Need::kMust, Need::kMust},
    {"layer.mlp.up_proj.weight", Need::kMust, Need::kMust},
    {"layer.mlp.down_proj.weight", Need::kMust, Need::kMust},
    {"norm.weight", Need::kNever, Need::kMust},
    {"lm_head.weight", Need::kMay, Need::kMay},
    {"d2t", Need::kNever, Need::kMay},
    {"t2d", Need::kNever, Need::kMay},
};

Need NeedOf(const Part& part, const EagleLayout& layout) {
  return layout.is_third ? part.of_third : part.of_first;
}

const char* KindOf(const EagleLayout& layout) {
  return layout.is_third ? "EAGLE-3" : "EAGLE-1";
}

// Without the prefixes.
std::string PartName(absl::string_view name) {
  absl::ConsumePrefix(&name, "model.");
  for (const char* prefix : {"midlayer.", "layers.0.", "transformer."}) {
    if (absl::ConsumePrefix(&name, prefix)) return absl::StrCat("layer.", name);
  }
  if (absl::ConsumePrefix(&name, "fusion_fc.")) {
    return absl::StrCat("fc.", name);
  }
  return std::string(name);
}

// Of "fc_norm.K.weight" K; else -1.
int FcNorm(absl::string_view part) {
  int index = 0;
  if (!absl::ConsumePrefix(&part, "fc_norm.") ||
      !absl::ConsumeSuffix(&part, ".weight") ||
      !absl::SimpleAtoi(part, &index) || index < 0 ||
      index >= EagleLayout::kMaxTaps || absl::StrCat(index) != part) {
    return -1;
  }
  return index;
}

absl::Status CheckKnown(const EagleLayout& layout, const std::string& part,
                        const std::string& name) {
  if (layout.is_third && FcNorm(part) >= 0) return absl::OkStatus();
  for (const Part& known : kParts) {
    if (part != known.name) continue;
    if (NeedOf(known, layout) != Need::kNever) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", ShownTensorName(name), " is none of an ",
                   KindOf(layout), " draft of one Llama layer"));
}

absl::Status CheckComplete(const EagleLayout& layout) {
  for (const Part& part : kParts) {
    if (NeedOf(part, layout) != Need::kMust || layout.Has(part.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", part.name, " of an ", KindOf(layout), " draft is missing"));
  }
  for (const auto& [norm, other] : {std::pair(kEmbeddingNorm, kHiddenNorm),
                                    std::pair(kHiddenNorm, kEmbeddingNorm)}) {
    if (!layout.Has(norm) || layout.Has(other)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", other, " is missing, but ", norm, " is there"));
  }
  for (int i = 0; i < layout.num_fc_norms; ++i) {
    const std::string part = absl::StrCat("fc_norm.", i, ".weight");
    if (layout.Has(part)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", part, " is missing, but there are others"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EagleLayout> FindEagleLayout(
    absl::Span<const std::string> names) {
  EagleLayout layout;
  for (const std::string& name : names) {
    // Frequencies that the config says, too.
    if (absl::EndsWith(name, "self_attn.rotary_emb.inv_freq")) continue;
    const std::string part = PartName(name);
    const auto [it, is_new] = layout.names.emplace(part, name);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", ShownTensorName(name), " is there as ",
                       ShownTensorName(it->second), ", too"));
    }
    layout.num_fc_norms += FcNorm(part) >= 0 ? 1 : 0;
  }
  layout.is_third = layout.Has("layer.hidden_norm.weight");
  for (const auto& [part, name] : layout.names) {
    NACRE_RETURN_IF_ERROR(CheckKnown(layout, part, name));
  }
  NACRE_RETURN_IF_ERROR(CheckComplete(layout));
  return layout;
}

}  // namespace nacre::model
