#include "tools/calibrate/calibration_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "speculation/pipeline.h"

namespace nacre::tools {
namespace {

using speculation::PolicyKind;

constexpr char kDiscoThresholds[] = "0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9";
// SVIP's authors chose among 0.2 to 0.5.
constexpr char kSvipThresholds[] = "0.1,0.2,0.3,0.4,0.5,0.6";
// Of rejection, which the training weighs: what its head says is high.
constexpr char kSpecDecThresholds[] = "0.3,0.5,0.7,0.8,0.9,0.95,0.99";
// How far its network is trusted over the share of tokens validated.
constexpr char kCaliTsSigmas[] = "0.05,0.1,0.2,0.4";
constexpr int kMaxWidth = 4096;
// A head has many weights for the tokens that there are: faster, it knows them
// by heart after one epoch.
constexpr double kHeadLearningRate = 1e-4;

const char* DefaultThresholds(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kSvip:
      return kSvipThresholds;
    case PolicyKind::kDisco:
      return kDiscoThresholds;
    case PolicyKind::kCaliTs:
      return kCaliTsSigmas;
    default:
      return kSpecDecThresholds;
  }
}

absl::StatusOr<PolicyKind> ParseKind(const std::string& name) {
  if (name.empty()) {
    return absl::InvalidArgumentError("flag --policy is needed");
  }
  for (const speculation::PolicyInfo& info : speculation::AllPolicies()) {
    if (name != info.name) continue;
    switch (info.kind) {
      case PolicyKind::kDisco:
      case PolicyKind::kSvip:
      case PolicyKind::kOptimalStatic:
      case PolicyKind::kSpecDecPlusPlus:
      case PolicyKind::kCaliTs:
        return info.kind;
      default:
        break;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("flag --policy: \"", name,
                   "\" has nothing to calibrate; there are: disco svip "
                   "specdec++ cali-ts optimal-static"));
}

// "0.2,0.4": values that the policy takes, each once.
absl::StatusOr<std::vector<double>> ParseThresholds(PolicyKind kind,
                                                    const std::string& text) {
  std::vector<double> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double value = 0.0;
    if (!absl::SimpleAtod(part, &value) || !std::isfinite(value) ||
        std::find(values.begin(), values.end(), value) != values.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --thresholds: \"", part, "\" in \"", text,
                       "\" is no number, or there twice"));
    }
    const absl::Status status =
        speculation::ParsePolicySpec(PolicyText(kind, value, 1)).status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --thresholds: ", status.message()));
    }
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<int>> ParseCaps(const std::string& text) {
  std::vector<int> caps;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int cap = 0;
    if (!absl::SimpleAtoi(part, &cap) || cap < 1 ||
        cap > speculation::kMaxWindow ||
        std::find(caps.begin(), caps.end(), cap) != caps.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --caps: \"", part, "\" in \"", text,
                       "\" is no whole number in 1..", speculation::kMaxWindow,
                       ", or there twice"));
    }
    caps.push_back(cap);
  }
  return caps;
}

absl::Status CheckRange(const char* flag, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("flag --", flag, ": ", value, " is not in 1..", max));
}

