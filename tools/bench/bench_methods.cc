#include "tools/bench/bench_methods.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "proto/names.h"
#include "speculation/pipeline.h"
#include "speculation/policies/policy_spec.h"
#include "speculation/tree_spec.h"
#include "tools/generate/request_flags.h"
#include "tools/method_list.h"

namespace nacre::tools {
namespace {

constexpr uint32_t kMaxWindow = 64;
constexpr char kAblated[] = "pearl-";

absl::StatusOr<BenchMethod> ParseEntry(absl::string_view text,
                                       std::optional<uint32_t> default_window) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool has_window = text.find(':') != absl::string_view::npos;
  BenchMethod entry;
  entry.name = std::string(text);
  absl::string_view name = parts.first;
  if (absl::ConsumePrefix(&name, kAblated)) {
    if (!speculation::AblationFromName(name).has_value() || name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "method \"", parts.first, "\" is not pearl-no-pre-verify or ",
          "pearl-no-post-verify"));
    }
    entry.ablation = std::string(name);
    name = "pearl";
  }
  NACRE_ASSIGN_OR_RETURN(entry.method, ParseMethod(name));
  if (entry.method == v1::METHOD_AR) {
    if (has_window) {
      return absl::InvalidArgumentError(
          absl::StrCat("method \"", text, "\": ar has no window"));
    }
    return entry;
  }
  entry.window = default_window;
  if (has_window) {
    uint32_t window = 0;
    if (!absl::SimpleAtoi(parts.second, &window) || window < 1 ||
        window > kMaxWindow) {
      return absl::InvalidArgumentError(absl::StrCat(
          "method \"", text, "\": the window is not in 1..", kMaxWindow));
    }
    entry.window = window;
  }
  return entry;
}

// Each method with each of the values, but for ar, which drafts nothing.
template <typename Value, typename Set>
std::vector<BenchMethod> Crossed(const std::vector<BenchMethod>& methods,
                                 const std::vector<Value>& values, Set set) {
  std::vector<BenchMethod> crossed;
  for (const BenchMethod& method : methods) {
    if (method.method == v1::METHOD_AR) {
      crossed.push_back(method);
      continue;
    }
    for (const Value& value : values) set(value, &crossed.emplace_back(method));
  }
  return crossed;
}

}  // namespace

absl::StatusOr<std::vector<BenchMethod>> ParseBenchMethods(
    absl::string_view text, std::optional<uint32_t> default_window) {
  return ParseMethodList<BenchMethod>(
      text,
      [&](absl::string_view part) { return ParseEntry(part, default_window); },
      [](const BenchMethod& a, const BenchMethod& b) {
        return a.method == b.method && a.window == b.window &&
               a.ablation == b.ablation;
      });
}

bool BenchMethod::is_oracle() const {
  const auto spec = speculation::ParsePolicySpec(policy);
  return spec.ok() && spec->kind() == speculation::PolicyKind::kOracle;
}

bool BenchMethod::has_policy_rule() const {
  const auto spec = speculation::ParsePolicySpec(policy);
  return method != v1::METHOD_AR && spec.ok() && spec->has_own_rule();
}

absl::StatusOr<std::vector<std::string>> ParseBenchPolicies(
    absl::string_view text) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t equals = part.find('=');
    const bool continues =
        equals != absl::string_view::npos &&
        part.substr(0, equals).find(':') == absl::string_view::npos;
    if (continues && !parts.empty()) {
      absl::StrAppend(&parts.back(), ",", part);
    } else {
      parts.emplace_back(part);
    }
  }
  std::vector<std::string> policies;
  for (const std::string& part : parts) {
    if (part.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("an empty policy in \"", text, "\""));
    }
    NACRE_ASSIGN_OR_RETURN(const speculation::PolicySpec spec,
                           speculation::ParsePolicySpec(part));
    if (std::find(policies.begin(), policies.end(), spec.text()) !=
        policies.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy \"", part, "\" is given twice"));
    }
    policies.push_back(spec.text());
  }
  return policies;
}

std::vector<BenchMethod> WithPolicies(
    const std::vector<BenchMethod>& methods,
    const std::vector<std::string>& policies) {
  if (policies.empty()) return methods;
  return Crossed(methods, policies,
                 [](const std::string& policy, BenchMethod* entry) {
                   absl::StrAppend(&entry->name, "/", policy);
                   entry->policy = policy;
                 });
}

absl::StatusOr<std::vector<v1::Verification>> ParseBenchVerifications(
    absl::string_view text) {
  std::vector<v1::Verification> verifications;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    NACRE_ASSIGN_OR_RETURN(const v1::Verification verification,
                           ParseVerification(part));
    if (std::find(verifications.begin(), verifications.end(), verification) !=
        verifications.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("verification \"", part, "\" is given twice"));
    }
    verifications.push_back(verification);
  }
  return verifications;
}

std::vector<BenchMethod> WithVerifications(
    const std::vector<BenchMethod>& methods,
    const std::vector<v1::Verification>& verifications) {
  return Crossed(methods, verifications,
                 [](v1::Verification verification, BenchMethod* entry) {
                   entry->verification = verification;
                   if (entry->is_ratio()) {
                     absl::StrAppend(&entry->name, "+ratio");
                   }
                 });
}

bool BenchMethod::has_tree() const {
  if (method == v1::METHOD_AR || tree == "chain") return false;
  return method == v1::METHOD_ASYNC || !tree.empty();
}

absl::StatusOr<std::vector<BenchMethod>> WithTrees(
    const std::vector<BenchMethod>& methods, absl::string_view trees,
    absl::string_view of_methods) {
  NACRE_ASSIGN_OR_RETURN(
      const std::vector<v1::Method> crossed,
      ParseMethodList<v1::Method>(of_methods, ParseMethod, std::equal_to<>()));
  if (absl::c_linear_search(crossed, v1::METHOD_AR)) {
    return absl::InvalidArgumentError("method \"ar\" drafts no tree");
  }
  if (trees.empty()) return methods;
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(trees, ',')) {
    // A parameter of the shape before it.
    if (!names.empty() && absl::StrContains(part, '=') &&
        !absl::StrContains(part, ':')) {
      absl::StrAppend(&names.back(), ",", part);
    } else {
      names.emplace_back(part);
    }
  }
  std::vector<std::string> shapes;
  for (const std::string& name : names) {
    NACRE_ASSIGN_OR_RETURN(shapes.emplace_back(), ReadTree(name));
    NACRE_RETURN_IF_ERROR(speculation::ParseTreeSpec(shapes.back()).status());
    if (std::count(names.begin(), names.end(), name) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree \"", name, "\" is given twice"));
    }
  }
  std::vector<BenchMethod> all;
  for (const BenchMethod& method : methods) {
    if (!absl::c_linear_search(crossed, method.method)) {
      all.push_back(method);
      continue;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      BenchMethod entry = method;
      entry.name = absl::StrCat(method.name, "@", names[i]);
      entry.tree = shapes[i];
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace nacre::tools
