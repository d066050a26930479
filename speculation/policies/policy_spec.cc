#include "speculation/policies/policy_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/quoted.h"
#include "common/status_macros.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {
namespace {

PolicyParameter Number(const char* key, double min, double max,
                       absl::optional<double> fallback) {
  return {key, min, max, fallback, /*is_integer=*/false, {}};
}

PolicyParameter Count(const char* key, absl::optional<double> fallback) {
  return {key, 1.0, kMaxWindow, fallback, /*is_integer=*/true, {}};
}

PolicyParameter Choice(const char* key, std::vector<const char*> choices) {
  return {key, 0.0, 0.0, 0.0, /*is_integer=*/false, std::move(choices)};
}

// SVIP's cap, for policies whose papers have none.
constexpr double kUsualMax = 40.0;
constexpr double kLarge = 1e6;
// Standard deviations and prior counts are > 0.
constexpr double kSmall = 1e-6;

std::vector<PolicyInfo> MakeTable() {
  using K = PolicyKind;
  return {
      {K::kConstant,
       "constant",
       PolicyFile::kNone,
       false,
       {Count("n", absl::nullopt)}},
      {K::kHeuristic,
       "heuristic",
       PolicyFile::kNone,
       false,
       {Count("start", 5.0), Count("max", kUsualMax)}},
      {K::kConfidence,
       "confidence",
       PolicyFile::kNone,
       true,
       {Number("threshold", 0.0, 1.0, 0.4), Count("max", 20.0)}},
      {K::kSvip,
       "svip",
       PolicyFile::kOptional,
       false,
       {Number("h", 0.0, 100.0, 0.3), Number("c", 0.0, 100.0, 0.15),
        Count("max", kUsualMax)}},
      {K::kBetaTs,
       "beta-ts",
       PolicyFile::kNone,
       false,
       {Choice("update", {"paper", "bernoulli"}),
        Number("alpha0", kSmall, kLarge, 4.0),
        Number("beta0", kSmall, kLarge, 1.0), Count("max", kUsualMax)}},
      {K::kCaliTs,
       "cali-ts",
       PolicyFile::kOptional,
       false,
       {Number("sigma-model", kSmall, kLarge, 0.2),
        Number("sigma-sample", kSmall, kLarge, 0.5),
        Number("theta0", 0.0, 1.0, 0.7), Count("max", kUsualMax)}},
      {K::kDisco,
       "disco",
       PolicyFile::kRequired,
       false,
       {Number("threshold", 0.0, 1.0, 0.5), Count("max", kUsualMax)}},
      {K::kSpecDecPlusPlus,
       "specdec++",
       PolicyFile::kRequired,
       false,
       {Number("threshold", 0.0, 1.0, 0.7), Count("min", 2.0),
        Count("max", 20.0)}},
      {K::kOptimalStatic,
       "optimal-static",
       PolicyFile::kOptional,
       false,
       {Count("gamma", absl::nullopt)}},
      {K::kOracle,
       "oracle",
       PolicyFile::kNone,
       true,
       {Count("max", static_cast<double>(kMaxWindow))}},
      {K::kLoad, "load", PolicyFile::kNone, false, {}},
  };
}

absl::optional<size_t> FindParameter(const PolicyInfo& info,
                                     absl::string_view key) {
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    if (key == info.parameters[i].key) return i;
  }
  return absl::nullopt;
}

std::string Names() {
  return absl::StrJoin(AllPolicies(), " ",
                       [](std::string* out, const PolicyInfo& info) {
                         absl::StrAppend(out, info.name);
                       });
}

// The shortest text that is parsed as the same number.
std::string NumberText(double value) {
  std::array<char, 32> text;
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string Keys(const PolicyInfo& info) {
  return absl::StrJoin(info.parameters, " ",
                       [](std::string* out, const PolicyParameter& parameter) {
                         absl::StrAppend(out, parameter.key);
                       });
}

absl::StatusOr<double> ParseValue(const PolicyInfo& info,
                                  const PolicyParameter& parameter,
                                  absl::string_view text) {
  const std::string what =
      absl::StrCat("policy ", info.name, ": ", parameter.key, " is ",
                   Quoted(text), ", must be ");
  if (!parameter.choices.empty()) {
    for (size_t i = 0; i < parameter.choices.size(); ++i) {
      if (text == parameter.choices[i]) return static_cast<double>(i);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(what, absl::StrJoin(parameter.choices, " or ")));
  }
  double value = std::numeric_limits<double>::quiet_NaN();
  // Written so that NaN fails.
  const bool in_range = absl::SimpleAtod(text, &value) &&
                        value >= parameter.min && value <= parameter.max;
  if (!in_range || (parameter.is_integer && value != std::floor(value))) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, parameter.is_integer ? "a whole number" : "a number",
                     " in [", parameter.min, ", ", parameter.max, "]"));
  }
  return value;
}

}  // namespace

