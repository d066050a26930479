#include "tools/generate/request_flags.h"

#include <utf8proc.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "proto/names.h"
#include "speculation/tree_spec.h"

namespace nacre::tools {

void RequestFlags::Register(FlagSet* flags) {
  flags->Add("window", "N", &window,
             "draft tokens of a round; async: at most that many "
             "(default: chosen from measurements)");
  flags->Add("policy", "P", &policy, "draft-length policy");
  flags->Add("verification", "exact|ratio", &verification,
             "exact: the tokens of plain decoding; ratio: their distribution");
  flags->Add("tree", "SHAPE", &tree,
             "of what is drafted: chain, best, cape, "
             "eagle2:k=K,depth=D,total=N or static:FILE "
             "(default: best where it may be)");
  flags->AddSwitch("suffixes", &suffixes,
                   "async: whether the target drafts by itself, from what it "
                   "has seen and from its Medusa heads, its EAGLE or its GliDe "
                   "draft");
  flags->Add("max-tokens", "N", &max_tokens, "most tokens to generate");
  flags->Add("temperature", "T", &temperature, "0 is greedy (default 0)");
  flags->Add("top-k", "K", &top_k, "sample from the K likeliest; 0 is off");
  flags->Add("top-p", "P", &top_p, "sample from the likeliest of sum P");
  flags->Add("min-p", "P", &min_p,
             "sample from those with at least P times the likeliest's");
  flags->Add("repetition-penalty", "R", &repetition_penalty,
             "> 1 makes tokens already seen less likely");
  flags->Add("frequency-penalty", "F", &frequency_penalty,
             "per occurrence among the generated tokens");
  flags->Add("presence-penalty", "F", &presence_penalty,
             "for each token already generated");
  flags->Add("seed", "S", &seed, "of the sampling noise");
  flags->AddRepeated("stop", "TEXT", &stop,
                     "end before this text; may be given several times");
  flags->AddRepeated("stop-token-id", "ID", &stop_token_ids,
                     "end with this token; may be given several times");
  flags->Add("min-tokens", "N", &min_tokens, "do not end before so many");
  flags->AddRepeated("logit-bias", "ID:B", &logit_bias,
                     "add B, from -100 to 100, to a token's logit; may be "
                     "given several times");
  flags->Add("ignore-eos", "", &ignore_eos,
             "go on after the end-of-sequence token");
  flags->Add("numerics-id", "ID", &numerics_id,
             "only on targets that compute so; with --seed the same tokens "
             "again");
  flags->Add("timeout", "SECONDS", &timeout_s, "deadline of a call");
}

absl::Status CheckUtf8(absl::string_view name, absl::string_view text) {
  return CheckUtf8Of(absl::StrCat("flag --", name), text);
}

absl::Status CheckUtf8Of(absl::string_view what, absl::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, left, &code_point);
    if (length < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": byte ", text.size() - left, " is not UTF-8"));
    }
    bytes += length;
    left -= length;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTree(const std::string& tree) {
  constexpr absl::string_view kPrefix = "static:";
  if (!absl::StartsWith(tree, kPrefix)) return tree;
  const std::string path = tree.substr(kPrefix.size());
  absl::StatusOr<std::string> text = ReadFile(path, speculation::kMaxShapeText);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("flag --tree: ", text.status().message()));
  }
  NACRE_ASSIGN_OR_RETURN(
      const speculation::TreeSpec spec,
      speculation::ParseTreeSpec(absl::StrCat(kPrefix, *text)));
  return TreeSpecName(spec);
}

absl::Status RequestFlags::Fill(v1::GenerateRequest* request) const {
  if (!(timeout_s > 0.0) || !std::isfinite(timeout_s)) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --timeout: ", timeout_s, " is not > 0"));
  }
  NACRE_RETURN_IF_ERROR(CheckUtf8("numerics-id", numerics_id));
  request->set_numerics_id(numerics_id);
  v1::SpeculationOptions* speculation = request->mutable_speculation();
  if (window.has_value()) speculation->set_window(*window);
  speculation->set_policy(policy);
  NACRE_RETURN_IF_ERROR(CheckUtf8("tree", tree));
  NACRE_ASSIGN_OR_RETURN(*speculation->mutable_tree(), ReadTree(tree));
  NACRE_ASSIGN_OR_RETURN(const v1::Verification parsed,
                         ParseVerification(verification));
  speculation->set_verification(parsed);
  if (!suffixes) speculation->set_suffixes(false);

  v1::SamplingParams* sampling = request->mutable_sampling();
  if (temperature.has_value()) sampling->set_temperature(*temperature);
  if (top_k.has_value()) sampling->set_top_k(*top_k);
  if (top_p.has_value()) sampling->set_top_p(*top_p);
  if (min_p.has_value()) sampling->set_min_p(*min_p);
  if (repetition_penalty.has_value()) {
    sampling->set_repetition_penalty(*repetition_penalty);
  }
  if (frequency_penalty.has_value()) {
    sampling->set_frequency_penalty(*frequency_penalty);
  }
  if (presence_penalty.has_value()) {
    sampling->set_presence_penalty(*presence_penalty);
  }
  if (seed.has_value()) sampling->set_seed(*seed);

  v1::StopParams* stop_params = request->mutable_stop();
  if (max_tokens.has_value()) stop_params->set_max_tokens(*max_tokens);
  for (const std::string& text : stop) {
    NACRE_RETURN_IF_ERROR(CheckUtf8("stop", text));
    stop_params->add_stop(text);
  }
  stop_params->set_ignore_eos(ignore_eos);
  if (min_tokens.has_value()) stop_params->set_min_tokens(*min_tokens);
  for (const std::string& text : stop_token_ids) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(text, &id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "flag --stop-token-id: \"", text, "\" is not a token id"));
    }
    stop_params->add_stop_token_ids(id);
  }
  for (const std::string& text : logit_bias) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(text, absl::MaxSplits(':', 1));
    uint32_t id = 0;
    float bias = 0.0f;
    if (!absl::SimpleAtoi(parts.first, &id) ||
        !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "flag --logit-bias: \"", text, "\" is not ID:BIAS, as in 42:-1.5"));
    }
    (*sampling->mutable_logit_bias())[id] = bias;
  }
  return absl::OkStatus();
}

}  // namespace nacre::tools
