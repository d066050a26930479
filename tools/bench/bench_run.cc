#include "tools/bench/bench_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "tools/bench/latency.h"

namespace nacre::tools {
namespace {

constexpr int kTracedPrompts = 3;

class BenchRun {
 public:
  BenchRun(const BenchPlan& plan, GenerationClient* client)
      : plan_(plan), client_(client) {}

  absl::StatusOr<BenchAnswer> Ask(int method, int prompt, int repeat,
                                  bool trace) const;

  // Requests [first, last) with one method, plan.streams at a time; the prompts
  // come round again. Adds to *answers; returns the wall time in seconds.
  absl::StatusOr<double> Block(int method, int first, int last, int repeat,
                               std::vector<BenchAnswer>* answers) const;

 private:
  const BenchPlan& plan_;
  GenerationClient* const client_;
};

absl::StatusOr<BenchAnswer> BenchRun::Ask(int method, int prompt, int repeat,
                                          bool trace) const {
  const BenchMethod& entry = plan_.methods[method];
  v1::GenerateRequest request = BenchRequest(plan_, entry, prompt);
  request.mutable_output()->set_trace(trace);
  request.mutable_output()->set_stream(true);
  // For the rows of each round.
  request.mutable_output()->set_spec_stats(v1::SPEC_STATS_LEVEL_DETAILED);

  const absl::Time start = absl::Now();
  const auto elapsed_s = [start] {
    return absl::ToDoubleSeconds(absl::Now() - start);
  };
  std::vector<Arrival> arrivals;
  absl::StatusOr<v1::Complete> complete =
      client_->Generate(request, plan_.timeout, [&](const v1::Chunk& chunk) {
        arrivals.push_back({elapsed_s(), chunk.token_ids_size()});
      });
  if (!complete.ok()) {
    return RequestError(complete.status(), plan_, entry, prompt);
  }
  BenchAnswer answer;
  answer.method = method;
  answer.prompt = prompt;
  answer.repeat = repeat;
  answer.seconds = elapsed_s();
  if (!arrivals.empty()) answer.ttft_s = arrivals.front().seconds;
  answer.inter_token_s = InterTokenLatencies(arrivals);
  answer.complete = *std::move(complete);
  return answer;
}

absl::StatusOr<double> BenchRun::Block(
    int method, int first, int last, int repeat,
    std::vector<BenchAnswer>* answers) const {
  absl::Mutex mu;
  int next = first;
  absl::Status status;
  const auto stream = [&] {
    while (true) {
      int prompt;
      {
        absl::MutexLock lock(&mu);
        if (next == last || !status.ok()) return;
        prompt = next++ % static_cast<int>(plan_.prompts.size());
      }
      absl::StatusOr<BenchAnswer> answer =
          Ask(method, prompt, repeat, plan_.record_steps);
      absl::MutexLock lock(&mu);
      if (answer.ok()) {
        answers->push_back(*std::move(answer));
      } else {
        status.Update(answer.status());
      }
    }
  };
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  const int streams = std::min(plan_.streams, last - first);
  for (int i = 1; i < streams; ++i) threads.emplace_back(stream);
  stream();
  for (std::thread& thread : threads) thread.join();
  NACRE_RETURN_IF_ERROR(status);
  return absl::ToDoubleSeconds(absl::Now() - start);
}

// Keeps of the traces what the simulation needs.
void RecordSteps(size_t first_answer, BenchResult* result) {
  for (size_t i = first_answer; i < result->answers.size(); ++i) {
    BenchAnswer& answer = result->answers[i];
    result->steps[answer.method].Add(answer.complete.trace());
    // The last one: the first of them meet cold caches.
    result->timelines[answer.method].Swap(answer.complete.mutable_trace());
    answer.complete.clear_trace();
  }
}

}  // namespace

int NumRequests(const BenchPlan& plan) {
  const int num_prompts = static_cast<int>(plan.prompts.size());
  return plan.streams == 1 ? num_prompts : std::max(num_prompts, plan.streams);
}

v1::GenerateRequest BenchRequest(const BenchPlan& plan,
                                 const BenchMethod& method, int prompt) {
  const Prompt& source = plan.prompts[prompt];
  v1::GenerateRequest request = plan.request;
  request.set_text(source.text);
  request.mutable_speculation()->set_method(method.method);
  if (method.window.has_value()) {
    request.mutable_speculation()->set_window(*method.window);
  }
  request.mutable_speculation()->set_policy(method.policy);
  request.mutable_speculation()->set_tree(method.tree);
  request.mutable_speculation()->set_ablation(method.ablation);
  request.mutable_speculation()->set_verification(method.verification);
  if (method.is_oracle() && !plan.recordings.empty()) {
    const std::vector<uint32_t>& ids = plan.recordings[prompt];
    request.mutable_speculation()->mutable_oracle_token_ids()->Assign(
        ids.begin(), ids.end());
  }
  if (!request.stop().has_max_tokens() && source.max_tokens.has_value()) {
    request.mutable_stop()->set_max_tokens(*source.max_tokens);
  }
  return request;
}

absl::Status RequestError(const absl::Status& status, const BenchPlan& plan,
                          const BenchMethod& method, int prompt) {
  return absl::Status(
      status.code(),
      absl::StrCat("prompt \"", plan.prompts[prompt].id, "\", method ",
                   method.name, ": ", status.message()));
}

absl::Status RecordAnswers(
    GenerationClient* client,
    const std::function<void(const std::string& line)>& progress,
    BenchPlan* plan) {
  if (std::none_of(plan->methods.begin(), plan->methods.end(),
                   [](const BenchMethod& m) { return m.is_oracle(); })) {
    return absl::OkStatus();
  }
  const BenchMethod ar = {"ar", v1::METHOD_AR, std::nullopt};
  std::vector<std::vector<uint32_t>> recordings;
  const int num_prompts = static_cast<int>(plan->prompts.size());
  for (int prompt = 0; prompt < num_prompts; ++prompt) {
    progress(absl::StrFormat("recording answers, prompt %d of %d", prompt + 1,
                             num_prompts));
    const absl::StatusOr<v1::Complete> complete =
        client->Generate(BenchRequest(*plan, ar, prompt), plan->timeout,
                         [](const v1::Chunk&) {});
    if (!complete.ok()) {
      return RequestError(complete.status(), *plan, ar, prompt);
    }
    recordings.emplace_back(complete->token_ids().begin(),
                            complete->token_ids().end());
  }
  plan->recordings = std::move(recordings);
  return absl::OkStatus();
}

absl::StatusOr<BenchResult> RunBench(
    const BenchPlan& plan, GenerationClient* client,
    const std::function<void(const std::string& line)>& progress) {
  const BenchRun run(plan, client);
  const int num_methods = static_cast<int>(plan.methods.size());
  const int num_prompts = static_cast<int>(plan.prompts.size());
  for (int method = 0; method < num_methods; ++method) {
    progress(absl::StrCat("warming up ", plan.methods[method].name));
    NACRE_RETURN_IF_ERROR(run.Ask(method, 0, 0, false).status());
  }
  BenchResult result;
  result.wall_s.assign(num_methods, std::vector<double>(plan.repeat, 0.0));
  if (plan.record_steps) {
    result.steps.resize(num_methods);
    result.timelines.resize(num_methods);
  }
  const int num_requests = NumRequests(plan);
  const int block = plan.streams == 1 ? 1 : num_requests;
  for (int repeat = 0; repeat < plan.repeat; ++repeat) {
    for (int first = 0; first < num_requests; first += block) {
      for (int turn = 0; turn < num_methods; ++turn) {
        const int method = (turn + repeat) % num_methods;
        progress(absl::StrFormat(
            "%d at once, repetition %d of %d, request %d of %d, %s",
            plan.streams, repeat + 1, plan.repeat, first + 1, num_requests,
            plan.methods[method].name));
        const size_t first_answer = result.answers.size();
        NACRE_ASSIGN_OR_RETURN(
            const double seconds,
            run.Block(method, first, std::min(first + block, num_requests),
                      repeat, &result.answers));
        result.wall_s[method][repeat] += seconds;
        if (plan.record_steps) RecordSteps(first_answer, &result);
      }
    }
  }
  const int num_traced =
      plan.streams == 1 && plan.trace_gaps && !plan.record_steps
          ? std::min(kTracedPrompts, num_prompts)
          : 0;
  for (int prompt = 0; prompt < num_traced; ++prompt) {
    for (int method = 0; method < num_methods; ++method) {
      progress(absl::StrCat("tracing ", plan.methods[method].name));
      NACRE_ASSIGN_OR_RETURN(BenchAnswer answer,
                             run.Ask(method, prompt, plan.repeat, true));
      result.traced.push_back(std::move(answer));
    }
  }
  return result;
}

}  // namespace nacre::tools
