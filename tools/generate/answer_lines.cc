#include "tools/generate/answer_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/names.h"
#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

double WaitShare(const google::protobuf::Duration& busy,
                 const google::protobuf::Duration& wait) {
  return Ratio(Seconds(wait), Seconds(busy) + Seconds(wait));
}

// How long each worker waited for the other, and the draft that was missing.
std::string Waiting(const v1::Complete& complete) {
  const v1::Timing& timing = complete.timing();
  std::string text = absl::StrFormat(
      "target waiting %.1f %%, draft waiting %.1f %%",
      100.0 * WaitShare(timing.target_busy(), timing.target_wait()),
      100.0 * WaitShare(timing.draft_busy(), timing.draft_wait()));
  if (complete.speculation().degraded_rounds() > 0) {
    absl::StrAppendFormat(&text, "; %d rounds without a draft",
                          complete.speculation().degraded_rounds());
  }
  return text;
}

}  // namespace

std::string Summary(const v1::Complete& complete) {
  const v1::SpeculationReport& report = complete.speculation();
  const v1::Timing& timing = complete.timing();
  const double total_s = Seconds(timing.total());
  std::string text = absl::StrFormat(
      "%d prompt tokens, %d generated in %.3f s (%.1f tokens/s, first after "
      "%.0f ms), finish reason %s, seed %d\n",
      complete.usage().prompt_tokens(), complete.usage().completion_tokens(),
      total_s, Ratio(complete.usage().completion_tokens(), total_s),
      Seconds(timing.time_to_first_token()) * 1e3,
      FinishReasonName(complete.finish_reason()), complete.seed());
  absl::StrAppendFormat(
      &text,
      "%s, window %d: %d rounds, %d drafted, %d of %d verified accepted (%.1f "
      "%%), mean accepted length %.2f\n",
      MethodName(report.method()), report.window(), report.rounds(),
      report.drafted(), report.accepted(), report.verified(),
      100.0 * AcceptanceRate(report), MeanAcceptedLength(report));
  if (report.suffix_proposed() > 0) {
    absl::StrAppendFormat(
        &text,
        "of the target's own drafts %d of %d verified accepted (%.1f %%)\n",
        report.suffix_accepted(), report.suffix_proposed(),
        100.0 * Ratio(report.suffix_accepted(), report.suffix_proposed()));
  }
  return text + Waiting(complete);
}

std::string SpeedLine(const v1::Complete& complete) {
  const v1::SpeculationReport& report = complete.speculation();
  const uint32_t tokens = complete.usage().completion_tokens();
  const double total_s = Seconds(complete.timing().total());
  std::string text = absl::StrFormat("%d tokens, %.1f tokens/s", tokens,
                                     Ratio(tokens, total_s));
  if (report.verified() > 0) {
    absl::StrAppendFormat(&text, ", acceptance %.1f %% (%d of %d)",
                          100.0 * AcceptanceRate(report), report.accepted(),
                          report.verified());
  }
  if (report.suffix_accepted() > 0) {
    absl::StrAppendFormat(&text, ", %d of the target's own drafts",
                          report.suffix_accepted());
  }
  return absl::StrCat(text, ", ", Waiting(complete));
}

}  // namespace nacre::tools