absl::Status CheckNumbers(const CalibrationFlags& flags) {
  constexpr int kMany = 1'000'000;
  NACRE_RETURN_IF_ERROR(
      CheckRange("window", flags.window, speculation::kMaxWindow));
  NACRE_RETURN_IF_ERROR(CheckRange("limit", flags.limit.value_or(1), kMany));
  NACRE_RETURN_IF_ERROR(CheckRange("max-tokens", flags.max_tokens, kMany));
  NACRE_RETURN_IF_ERROR(CheckRange("tune-prompts", flags.tune_prompts, kMany));
  NACRE_RETURN_IF_ERROR(CheckRange("repeat", flags.repeat, kMany));
  NACRE_RETURN_IF_ERROR(CheckRange("width", flags.training.width, kMaxWidth));
  NACRE_RETURN_IF_ERROR(CheckRange("epochs", flags.training.max_epochs, kMany));
  if (!(flags.temperature >= 0.0f && std::isfinite(flags.temperature))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --temperature: ", flags.temperature, " is not 0 or more"));
  }
  if (!(flags.learning_rate >= 0.0 && flags.learning_rate <= 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --learning-rate: ", flags.learning_rate, " is not in [0, 1]"));
  }
  if (!(flags.timeout_s > 0.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --timeout: ", flags.timeout_s, " is not > 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckCluster(const Cluster::Options& cluster) {
  NACRE_RETURN_IF_ERROR(cluster.Validate());
  if (cluster.drafts != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --drafts: ", cluster.drafts,
                     "; calibration records with exactly 1"));
  }
  if (!cluster.workers.policies.files.empty()) {
    return absl::InvalidArgumentError(
        "flag --policy-file: calibrate makes the file");
  }
  return absl::OkStatus();
}

std::vector<int> First(std::vector<int> indices, int count) {
  if (static_cast<int>(indices.size()) > count) {
    indices.resize(static_cast<size_t>(count));
  }
  return indices;
}

}  // namespace

void CalibrationFlags::Register(FlagSet* flags) {
  flags->Add("policy", "P", &policy,
             "disco, svip, specdec++, cali-ts or optimal-static");
  flags->Add("prompts", "FILE", &prompts,
             "one JSON object a line: prompt, perhaps id and max_tokens");
  flags->Add("out", "DIR", &out, "folder to write, for --policy-file P=DIR");
  flags->Add("limit", "N", &limit, "use only the first N prompts");
  flags->Add("max-tokens", "N", &max_tokens,
             "longest answer where the prompt does not say");
  flags->Add("temperature", "T", &temperature, "of all requests");
  flags->Add("seed", "S", &seed,
             "of the requests, the split of the prompts and the training");
  flags->Add("window", "N", &window,
             "longest chunk while features are recorded (disco, specdec++, "
             "cali-ts)");
  flags->Add("width", "W", &training.width, "hidden units (disco)");
  flags->Add("epochs", "N", &training.max_epochs,
             "longest training (disco, specdec++, cali-ts); it ends before "
             "where the loss on other prompts has stopped falling");
  flags->Add("learning-rate", "R", &learning_rate,
             "of the training; 0: 0.001 for disco, 0.0001 for the others");
  flags->Add("thresholds", "LIST", &thresholds,
             "values to measure of the threshold, of svip's h or of cali-ts' "
             "sigma-model (default: 0.2 to 0.9 for disco, 0.3 to 0.99 for "
             "specdec++, 0.1 to 0.6 for svip, 0.05 to 0.4 for cali-ts)");
  flags->Add("caps", "LIST", &caps, "values to measure of their max");
  flags->Add("tune-prompts", "N", &tune_prompts,
             "most prompts that each candidate is measured on");
  flags->Add("repeat", "R", &repeat, "repetitions; medians are compared");
  flags->Add("timeout", "SECONDS", &timeout_s, "of one request");
  // Else the candidate that is run first would read the prompts for the others.
  cluster.ReadPromptsWhole();
  cluster.Register(flags);
}

std::vector<int> CalibrationPlan::TuningPrompts() const {
  if (is_learned()) return First(split.validation, tune_prompts);
  // Nothing is trained: those are free too.
  std::vector<int> indices = split.training;
  indices.insert(indices.end(), split.validation.begin(),
                 split.validation.end());
  std::sort(indices.begin(), indices.end());
  return First(std::move(indices), tune_prompts);
}

std::vector<int> CalibrationPlan::TestPrompts() const {
  return First(split.test, tune_prompts);
}

StateNeeds CalibrationPlan::state_needs() const {
  if (kind == PolicyKind::kSpecDecPlusPlus) return StateNeeds::kFed;
  return kind == PolicyKind::kCaliTs ? StateNeeds::kRowAndTarget
                                     : StateNeeds::kNone;
}

const char* TunedKey(PolicyKind kind) {
  if (kind == PolicyKind::kSvip) return "h";
  return kind == PolicyKind::kCaliTs ? "sigma-model" : "threshold";
}

std::string PolicyText(PolicyKind kind, double value, int cap) {
  return absl::StrCat(speculation::InfoOf(kind).name, ":", TunedKey(kind), "=",
                      value, ",max=", cap);
}

absl::StatusOr<CalibrationPlan> BuildCalibrationPlan(
    const CalibrationFlags& flags) {
  CalibrationPlan plan;
  NACRE_ASSIGN_OR_RETURN(plan.kind, ParseKind(flags.policy));
  if (flags.prompts.empty() || flags.out.empty()) {
    return absl::InvalidArgumentError("flags --prompts and --out are needed");
  }
  NACRE_RETURN_IF_ERROR(CheckCluster(flags.cluster));
  NACRE_RETURN_IF_ERROR(CheckNumbers(flags));
  if (plan.kind != PolicyKind::kOptimalStatic) {
    NACRE_ASSIGN_OR_RETURN(
        plan.thresholds,
        ParseThresholds(plan.kind, flags.thresholds.empty()
                                       ? DefaultThresholds(plan.kind)
                                       : flags.thresholds));
    NACRE_ASSIGN_OR_RETURN(plan.caps, ParseCaps(flags.caps));
  }
  NACRE_ASSIGN_OR_RETURN(const std::string content, ReadFile(flags.prompts));
  NACRE_ASSIGN_OR_RETURN(plan.prompts, ParsePrompts(flags.prompts, content));
  if (flags.limit.has_value() &&
      plan.prompts.size() > static_cast<size_t>(*flags.limit)) {
    plan.prompts.resize(static_cast<size_t>(*flags.limit));
  }
  for (Prompt& prompt : plan.prompts) {
    if (!prompt.max_tokens.has_value()) prompt.max_tokens = flags.max_tokens;
  }
  NACRE_ASSIGN_OR_RETURN(
      plan.split,
      SplitPrompts(static_cast<int>(plan.prompts.size()), flags.seed));
  plan.request.mutable_sampling()->set_temperature(flags.temperature);
  plan.request.mutable_sampling()->set_seed(flags.seed);
  plan.out = flags.out;
  plan.cluster = flags.cluster;
  plan.window = flags.window;
  plan.tune_prompts = flags.tune_prompts;
  plan.repeat = flags.repeat;
  plan.training = flags.training;
  plan.training.seed = flags.seed;
  if (plan.state_needs() != StateNeeds::kNone)
    plan.training.learning_rate = kHeadLearningRate;
  if (flags.learning_rate > 0.0) {
    plan.training.learning_rate = flags.learning_rate;
  }
  plan.timeout = absl::Seconds(flags.timeout_s);
  return plan;
}

}  // namespace nacre::tools
