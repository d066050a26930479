#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config_fields.h"
#include "model/families.h"

namespace nacre::model {
namespace {

constexpr double kMaxRopeNumber = 1e12;

using Type = RopeScaling::Type;

// "type" is its old name.
const char* TypeField(const Json& rope) {
  return rope.contains("rope_type") ? "rope_type" : "type";
}

absl::StatusOr<Type> ReadRopeType(const Json& rope) {
  struct Named {
    const char* name;
    Type type;
  };
  // Within max_position_embeddings "dynamic" changes nothing, and no sequence
  // is longer.
  constexpr Named kTypes[] = {
      {"default", Type::kDefault}, {"dynamic", Type::kDefault},
      {"linear", Type::kLinear},   {"llama3", Type::kLlama3},
      {"yarn", Type::kYarn},       {"longrope", Type::kLongRope},
      {"su", Type::kLongRope},
  };
  // A null counts: Hugging Face fails at it.
  const char* field = TypeField(rope);
  if (!rope.contains(field)) return Type::kDefault;
  for (const Named& named : kTypes) {
    if (rope[field] == named.name) return named.type;
  }
  return absl::UnimplementedError(absl::StrCat(
      "rope type ", ShownJson(rope[field]),
      " is not supported; supported: \"default\", \"linear\", \"dynamic\", "
      "\"llama3\", \"yarn\", \"longrope\""));
}

absl::Status ReadFactor(const Json& rope, RopeScaling* scaling) {
  if (IsAbsent(rope, "factor")) {
    return absl::InvalidArgumentError("rope scaling has no factor");
  }
  NACRE_ASSIGN_OR_RETURN(scaling->factor,
                         PositiveOr(rope, "factor", 1.0, kMaxRopeNumber));
  return absl::OkStatus();
}

// What holds original_max_position_embeddings: config.json itself, if it does.
const Json& HolderOfOriginal(const Json& json, const Json& rope) {
  return IsAbsent(json, "original_max_position_embeddings") ? rope : json;
}

absl::Status ReadLlama3(const Json& json, const Json& rope,
                        RopeScaling* scaling) {
  NACRE_RETURN_IF_ERROR(ReadFactor(rope, scaling));
  NACRE_ASSIGN_OR_RETURN(
      scaling->low_freq_factor,
      PositiveOr(rope, "low_freq_factor", 1.0, kMaxRopeNumber));
  NACRE_ASSIGN_OR_RETURN(
      scaling->high_freq_factor,
      PositiveOr(rope, "high_freq_factor", 4.0, kMaxRopeNumber));
  if (!(scaling->high_freq_factor > scaling->low_freq_factor)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "high_freq_factor ", scaling->high_freq_factor,
        " must be greater than low_freq_factor ", scaling->low_freq_factor));
  }
  NACRE_ASSIGN_OR_RETURN(
      scaling->original_max_position_embeddings,
      RequiredInt(HolderOfOriginal(json, rope),
                  "original_max_position_embeddings", kMaxContext));
  return absl::OkStatus();
}

// What attention is sharpened by for a context so many times as long.
double YarnMagnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

// 0 is not given, as in Hugging Face.
bool IsGiven(const Json& rope, const char* field) {
  return !IsAbsent(rope, field) && rope[field] != 0;
}

absl::StatusOr<double> TurnsOr(const Json& rope, const char* field,
                               double fallback) {
  if (!IsGiven(rope, field)) return fallback;
  return PositiveOr(rope, field, fallback, kMaxRopeNumber);
}

