// The parts of bench_gpu, which prints tables and collects JSON: decoding and
// prompts of whole models, attention, small kernels, drawing tokens; each
// against what the same GPU does at most in the same run. Works on the emulated
// device, too, where only what is counted and compared means something.
//
// Single-threaded.

#ifndef TESTS_BENCHMARKS_GPU_BENCH_H_
#define TESTS_BENCHMARKS_GPU_BENCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json.h"
#include "kernels/backend_factory.h"
#include "tests/benchmarks/gpu_limits.h"
#include "tests/benchmarks/random_llama.h"

namespace nacre::model {

struct GpuModel {
  std::string name;
  std::string weights;  // BackendOptions::weights
  LlamaShape shape;
};

// 1B, 1.3B, 8B, 33B, 70B; shapes of real checkpoints.
const std::vector<GpuModel>& GpuModels();
// "8B", or with other weights "8B:int8". INVALID_ARGUMENT for no such model.
absl::StatusOr<std::vector<GpuModel>> ParseGpuModels(const std::string& list);

struct GpuBenchPlan {
  std::vector<GpuModel> models = GpuModels();
  int device = 0;
  std::string kv_type = "auto";      // the models' BackendOptions::kv_type
  bool graphs = true;                // as of BackendOptions
  bool overlap = true;               // likewise
  bool fusion = true;                // likewise
  bool persistent = false;           // likewise
  bool warpgroup_attention = false;  // likewise, of the models
  // Likewise, of models with bf16 weights: with "cublas" prompts are measured
  // both ways.
  std::string prefill = kernels::kOwnPrefill;
  std::string cublas_library;  // likewise
  int decode_context = 512;
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
  std::vector<int> prompts = {512, 2048};
  std::vector<int> attention_contexts = {1024, 4096, 16384, 65536, 131072};
  int attention_heads = 32;  // of an 8B model
  int attention_kv_heads = 8;
  int attention_head_dim = 128;
  int attention_prompt_rows = 512;           // a chunk of a prompt; 0: none
  size_t attention_bytes = size_t{1} << 30;  // of KV, more than any cache
  int vocab = 128256;
  int repetitions = 7;
  double seconds = 200;  // what is not begun by then is left out
  nacre::kernels::cuda::GpuLimitsPlan limits;
};

// Everything at sizes that take the emulated device seconds.
GpuBenchPlan TinyGpuBenchPlan();

// The whole run. A part that the device has no room for has `skipped`, one that
// there was no time for `left_out`, one that went wrong `failed`: the reason.
// In the result, `complete` says that nothing was left out, `any_failed` that
// something failed, `batch_invariant` that rows had the same bits in every
// batch. Errors: CreateBackend's (FAILED_PRECONDITION without a GPU), CUDA's.
// Calls `save`, if there is one, after each part, with what there is so far.
absl::StatusOr<nlohmann::ordered_json> RunGpuBench(
    const GpuBenchPlan& plan,
    const std::function<void(const nlohmann::ordered_json&)>& save = nullptr);

// --- One part each -----------------------------------------------------------

// The time there is.
class GpuBudget {
 public:
  explicit GpuBudget(double seconds);
  double left() const;

 private:
  double end_;
};

struct GpuBench {
  const GpuBenchPlan& plan;
  kernels::cuda::GpuLimits limits;
  GpuBudget budget;
};

nlohmann::ordered_json BenchGpuModel(const GpuBench& bench,
                                     const GpuModel& model);
// Prompts over bf16 are measured by warpgroups, too, where the device has them.
// Other bits are a failure.
nlohmann::ordered_json BenchGpuAttention(const GpuBench& bench,
                                         const std::string& kv_type);
nlohmann::ordered_json BenchGpuSampling(const GpuBench& bench);
nlohmann::ordered_json BenchGpuRows(const GpuBench& bench);

}  // namespace nacre::model

#endif  // TESTS_BENCHMARKS_GPU_BENCH_H_
