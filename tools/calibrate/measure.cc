#include "tools/calibrate/measure.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "tools/bench/bench_run.h"

namespace nacre::tools {

absl::StatusOr<std::map<int, std::vector<int32_t>>> RunRecordingRequests(
    const CalibrationPlan& plan, const std::vector<int>& prompts, int window,
    GenerationClient* client, const ProgressLine& progress) {
  BenchPlan bench;
  BenchMethod sd = {"sd", v1::METHOD_SD, static_cast<uint32_t>(window)};
  sd.policy = "constant";
  bench.methods = {sd};
  bench.prompts = plan.prompts;
  bench.request = plan.request;
  std::map<int, std::vector<int32_t>> answers;
  for (const int prompt : prompts) {
    progress(absl::StrFormat("recording chunks of %d, prompt %d of %d", window,
                             answers.size() + 1, prompts.size()));
    v1::GenerateRequest request = BenchRequest(bench, sd, prompt);
    request.set_request_id(RecordingId(prompt));
    const absl::StatusOr<v1::Complete> complete =
        client->Generate(request, plan.timeout, [](const v1::Chunk&) {});
    if (!complete.ok()) {
      return RequestError(complete.status(), bench, sd, prompt);
    }
    std::vector<int32_t>& answer = answers[prompt];
    for (const uint32_t id : complete->token_ids()) {
      answer.push_back(static_cast<int32_t>(id));
    }
  }
  return answers;
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