absl::Status ReadYarn(const Json& json, const Json& rope,
                      const ModelConfig& config, RopeScaling* scaling) {
  NACRE_RETURN_IF_ERROR(ReadFactor(rope, scaling));
  NACRE_ASSIGN_OR_RETURN(
      scaling->original_max_position_embeddings,
      IntOr(HolderOfOriginal(json, rope), "original_max_position_embeddings",
            config.max_position_embeddings, 1, kMaxContext));
  NACRE_ASSIGN_OR_RETURN(scaling->beta_fast, TurnsOr(rope, "beta_fast", 32.0));
  NACRE_ASSIGN_OR_RETURN(scaling->beta_slow, TurnsOr(rope, "beta_slow", 1.0));
  NACRE_ASSIGN_OR_RETURN(scaling->truncate, BoolOr(rope, "truncate", true));
  if (!(config.rope.theta > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope_theta is ", config.rope.theta,
                     ", expected more than 1 for rope type \"yarn\""));
  }
  double magnitude = YarnMagnitude(scaling->factor, 1.0);
  if (IsGiven(rope, "mscale") && IsGiven(rope, "mscale_all_dim")) {
    NACRE_ASSIGN_OR_RETURN(const double scale,
                           PositiveOr(rope, "mscale", 1.0, kMaxRopeNumber));
    NACRE_ASSIGN_OR_RETURN(const double all, PositiveOr(rope, "mscale_all_dim",
                                                        1.0, kMaxRopeNumber));
    magnitude = YarnMagnitude(scaling->factor, scale) /
                YarnMagnitude(scaling->factor, all);
  }
  NACRE_ASSIGN_OR_RETURN(
      scaling->magnitude,
      PositiveOr(rope, "attention_factor", magnitude, kMaxRopeNumber));
  return absl::OkStatus();
}

absl::Status ReadPairFactors(const Json& rope, const char* field, int pairs,
                             std::vector<double>* factors) {
  const bool is_list = !IsAbsent(rope, field) && rope[field].is_array() &&
                       rope[field].size() == static_cast<size_t>(pairs);
  for (int j = 0; is_list && j < pairs; ++j) {
    const Json& value = rope[field][static_cast<size_t>(j)];
    if (!value.is_number() || !(value.get<double>() > 0) ||
        !(value.get<double>() <= kMaxRopeNumber)) {
      break;
    }
    factors->push_back(value.get<double>());
  }
  if (factors->size() == static_cast<size_t>(pairs)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", IsAbsent(rope, field) ? "missing" : ShownJson(rope[field]),
      ", expected a list of ", pairs, " numbers > 0, one for each pair"));
}

// Which of the two lists: Hugging Face takes the long one once a sequence
// passes the original context. Here no row may depend on what comes after it,
// so the model's context decides.
absl::Status ReadLongRope(const Json& json, const Json& rope,
                          const ModelConfig& config, RopeScaling* scaling) {
  NACRE_ASSIGN_OR_RETURN(
      const int original,
      RequiredInt(HolderOfOriginal(json, rope),
                  "original_max_position_embeddings", kMaxContext));
  if (original < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("original_max_position_embeddings is ", original,
                     ", expected 2 or more"));
  }
  scaling->original_max_position_embeddings = original;
  const bool is_long = config.max_position_embeddings > original;
  std::vector<double> factors[2];
  const int pairs = config.rotary_pairs();
  NACRE_RETURN_IF_ERROR(
      ReadPairFactors(rope, "short_factor", pairs, &factors[0]));
  NACRE_RETURN_IF_ERROR(
      ReadPairFactors(rope, "long_factor", pairs, &factors[1]));
  scaling->pair_factors = factors[is_long ? 1 : 0];
  const double ratio = 1.0 * config.max_position_embeddings / original;
  NACRE_ASSIGN_OR_RETURN(const double factor,
                         PositiveOr(rope, "factor", ratio, kMaxRopeNumber));
  // Hugging Face's versions differ in which of the two they take.
  if (!IsAbsent(json, "original_max_position_embeddings") && factor != ratio) {
    return absl::InvalidArgumentError(absl::StrCat(
        "factor ", factor, " of longrope is not max_position_embeddings ",
        config.max_position_embeddings, " / original_max_position_embeddings ",
        original));
  }
  const double magnitude =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  NACRE_ASSIGN_OR_RETURN(
      scaling->magnitude,
      PositiveOr(rope, "attention_factor", magnitude, kMaxRopeNumber));
  return absl::OkStatus();
}

