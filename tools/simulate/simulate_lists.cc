#include "tools/simulate/simulate_lists.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "tools/method_list.h"

namespace nacre::tools {
namespace {

using simulation::Failure;
using simulation::Role;
using speculation::Ablation;
using speculation::Method;

constexpr int kMaxSeconds = 1'000'000;

absl::StatusOr<SimulatedMethod> ParseMethodEntry(
    absl::string_view text, std::optional<int> default_window) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool has_window = absl::StrContains(text, ":");
  SimulatedMethod entry;
  entry.name = std::string(text);
  absl::string_view name = parts.first;
  if (name == "pearl-no-pre-verify" || name == "pearl-no-post-verify") {
    entry.method.ablation = name == "pearl-no-pre-verify"
                                ? Ablation::kNoPreVerify
                                : Ablation::kNoPostVerify;
    name = "pearl";
  }
  const absl::optional<Method> method = speculation::MethodFromName(name);
  if (!method.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "method \"", name,
        "\" is not one of ar, sd, pearl, async, pearl-no-pre-verify, "
        "pearl-no-post-verify"));
  }
  entry.method.method = *method;
  if (*method == Method::kAr) {
    if (!has_window) return entry;
    return absl::InvalidArgumentError(
        absl::StrCat("method \"", text, "\": ar has no window"));
  }
  if (default_window.has_value()) entry.method.window = *default_window;
  if (has_window) {
    int window = 0;
    if (!absl::SimpleAtoi(parts.second, &window) || window < 1 ||
        window > speculation::kMaxWindow) {
      return absl::InvalidArgumentError(
          absl::StrCat("method \"", text, "\": the window is not in 1..",
                       speculation::kMaxWindow));
    }
    entry.method.window = window;
  }
  return entry;
}

// Takes the seconds up to the next '+' off `text`.
absl::StatusOr<int64_t> TakeSeconds(absl::string_view* text, bool may_be_zero) {
  const absl::string_view number = text->substr(0, text->find('+'));
  double seconds = 0.0;
  if (!absl::SimpleAtod(number, &seconds) ||
      !(may_be_zero ? seconds >= 0.0 : seconds > 0.0) ||
      seconds > kMaxSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", number, "\" is not a number of seconds ",
                     may_be_zero ? "in 0.." : "> 0 and <= ", kMaxSeconds));
  }
  text->remove_prefix(number.size());
  return std::llround(seconds * 1e9);
}

absl::StatusOr<Failure> ParseFailure(absl::string_view text, int drafts,
                                     int targets) {
  Failure failure;
  const size_t when = text.find_first_of("@/");
  if (when == absl::string_view::npos) {
    return absl::InvalidArgumentError("it has no @SECONDS or /SECONDS");
  }
  failure.repeats = text[when] == '/';
  const std::pair<absl::string_view, absl::string_view> who =
      absl::StrSplit(text.substr(0, when), absl::MaxSplits(':', 1));
  failure.hangs = who.first == "hung-draft";
  if (who.first == "target") {
    failure.role = Role::kTarget;
  } else if (who.first != "draft" && !failure.hangs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", who.first, "\" is not one of draft, target, hung-draft"));
  }
  if (absl::StrContains(text.substr(0, when), ":")) {
    const int count = failure.role == Role::kTarget ? targets : drafts;
    int worker = 0;
    if (!absl::SimpleAtoi(who.second, &worker) || worker < 0 ||
        worker >= count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker \"", who.second, "\" is not one of the ", count, " from 0"));
    }
    failure.worker = worker;
  }
  text.remove_prefix(when + 1);
  NACRE_ASSIGN_OR_RETURN(failure.after_ns,
                         TakeSeconds(&text, /*may_be_zero=*/!failure.repeats));
  if (absl::ConsumePrefix(&text, "+")) {
    NACRE_ASSIGN_OR_RETURN(const int64_t back_ns,
                           TakeSeconds(&text, /*may_be_zero=*/false));
    failure.back_after_ns = back_ns;
  }
  if (!text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is too much"));
  }
  if (failure.repeats && !failure.back_after_ns.has_value()) {
    return absl::InvalidArgumentError(
        "what fails again and again needs +SECONDS to return after");
  }
  return failure;
}

}  // namespace

absl::StatusOr<std::vector<SimulatedMethod>> ParseSimulatedMethods(
    absl::string_view text, std::optional<int> default_window) {
  return ParseMethodList<SimulatedMethod>(
      text,
      [&](absl::string_view part) {
        return ParseMethodEntry(part, default_window);
      },
      [](const SimulatedMethod& a, const SimulatedMethod& b) {
        return a.method == b.method;
      });
}

absl::StatusOr<std::vector<Failure>> ParseFailures(absl::string_view text,
                                                   int drafts, int targets) {
  std::vector<Failure> failures;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<Failure> failure = ParseFailure(part, drafts, targets);
    if (!failure.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\": ", failure.status().message()));
    }
    failures.push_back(*std::move(failure));
  }
  return failures;
}

absl::StatusOr<speculation::MismatchShares> ParseRankShares(
    absl::string_view text) {
  constexpr size_t kMost = speculation::kRanks - 1;
  speculation::MismatchShares shares = {};
  double left = 1.0;
  size_t count = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double share = 0.0;
    if (!absl::SimpleAtod(part, &share) || !(share >= 0.0 && share <= 1.0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\" is not in 0..1"));
    }
    if (count == kMost) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMost, " shares"));
    }
    shares[count++] = share;
    left -= share;
  }
  constexpr double kRounding = 1e-9;
  if (left < -kRounding) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shares have the sum ", 1.0 - left, ", over 1"));
  }
  shares.back() = std::max(0.0, left);
  return shares;
}

}  // namespace nacre::tools
