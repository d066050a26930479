// A GPU's decoding, prompts, attention and drawing of tokens against what the
// same GPU does at most.
//
//   bench_gpu [--models LIST] [--device N] [--kv-type T] [--repetitions N]
//             [--seconds BUDGET] [--json FILE] [--no-graphs] [--no-overlap]
//             [--no-fusion] [--persistent] [--warpgroup-attention]
//             [--prefill own|cublas] [--tiny] [--facts]
//
// --models is as in 1B,8B,70B:int8. What is not begun within the seconds is
// left out. The file is written anew after each part. --prefill cublas:
// prompts of bf16 models by our kernels, and by cublasLt. --no-graphs,
// --no-overlap, --no-fusion: as if steps were no CUDA graphs, kernels waited
// for each other's ends, and none did what another one could do after it.
// --persistent, of bf16 models: steps of one or few rows are one kernel where
// they can be, not a graph. --warpgroup-attention: prompts of models with bf16
// keys and values as the workers' flag has them; attention alone is measured
// both ways where the device can.
// --tiny: sizes that only show that it runs. --facts: only what device there
// is. Exit codes: 0; 1 when something failed, or a row had other bits in
// another batch; 77 where there is no GPU.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "kernels/cuda/device.h"
#include "tests/benchmarks/gpu_bench.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

constexpr int kSkipped = 77;

struct Flags {
  GpuBenchPlan plan;
  std::string json;
  bool facts = false;
};

[[noreturn]] void Refuse(const std::string& flag, const char* expected) {
  std::fprintf(stderr, "bench_gpu: %s: %s\n", flag.c_str(), expected);
  std::exit(1);
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--facts") {
      flags.facts = true;
      continue;
    }
    if (name == "--no-graphs") {
      flags.plan.graphs = false;
      continue;
    }
    if (name == "--no-overlap") {
      flags.plan.overlap = false;
      continue;
    }
    if (name == "--no-fusion") {
      flags.plan.fusion = false;
      continue;
    }
    if (name == "--persistent") {
      flags.plan.persistent = true;
      continue;
    }
    if (name == "--warpgroup-attention") {
      flags.plan.warpgroup_attention = true;
      continue;
    }
    if (name == "--tiny") {
      flags.plan = TinyGpuBenchPlan();
      continue;
    }
    if (i + 1 == argc) Refuse(name, "unknown, or its value is missing");
    const std::string value = argv[++i];
    if (name == "--models") {
      flags.plan.models = kernels::ValueOrExit(ParseGpuModels(value));
    } else if (name == "--device") {
      if (!absl::SimpleAtoi(value, &flags.plan.device)) {
        Refuse(name, "not a number");
      }
    } else if (name == "--kv-type") {
      flags.plan.kv_type = value;
    } else if (name == "--prefill") {
      if (value != kernels::kOwnPrefill && value != kernels::kCublasPrefill) {
        Refuse(name, "not own and not cublas");
      }
      flags.plan.prefill = value;
    } else if (name == "--repetitions") {
      if (!absl::SimpleAtoi(value, &flags.plan.repetitions) ||
          flags.plan.repetitions < 1) {
        Refuse(name, "not a number of 1 or more");
      }
    } else if (name == "--seconds") {
      if (!absl::SimpleAtod(value, &flags.plan.seconds)) {
        Refuse(name, "not a number");
      }
    } else if (name == "--json") {
      flags.json = value;
    } else {
      Refuse(name, "unknown flag");
    }
  }
  if (flags.plan.persistent && !flags.plan.graphs) {
    Refuse("--persistent", "not with --no-graphs");
  }
  return flags;
}

// Only what device there is.
int PrintFacts(int index) {
  const auto device = kernels::cuda::Device::Open(index);
  if (!device.ok()) {
    std::printf("%s\n", std::string(device.status().message()).c_str());
    return kSkipped;
  }
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const kernels::DeviceMemory memory = (*device)->Memory();
  const nlohmann::ordered_json json = {{"device", (*device)->description()},
                                       {"memory_bytes", memory.total},
                                       {"free_bytes", memory.free},
                                       {"driver_cuda_version", driver},
                                       {"runtime_cuda_version", runtime}};
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

void Save(const nlohmann::ordered_json& json, const std::string& name) {
  std::FILE* const file = std::fopen(name.c_str(), "w");
  if (file == nullptr) Refuse(name, "cannot be written");
  std::fprintf(file, "%s\n", json.dump(1).c_str());
  if (std::fclose(file) != 0) Refuse(name, "not written whole");
}

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  if (flags.facts) return PrintFacts(flags.plan.device);
  const auto save = [&](const nlohmann::ordered_json& json) {
    if (!flags.json.empty()) Save(json, flags.json);
  };
  const auto json = RunGpuBench(flags.plan, save);
  if (absl::IsFailedPrecondition(json.status())) {
    std::printf("skipped: %s\n", std::string(json.status().message()).c_str());
    return kSkipped;
  }
  if (!json.ok()) kernels::Exit(json.status());
  save(*json);
  return (*json)["any_failed"] == true || (*json)["batch_invariant"] != true;
}

}  // namespace
}  // namespace nacre::model

int main(int argc, char** argv) { return nacre::model::Main(argc, argv); }
