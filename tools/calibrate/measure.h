// The requests of `nacre calibrate`: they record features, or measure how fast
// length policies are. Through a running coordinator.

#ifndef TOOLS_CALIBRATE_MEASURE_H_
#define TOOLS_CALIBRATE_MEASURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/bench_report.h"
#include "tools/calibrate/calibration_plan.h"
#include "tools/calibrate/recording.h"
#include "tools/generate/generation_client.h"

namespace nacre::tools {

using ProgressLine = std::function<void(const std::string& line)>;

// Each of `prompts` once with `sd` and chunks of `window`, as the request
// RecordingId(prompt). Their answers. Errors: the first request's that fails,
// with its prompt.
absl::StatusOr<std::map<int, std::vector<int32_t>>> RunRecordingRequests(
    const CalibrationPlan& plan, const std::vector<int>& prompts, int window,
    GenerationClient* client, const ProgressLine& progress);

// `ar`, and `sd` with each of `policies`, on the prompts: as of `nacre bench`
// with plan.repeat repetitions, in that order. Errors: RunBench's, and
// DATA_LOSS where answers differ.
absl::StatusOr<std::vector<MethodSummary>> MeasurePolicies(
    const CalibrationPlan& plan, const std::vector<int>& prompts,
    const std::vector<std::string>& policies, GenerationClient* client,
    const ProgressLine& progress);

// The index into `policies` of the one with the most tokens per second; of
// equal ones the first. `summaries`: MeasurePolicies' of them.
int FastestPolicy(const std::vector<MethodSummary>& summaries);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_MEASURE_H_
