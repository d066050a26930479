// Runs the requests of `nacre bench` and times them.

#ifndef TOOLS_BENCH_BENCH_RUN_H_
#define TOOLS_BENCH_BENCH_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/inference.pb.h"
#include "tools/bench/bench_methods.h"
#include "tools/bench/step_recorder.h"
#include "tools/generate/generation_client.h"
#include "tools/generate/prompts_file.h"

namespace nacre::tools {

struct BenchPlan {
  std::vector<BenchMethod> methods;
  std::vector<Prompt> prompts;
  int repeat = 1;
  int streams = 1;            // concurrent requests
  int draft_rows = 1;         // of the coordinator, for predictions
  int tree_rows = 0;          // likewise
  double latency_us = 0.0;    // of a hop, one way, likewise
  bool record_steps = false;  // trace what is measured: BenchResult::steps
  bool trace_gaps = true;     // without it, a few prompts once more, traced
  // Everything but prompt and method. max_tokens, where set, overrides the
  // prompts' own.
  v1::GenerateRequest request;
  // [prompt]: what ar answers, for policy oracle; empty without it.
  std::vector<std::vector<uint32_t>> recordings = {};
  absl::Duration timeout = absl::Minutes(10);  // of a request
};

// One answer.
struct BenchAnswer {
  int method = 0;  // index into BenchPlan::methods
  int prompt = 0;  // index into BenchPlan::prompts
  int repeat = 0;
  double seconds = 0.0;               // the client's wall time
  double ttft_s = 0.0;                // until its first token
  std::vector<double> inter_token_s;  // latency.h
  v1::Complete complete;
};

struct BenchResult {
  std::vector<BenchAnswer> answers;  // what is measured
  std::vector<BenchAnswer> traced;   // extra, with step gaps
  // [method][repeat]: wall time of the generation of all prompts, seconds.
  std::vector<std::vector<double>> wall_s;
  // [method]: of `answers`, which have no traces then; or empty.
  std::vector<StepRecorder> steps;
  // [method]: the trace of one of them, where steps were recorded; or empty.
  std::vector<google::protobuf::RepeatedPtrField<v1::TraceLane>> timelines;
};

// How many requests a repetition has with each method. Request i is of prompt
// i, modulo their number.
int NumRequests(const BenchPlan& plan);

// What is asked of prompt `prompt` with a method.
v1::GenerateRequest BenchRequest(const BenchPlan& plan,
                                 const BenchMethod& method, int prompt);

// The failure of such a request, with its prompt and method.
absl::Status RequestError(const absl::Status& status, const BenchPlan& plan,
                          const BenchMethod& method, int prompt);

// Asks ar for what the oracle has to know, if a method has that policy: the
// plan's recordings. Errors: as of RunBench.
absl::Status RecordAnswers(
    GenerationClient* client,
    const std::function<void(const std::string& line)>& progress,
    BenchPlan* plan);

// For each repetition:
// - one stream: for each prompt all methods in turn, the first one rotating;
// - several streams: for each method all prompts, again and again until there
//   are as many requests as streams.
// So drift of the machine hits all methods alike. One warm-up request per
// method goes first. With one stream a few prompts run traced at last, for the
// gaps between steps, unless all were traced. That costs some time. Errors:
// that of the first request that fails, with its prompt and method.
absl::StatusOr<BenchResult> RunBench(
    const BenchPlan& plan, GenerationClient* client,
    const std::function<void(const std::string& line)>& progress);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_RUN_H_