bool MayBePartial(const ModelConfig& config) {
  return FindFamily(config.architecture)->rope.may_be_partial;
}

absl::Status ReadPartial(const Json& from, const char* field,
                         ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(const double share,
                         PositiveOr(from, field, config->rope.share, 1.0));
  config->rope.share = share;
  if (config->rotary_size() >= 1 || !MayBePartial(*config)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " ", share, " of head_dim ", config->head_dim,
                   " makes no dimension turn, expected 1 or more"));
}

// In families whose heads turn whole, as Hugging Face does: the type "default"
// ignores the share, and under any other a head that does not turn whole fails.
absl::Status SettleShare(const Json& rope, ModelConfig* config) {
  if (MayBePartial(*config)) return absl::OkStatus();
  const char* const field = TypeField(rope);
  if (!rope.contains(field) || rope[field] == "default") {
    config->rope.share = 1;
    return absl::OkStatus();
  }
  if (2 * config->rotary_pairs() == config->head_dim) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "partial_rotary_factor ", config->rope.share, " with rope type ",
      ShownJson(rope[field]), " is not supported for ", config->architecture,
      ", whose heads turn whole"));
}

// Hugging Face's ramp has an element for each whole pair.
absl::Status CheckWholePairs(const ModelConfig& config) {
  if (config.rotary_size() % 2 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rope type \"yarn\" turns ", config.rotary_size(),
                   " dimensions of each head, expected an even number"));
}

// `rope` is the object of either name; `json` holds it.
absl::Status ReadScaling(const Json& json, const Json& rope,
                         ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(
      config->rope.theta,
      PositiveOr(rope, "rope_theta", config->rope.theta, kMaxRopeNumber));
  NACRE_RETURN_IF_ERROR(ReadPartial(rope, "partial_rotary_factor", config));
  RopeScaling& scaling = config->rope.scaling;
  NACRE_ASSIGN_OR_RETURN(scaling.type, ReadRopeType(rope));
  NACRE_RETURN_IF_ERROR(SettleShare(rope, config));
  // The first configs of Phi-3 called longrope so.
  if (config->architecture == "Phi3ForCausalLM" &&
      scaling.type == Type::kYarn) {
    scaling.type = Type::kLongRope;
  }
  switch (scaling.type) {
    case Type::kDefault:
      return absl::OkStatus();
    case Type::kLinear:
      return ReadFactor(rope, &scaling);
    case Type::kLlama3:
      return ReadLlama3(json, rope, &scaling);
    case Type::kYarn:
      NACRE_RETURN_IF_ERROR(CheckWholePairs(*config));
      return ReadYarn(json, rope, *config, &scaling);
    case Type::kLongRope:
      return ReadLongRope(json, rope, *config, &scaling);
  }
  return absl::OkStatus();
}

absl::Status CheckObject(const char* field, const Json& value) {
  if (value.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", ShownJson(value), ", expected an object or null"));
}

// Of layers with a window.
absl::Status ReadLocal(const Json& rope, ModelConfig* config) {
  NACRE_RETURN_IF_ERROR(CheckObject("sliding_attention", rope));
  NACRE_ASSIGN_OR_RETURN(
      config->windows.rope_theta,
      PositiveOr(rope, "rope_theta", config->windows.rope_theta,
                 kMaxRopeNumber));
  NACRE_ASSIGN_OR_RETURN(const Type type, ReadRopeType(rope));
  if (type == Type::kDefault) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("rope type ", ShownJson(rope[TypeField(rope)]),
                   " of sliding_attention is not supported; supported: "
                   "\"default\""));
}

