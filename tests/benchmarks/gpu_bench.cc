#include "tests/benchmarks/gpu_bench.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "kernels/cuda/device.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

using Json = nlohmann::ordered_json;

// What the parts in `json` say of themselves.
void Collect(const Json& json, bool* complete, bool* failed, bool* invariant) {
  if (json.is_object()) {
    if (json.contains("left_out")) *complete = false;
    if (json.contains("failed")) *failed = true;
    if (json.contains("batch_invariant") && json["batch_invariant"] != true) {
      *invariant = false;
    }
  }
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) {
    Collect(value, complete, failed, invariant);
  }
}

void PrintLimits(const kernels::cuda::GpuLimits& limits) {
  std::printf("read %.0f GB/s, copy %.0f GB/s (read + written)\n",
              limits.read * 1e-9, limits.copy * 1e-9);
  std::printf("bf16 %.0f TFLOP/s: mma.sync from registers %.0f, ",
              limits.bf16() * 1e-12, limits.mma * 1e-12);
  if (limits.cublas > 0) {
    std::printf("cuBLAS %.0f\n", limits.cublas * 1e-12);
  } else {
    std::printf("cuBLAS not found\n");
  }
}

// A line for each model, and one for the limits: what a person looks at first.
void PrintSummary(const Json& json) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  std::printf("\nsummary: %s, read %.0f GB/s, bf16 %.0f TFLOP/s\n",
              json["device"].get<std::string>().c_str(),
              number(json["limits"]["read_bytes_per_second"]) * 1e-9,
              number(json["limits"]["bf16_per_second"]) * 1e-12);
  for (const Json& model : json["models"]) {
    std::printf("summary: %s %s", model["name"].get<std::string>().c_str(),
                model["weights"].get<std::string>().c_str());
    for (const char* reason : {"skipped", "left_out", "failed"}) {
      if (!model.contains(reason)) continue;
      std::printf(" %s: %s", reason, model[reason].get<std::string>().c_str());
    }
    if (model.contains("drawn_steps")) {
      const Json& first = model["drawn_steps"][0];
      std::printf(" %.2f ms a drawn row, %.0f %% of read, times",
                  number(first["seconds"]) * 1e3,
                  100 * number(first["of_read_bandwidth"]));
      for (const Json& step : model["drawn_steps"]) {
        std::printf(" %.2f at %d", number(step["to_one_row"]),
                    step["rows"].get<int>());
      }
    }
    if (model.contains("prompts")) {
      std::printf(", prompts at %.0f %% of bf16",
                  100 * number(model["prompts"].back()["of_bf16"]));
    }
    std::printf("\n");
  }
}

}  // namespace

const std::vector<GpuModel>& GpuModels() {
  static const auto& models = *new std::vector<GpuModel>{
      {"1B", "bf16", {2048, 8192, 16, 32, 8, 64, 128256, 8192}},
      {"1.3B", "bf16", {2048, 5504, 24, 16, 16, 128, 32000, 8192}},
      {"8B", "bf16", {4096, 14336, 32, 32, 8, 128, 128256, 8192}},
      {"33B", "bf16", {6656, 17920, 60, 52, 52, 128, 32000, 8192}},
      {"70B", "int8", {8192, 28672, 80, 64, 8, 128, 128256, 8192}},
  };
  return models;
}

absl::StatusOr<std::vector<GpuModel>> ParseGpuModels(const std::string& list) {
  std::vector<GpuModel> models;
  for (const absl::string_view part :
       absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const auto known = std::find_if(
        GpuModels().begin(), GpuModels().end(),
        [&](const GpuModel& model) { return model.name == words.first; });
    if (known == GpuModels().end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no model \"", words.first,
          "\", expected 1B, 1.3B, 8B, 33B or 70B, perhaps with a type "
          "of weights as in 8B:int8"));
    }
    models.push_back(*known);
    if (!words.second.empty()) models.back().weights = words.second;
  }
  return models;
}

GpuBenchPlan TinyGpuBenchPlan() {
  GpuBenchPlan plan;
  plan.models = {{"tiny", "bf16", {64, 128, 2, 2, 1, 32, 512, 256}},
                 {"tiny", "int8", {64, 128, 2, 2, 1, 32, 512, 256}}};
  plan.decode_context = 20;
  plan.rows = {1, 4};
  plan.prompts = {24};
  plan.attention_contexts = {40};
  plan.attention_heads = 2;
  plan.attention_kv_heads = 1;
  plan.attention_head_dim = 32;
  plan.attention_prompt_rows = 8;
  plan.attention_bytes = size_t{1} << 16;
  plan.vocab = 2000;
  plan.repetitions = 1;
  plan.limits = {size_t{1} << 17, 3, 0, 1};
  return plan;
}

GpuBudget::GpuBudget(double seconds) : end_(kernels::Seconds() + seconds) {}

double GpuBudget::left() const { return end_ - kernels::Seconds(); }

absl::StatusOr<Json> RunGpuBench(const GpuBenchPlan& plan,
                                 const std::function<void(const Json&)>& save) {
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.device = plan.device;
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                         kernels::CreateBackend(options));
  backend->BindComputeThread();
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  std::printf("%s, %s\n", backend->description().c_str(),
              memory->ToString().c_str());
  GpuBench bench = {plan, {}, GpuBudget(plan.seconds)};
  const cudaError_t error =
      kernels::cuda::MeasureGpuLimits(plan.limits, &bench.limits);
  if (error != cudaSuccess) {
    return kernels::cuda::ToStatus(error, "the limits of the device");
  }
  PrintLimits(bench.limits);
  Json json = {{"device", backend->description()},
               {"numerics_id", backend->numerics_id()},
               {"memory_bytes", memory->total},
               {"free_bytes", memory->free},
               {"limits",
                {{"read_bytes_per_second", bench.limits.read},
                 {"copy_bytes_per_second", bench.limits.copy},
                 {"bf16_per_second", bench.limits.bf16()},
                 {"mma_per_second", bench.limits.mma},
                 {"cublas_per_second", bench.limits.cublas}}}};
  const auto add = [&](const char* list, Json part) {
    json[list].push_back(std::move(part));
    if (save != nullptr) save(json);
  };
  add("attention", BenchGpuAttention(bench, "f32"));
  add("attention", BenchGpuAttention(bench, "bf16"));
  json["small_kernels"] = BenchGpuRows(bench);
  json["sampling"] = BenchGpuSampling(bench);
  json["models"] = Json::array();
  for (const GpuModel& model : plan.models) {
    add("models", BenchGpuModel(bench, model));
  }
  bool complete = true;
  bool failed = false;
  bool invariant = true;
  Collect(json, &complete, &failed, &invariant);
  json["complete"] = complete;
  json["any_failed"] = failed;
  json["batch_invariant"] = invariant;
  PrintSummary(json);
  std::printf("summary: rows have the same bits in every batch: %s%s%s\n",
              invariant ? "yes" : "NO", failed ? "; something FAILED" : "",
              complete ? "" : "; the time was too short for some parts");
  return json;
}

}  // namespace nacre::model