const std::vector<PolicyInfo>& AllPolicies() {
  static const auto& table = *new std::vector<PolicyInfo>(MakeTable());
  return table;
}

const PolicyInfo& InfoOf(PolicyKind kind) {
  return AllPolicies()[static_cast<size_t>(kind)];
}

absl::optional<double> PolicySpec::Given(absl::string_view key) const {
  const absl::optional<size_t> index = FindParameter(InfoOf(kind_), key);
  for (const auto& [given, value] : given_) {
    if (given == index) return value;
  }
  return absl::nullopt;
}

double PolicySpec::Value(absl::string_view key,
                         const PolicySpec* defaults) const {
  if (const auto given = Given(key)) return *given;
  if (defaults != nullptr) {
    if (const auto given = defaults->Given(key)) return *given;
  }
  const PolicyInfo& info = InfoOf(kind_);
  const absl::optional<size_t> index = FindParameter(info, key);
  NACRE_CHECK(index.has_value() && info.parameters[*index].fallback.has_value(),
              "a policy parameter without a value");
  return *info.parameters[*index].fallback;
}

absl::optional<int> PolicySpec::max_length() const {
  if (!has_own_rule()) return absl::nullopt;
  for (const char* key : {"n", "gamma", "max"}) {
    const absl::optional<size_t> index = FindParameter(InfoOf(kind_), key);
    if (!index.has_value()) continue;
    if (const auto given = Given(key)) return static_cast<int>(*given);
    // A file may say which, and it may be more than the table's.
    if (InfoOf(kind_).file != PolicyFile::kNone) return kMaxWindow;
    const auto& fallback = InfoOf(kind_).parameters[*index].fallback;
    if (fallback.has_value()) return static_cast<int>(*fallback);
  }
  return kMaxWindow;
}

bool PolicySpec::has_own_rule() const {
  return kind_ != PolicyKind::kLoad &&
         (kind_ != PolicyKind::kConstant || !given_.empty());
}

bool PolicySpec::needs_file() const {
  return InfoOf(kind_).file == PolicyFile::kRequired ||
         (kind_ == PolicyKind::kOptimalStatic && given_.empty());
}

std::string PolicySpec::text() const {
  const PolicyInfo& info = InfoOf(kind_);
  std::string text = info.name;
  char separator = ':';
  for (const auto& [index, value] : given_) {
    const PolicyParameter& parameter = info.parameters[index];
    text.push_back(separator);
    separator = ',';
    absl::StrAppend(&text, parameter.key, "=");
    if (parameter.choices.empty()) {
      absl::StrAppend(&text, NumberText(value));
    } else {
      absl::StrAppend(&text, parameter.choices[static_cast<size_t>(value)]);
    }
  }
  return text;
}

absl::StatusOr<PolicySpec> ParsePolicySpec(absl::string_view text) {
  PolicySpec spec;
  if (text.empty()) return spec;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto& table = AllPolicies();
  const auto info = std::find_if(
      table.begin(), table.end(),
      [&](const PolicyInfo& entry) { return parts.first == entry.name; });
  if (info == table.end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown length policy ",
                                                   Quoted(parts.first),
                                                   "; there are: ", Names()));
  }
  spec.kind_ = info->kind;
  if (parts.first.size() == text.size()) return spec;
  for (const absl::string_view part : absl::StrSplit(parts.second, ',')) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::optional<size_t> index = FindParameter(*info, entry.first);
    if (!index.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "policy ", info->name, " has no parameter ", Quoted(entry.first),
          "; ",
          info->parameters.empty() ? "it has none"
                                   : absl::StrCat("it has: ", Keys(*info))));
    }
    if (spec.Given(entry.first).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "policy ", info->name, ": ", entry.first, " is given twice"));
    }
    NACRE_ASSIGN_OR_RETURN(
        const double value,
        ParseValue(*info, info->parameters[*index], entry.second));
    spec.given_.emplace_back(*index, value);
  }
  std::sort(spec.given_.begin(), spec.given_.end());
  if (spec.Given("start").has_value() || spec.Given("min").has_value()) {
    const char* least = spec.Given("start").has_value() ? "start" : "min";
    if (spec.Value(least) > spec.Value("max")) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy ", info->name, ": ", least, " is ",
                       spec.Value(least), ", over max of ", spec.Value("max")));
    }
  }
  return spec;
}

}  // namespace nacre::speculation