// By the layers' type, as transformers 5 writes it. Only Gemma 3 lets the types
// differ; layers of other families all turn alike.
absl::Status ReadByType(const Json& json, const char* field,
                        ModelConfig* config) {
  const Json& rope = json[field];
  const bool may_differ = config->windows.rope_theta > 0;
  if (!IsAbsent(rope, "full_attention")) {
    NACRE_RETURN_IF_ERROR(
        CheckObject("full_attention", rope["full_attention"]));
    NACRE_RETURN_IF_ERROR(ReadScaling(json, rope["full_attention"], config));
  } else if (!may_differ) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has no full_attention"));
  } else {
    NACRE_RETURN_IF_ERROR(ReadScaling(json, Json::object(), config));
  }
  if (IsAbsent(rope, "sliding_attention")) return absl::OkStatus();
  if (may_differ) return ReadLocal(rope["sliding_attention"], config);
  if (rope["sliding_attention"] == rope["full_attention"]) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(field,
                   " whose full_attention and sliding_attention differ is not "
                   "supported for ",
                   config->architecture));
}

absl::Status ReadRopeObject(const Json& json, const char* field,
                            ModelConfig* config) {
  const Json& rope = json[field];
  NACRE_RETURN_IF_ERROR(CheckObject(field, rope));
  if (rope.contains("full_attention") || rope.contains("sliding_attention")) {
    return ReadByType(json, field, config);
  }
  return ReadScaling(json, rope, config);
}

// Of all layers alike: Gemma 3's config has the context that it is for.
absl::Status StretchContext(const Json& json, ModelConfig* config) {
  constexpr char kOwnField[] = "nacre_context_length";
  int& context = config->max_position_embeddings;
  if (!IsAbsent(json, kOwnField)) {
    NACRE_ASSIGN_OR_RETURN(context, RequiredInt(json, kOwnField, kMaxContext));
    return absl::OkStatus();
  }
  const RopeScaling& scaling = config->rope.scaling;
  double stretched = context;
  if (scaling.type == Type::kLinear && config->windows.rope_theta == 0) {
    stretched = context * scaling.factor;
  } else if (scaling.type == Type::kYarn) {
    stretched = std::max(
        stretched, scaling.original_max_position_embeddings * scaling.factor);
  }
  if (!(stretched >= 1 && stretched <= kMaxContext)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "factor ", scaling.factor, " of rope scaling makes a ", "context of ",
        stretched, " positions, expected 1 to ", kMaxContext));
  }
  context = static_cast<int>(stretched);
  return absl::OkStatus();
}

absl::Status ReadRopeFields(const Family& family, const Json& json,
                            ModelConfig* config) {
  config->windows.rope_theta = family.rope.local_theta;
  config->rope.share = family.rope.share;
  NACRE_ASSIGN_OR_RETURN(config->rope.theta,
                         PositiveOr(json, family.fields.rope_theta,
                                    family.rope.theta, kMaxRopeNumber));
  NACRE_RETURN_IF_ERROR(ReadPartial(json, family.fields.rotary_share, config));
  if (config->windows.rope_theta > 0) {
    NACRE_ASSIGN_OR_RETURN(
        config->windows.rope_theta,
        PositiveOr(json, "rope_local_base_freq", config->windows.rope_theta,
                   kMaxRopeNumber));
  }
  const bool has_old = !IsAbsent(json, "rope_scaling");
  const bool has_new = !IsAbsent(json, "rope_parameters");
  if (has_old && has_new && json["rope_scaling"] != json["rope_parameters"]) {
    return absl::InvalidArgumentError(
        "rope_scaling and rope_parameters differ, expected one of them");
  }
  if (has_old) return ReadRopeObject(json, "rope_scaling", config);
  if (has_new) return ReadRopeObject(json, "rope_parameters", config);
  return ReadScaling(json, Json::object(), config);
}

}  // namespace

absl::Status ParseRope(const Family& family, const Json& json,
                       ModelConfig* config) {
  if (config->embedding.has_positions) {
    config->rope.share = 0;
    return absl::OkStatus();
  }
  NACRE_RETURN_IF_ERROR(ReadRopeFields(family, json, config));
  return StretchContext(json, config);
}

}  // namespace nacre::model
