// The small kernels between products, each alone: norms, rotary embedding,
// gate. bench_gpu's models have them within steps.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "tests/benchmarks/gpu_bench.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

using Json = nlohmann::ordered_json;
using kernels::Median;
using kernels::Seconds;

// One after the other on the stream: what a kernel takes, not its start.
constexpr int kQueued = 100;

struct RowKernel {
  const char* name;
  size_t floats;  // that it reads and writes for a row
  std::function<void(int rows)> queue;
};

absl::Status MeasureRows(const GpuBench& bench, Json* json) {
  const GpuBenchPlan& plan = bench.plan;
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.device = plan.device;
  options.overlap = plan.overlap;
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                         kernels::CreateBackend(options));
  backend->BindComputeThread();
  const int heads = plan.attention_heads;
  const int head_dim = plan.attention_head_dim;
  const int hidden = heads * head_dim;
  const int inner = hidden * 7 / 2;  // as of 8B
  std::vector<int> all_rows = plan.rows;
  all_rows.insert(all_rows.end(), plan.prompts.begin(), plan.prompts.end());
  const auto most =
      static_cast<size_t>(*std::max_element(all_rows.begin(), all_rows.end()));

  // Zeros: times do not depend on values.
  const std::vector<float> zeros(most * static_cast<size_t>(inner) * 2, 0.0f);
  const auto floats = [&](size_t count) {
    auto memory = backend->Allocate(count * sizeof(float));
    if (memory.ok()) {
      backend->CopyFromHost(zeros.data(), count * sizeof(float),
                            (*memory)->data());
    }
    return memory;
  };
  const auto width = static_cast<size_t>(hidden);
  NACRE_ASSIGN_OR_RETURN(const auto in, floats(zeros.size()));
  NACRE_ASSIGN_OR_RETURN(const auto out, floats(zeros.size() / 2));
  NACRE_ASSIGN_OR_RETURN(const auto weight, floats(width));
  NACRE_ASSIGN_OR_RETURN(const auto angles,
                         floats(most * static_cast<size_t>(head_dim) / 2));
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  auto* const x = static_cast<float*>(in->data());
  auto* const y = static_cast<float*>(out->data());
  const auto* const w = static_cast<const float*>(weight->data());
  const auto* const turns = static_cast<const float*>(angles->data());

  const std::vector<RowKernel> all = {
      {"norm", 2 * width,
       [&](int rows) { backend->RmsNorm(x, rows, hidden, w, 1e-5f, y); }},
      {"rotary embedding", 2 * width,
       [&](int rows) {
         backend->Rope(y, rows, hidden, heads, head_dim, turns, turns);
       }},
      {"gate", 3 * static_cast<size_t>(inner),
       [&](int rows) { backend->SiluMul(x, rows, inner, y); }},
  };
  std::printf("%-18s %6s %10s %10s\n", "kernel", "rows", "us", "of reading");
  for (const RowKernel& kernel : all) {
    for (const int rows : all_rows) {
      std::vector<double> times;
      for (int i = 0; i <= plan.repetitions; ++i) {
        const double start = Seconds();
        for (int j = 0; j < kQueued; ++j) kernel.queue(rows);
        NACRE_RETURN_IF_ERROR(backend->Synchronize());
        if (i > 0) times.push_back((Seconds() - start) / kQueued);
      }
      const double seconds = Median(times);
      const double share = static_cast<double>(kernel.floats * sizeof(float)) *
                           rows / seconds / bench.limits.read;
      std::printf("%-18s %6d %10.2f %9.0f%%\n", kernel.name, rows,
                  seconds * 1e6, share * 100);
      (*json)["cases"].push_back({{"kernel", kernel.name},
                                  {"rows", rows},
                                  {"seconds", seconds},
                                  {"of_reading", share}});
    }
  }
  return absl::OkStatus();
}

}  // namespace

Json BenchGpuRows(const GpuBench& bench) {
  std::printf("\n== small kernels, heads %d of %d\n",
              bench.plan.attention_heads, bench.plan.attention_head_dim);
  std::fflush(stdout);
  Json json = {{"queued", kQueued}};
  const absl::Status status = MeasureRows(bench, &json);
  if (!status.ok()) {
    json["failed"] = std::string(status.message());
    std::printf("failed: %s\n", std::string(status.message()).c_str());
  }
  return json;
}

}  // namespace nacre::model
