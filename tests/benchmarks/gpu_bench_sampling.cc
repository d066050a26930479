#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "model/sampler.h"
#include "tests/benchmarks/gpu_bench.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

using Json = nlohmann::ordered_json;
using kernels::Median;
using kernels::Seconds;

constexpr int kPosition = 1000;

// How the rows of a step are drawn from, once they are the device's logits.
struct Way {
  const char* name;
  // Draws a token of each of `rows` rows.
  std::function<absl::Status(int rows)> draw;
};

SamplingParams Params(float temperature, float top_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.seed = 1;
  return params;
}

absl::Status MeasureSampling(const GpuBench& bench, Json* json) {
  const GpuBenchPlan& plan = bench.plan;
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.device = plan.device;
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                         kernels::CreateBackend(options));
  backend->BindComputeThread();
  const int most_rows = *std::max_element(plan.rows.begin(), plan.rows.end());
  const size_t vocab = static_cast<size_t>(plan.vocab);
  // Ranks fall off as those of a text; one row, shifted for the others.
  std::vector<float> row(vocab);
  std::mt19937 random(1);
  for (size_t rank = 0; rank < vocab; ++rank) {
    row[rank] = 20.0f - 1.5f * std::log(static_cast<float>(rank + 1));
  }
  std::shuffle(row.begin(), row.end(), random);
  std::vector<float> host(static_cast<size_t>(most_rows) * vocab);
  for (size_t i = 0; i < host.size(); ++i) {
    host[i] = row[(i + i / vocab * 7919) % vocab];
  }
  const size_t bytes = host.size() * sizeof(float);
  NACRE_ASSIGN_OR_RETURN(const auto logits, backend->Allocate(bytes));
  backend->CopyFromHost(host.data(), bytes, logits->data());
  NACRE_RETURN_IF_ERROR(backend->Synchronize());

  const TokenHistory history(0);
  const auto copy = [&](int rows) {
    backend->CopyToHost(logits->data(),
                        static_cast<size_t>(rows) * vocab * sizeof(float),
                        host.data());
    return backend->Synchronize();
  };
  int64_t sum = 0;  // so that drawing is not left out
  const auto on_host = [&](const SamplingParams& params) {
    const auto sampler = std::make_shared<Sampler>(params, plan.vocab);
    return [&, sampler](int rows) -> absl::Status {
      NACRE_RETURN_IF_ERROR(copy(rows));
      for (int i = 0; i < rows; ++i) {
        sum += sampler->Sample(absl::MakeConstSpan(host).subspan(
                                   static_cast<size_t>(i) * vocab, vocab),
                               kPosition, history);
      }
      return absl::OkStatus();
    };
  };
  // A draw on the device is another line here.
  const std::vector<Way> ways = {
      {"copied to the host", copy},
      {"and drawn there: greedy", on_host(Params(0.0f, 1.0f))},
      {"temperature 1", on_host(Params(1.0f, 1.0f))},
      {"temperature 0.8, top-p 0.95", on_host(Params(0.8f, 0.95f))},
  };
  std::printf("%-30s %6s %10s\n", "logits of the device", "rows", "us");
  for (const Way& way : ways) {
    for (const int rows : plan.rows) {
      std::vector<double> times;
      for (int i = 0; i <= plan.repetitions; ++i) {
        const double start = Seconds();
        NACRE_RETURN_IF_ERROR(way.draw(rows));
        if (i > 0) times.push_back(Seconds() - start);
      }
      std::printf("%-30s %6d %10.1f\n", way.name, rows, Median(times) * 1e6);
      (*json)["cases"].push_back(
          {{"how", way.name}, {"rows", rows}, {"seconds", Median(times)}});
    }
  }
  (*json)["sum_of_ids"] = sum;
  return absl::OkStatus();
}

}  // namespace

Json BenchGpuSampling(const GpuBench& bench) {
  std::printf("\n== drawing tokens, vocabulary of %d\n", bench.plan.vocab);
  std::fflush(stdout);
  Json json = {{"vocab", bench.plan.vocab}};
  const absl::Status status = MeasureSampling(bench, &json);
  if (!status.ok()) {
    json["failed"] = std::string(status.message());
    std::printf("failed: %s\n", std::string(status.message()).c_str());
  }
  return json;
}

}  // namespace nacre::model
