#include "tools/calibrate/measure.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "tools/bench_run.h"

namespace nacre::tools {

absl::StatusOr<uint64_t> RunRecordingRequests(const CalibrationPlan& plan,
                                              GenerationClient* client,
                                              const ProgressLine& progress) {
  BenchPlan bench;
  BenchMethod sd = {"sd", v1::METHOD_SD, static_cast<uint32_t>(plan.window)};
  sd.policy = "constant";
  bench.methods = {sd};
  bench.prompts = plan.prompts;
  bench.request = plan.request;
  uint64_t verified = 0;
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    const int prompt = static_cast<int>(i);
    progress(absl::StrFormat("recording prompt %d of %d", prompt + 1,
                             plan.prompts.size()));
    v1::GenerateRequest request = BenchRequest(bench, sd, prompt);
    request.set_request_id(RecordingId(prompt));
    const absl::StatusOr<v1::Complete> complete =
        client->Generate(request, plan.timeout, [](const v1::Chunk&) {});
    if (!complete.ok()) {
      return RequestError(complete.status(), bench, sd, prompt);
    }
    verified += complete->speculation().verified();
  }
  return verified;
}

absl::StatusOr<std::vector<MethodSummary>> MeasurePolicies(
    const CalibrationPlan& plan, const std::vector<int>& prompts,
    const std::vector<std::string>& policies, GenerationClient* client,
    const ProgressLine& progress) {
  BenchPlan bench;
  bench.methods = {{"ar", v1::METHOD_AR, std::nullopt}};
  for (const std::string& policy : policies) {
    BenchMethod method = {absl::StrCat("sd/", policy), v1::METHOD_SD,
                          std::nullopt};
    method.policy = policy;
    bench.methods.push_back(std::move(method));
  }
  for (const int prompt : prompts) {
    bench.prompts.push_back(plan.prompts[static_cast<size_t>(prompt)]);
  }
  bench.repeat = plan.repeat;
  bench.trace_gaps = false;
  bench.request = plan.request;
  bench.timeout = plan.timeout;
  NACRE_ASSIGN_OR_RETURN(const BenchResult result,
                         RunBench(bench, client, progress));
  NACRE_RETURN_IF_ERROR(CheckIdentical(bench, result));
  return Summarize(bench, result);
}

int FastestPolicy(const std::vector<MethodSummary>& summaries) {
  NACRE_CHECK(summaries.size() >= 2, "no policy was measured");
  size_t best = 1;
  for (size_t i = 2; i < summaries.size(); ++i) {
    if (summaries[i].tokens_per_second > summaries[best].tokens_per_second) {
      best = i;
    }
  }
  return static_cast<int>(best) - 1;
}

}  // namespace nacre::tools
