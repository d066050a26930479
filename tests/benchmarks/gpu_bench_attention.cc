#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
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

constexpr int kBlockSize = 16;

// Rows of some sessions after a context.
struct Batch {
  int sessions;
  int rows;
};

// One layer after another, so many that no cache holds them; each has the
// blocks of some sessions, scattered.
class Cache {
 public:
  static absl::StatusOr<std::unique_ptr<Cache>> Create(
      const GpuBenchPlan& plan, kernels::Backend* backend, int context,
      int sessions, int rows) {
    auto cache = std::make_unique<Cache>();
    cache->context_ = context;
    const int blocks_each = (context + rows - 1) / kBlockSize + 1;
    kernels::KvLayer layer;
    layer.num_blocks = blocks_each * sessions;
    layer.num_kv_heads = plan.attention_kv_heads;
    layer.block_size = kBlockSize;
    layer.head_dim = plan.attention_head_dim;
    layer.type = backend->kv_type();
    const size_t elements = size_t{2} * kBlockSize *
                            static_cast<size_t>(layer.num_blocks) *
                            static_cast<size_t>(layer.num_kv_heads) *
                            static_cast<size_t>(layer.head_dim);
    const size_t bytes = elements * kernels::SizeOf(layer.type);
    // Pairs of bf16 of magnitude 1/16 to 1/8 are also float32 of that size.
    std::vector<uint32_t> random(bytes / sizeof(uint32_t));
    uint32_t state = 1;
    for (uint32_t& word : random) {
      state = state * 1664525u + 1013904223u;
      word = (state & 0x81ff81ffu) | 0x3d803d80u;
    }
    const size_t layers =
        std::max<size_t>(1, (plan.attention_bytes + bytes - 1) / bytes);
    for (size_t i = 0; i < layers; ++i) {
      NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                             backend->Allocate(bytes));
      backend->CopyFromHost(random.data(), bytes, buffer->data());
      layer.blocks = buffer->data();
      cache->layers_.push_back(layer);
      cache->buffers_.push_back(std::move(buffer));
    }
    std::vector<int32_t> blocks(static_cast<size_t>(layer.num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    for (int i = 0; i < sessions; ++i) {
      cache->tables_.emplace_back(blocks.begin() + i * blocks_each,
                                  blocks.begin() + (i + 1) * blocks_each);
    }
    return cache;
  }

  const std::vector<kernels::KvLayer>& layers() const { return layers_; }

  std::vector<kernels::RowContext> Rows(const Batch& batch) const {
    std::vector<kernels::RowContext> rows;
    for (int session = 0; session < batch.sessions; ++session) {
      for (int row = 0; row < batch.rows; ++row) {
        rows.push_back(
            {tables_[static_cast<size_t>(session)].data(), context_ + row});
      }
    }
    return rows;
  }

 private:
  int context_ = 0;
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
  std::vector<kernels::KvLayer> layers_;
  std::vector<std::vector<int32_t>> tables_;
};

// What is read once at least.
double KvBytes(const GpuBenchPlan& plan, kernels::DType type, int context,
               const Batch& batch) {
  return 2.0 * batch.sessions * (context + batch.rows) *
         plan.attention_kv_heads * plan.attention_head_dim *
         static_cast<double>(kernels::SizeOf(type));
}

double Operations(const GpuBenchPlan& plan, int context, const Batch& batch) {
  return 4.0 * batch.sessions * batch.rows * (context + 0.5 * batch.rows) *
         plan.attention_heads * plan.attention_head_dim;
}

// A prompt's rows by warpgroups, beside `expected`, what they are without.
absl::Status MeasureWarpgroups(const GpuBenchPlan& plan,
                               kernels::Backend* backend, const Cache& cache,
                               const Batch& batch, int context, const float* q,
                               const std::vector<float>& expected, Json* json) {
  const int width = plan.attention_heads * plan.attention_head_dim;
  const std::vector<kernels::RowContext> rows = cache.Rows(batch);
  const size_t bytes = expected.size() * sizeof(float);
  NACRE_ASSIGN_OR_RETURN(const auto out, backend->Allocate(bytes));
  std::vector<double> times;
  for (int i = 0; i <= plan.repetitions; ++i) {
    NACRE_RETURN_IF_ERROR(backend->Synchronize());
    const double start = Seconds();
    backend->Attention(q, width, plan.attention_heads, 0.1f, rows,
                       cache.layers()[0], out->f32());
    NACRE_RETURN_IF_ERROR(backend->Synchronize());
    if (i > 0) times.push_back(Seconds() - start);
  }
  std::vector<float> actual(expected.size());
  backend->CopyToHost(out->data(), bytes, actual.data());
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  const double seconds = Median(times);
  const double operations = Operations(plan, context, batch) / seconds;
  std::printf("%8d %8d %6d %10.1f %8s %10s %9.2f  by warpgroups\n", context,
              batch.sessions, batch.rows, seconds * 1e6, "", "",
              operations * 1e-12);
  const bool same = std::memcmp(actual.data(), expected.data(), bytes) == 0;
  (*json)["warpgroups"] = {{"seconds", seconds},
                           {"operations_per_second", operations},
                           {"same_bits", same}};
  if (same) return absl::OkStatus();
  return absl::InternalError("attention by warpgroups has other bits");
}

// `wide`: attends to prompts by warpgroups; null: there is none.
absl::Status MeasureContext(const GpuBench& bench, kernels::Backend* backend,
                            kernels::Backend* wide, int context, Json* json) {
  const GpuBenchPlan& plan = bench.plan;
  // Of long contexts a few sessions are enough, and more than fit.
  const int sessions = context > 8192 ? 2 : 16;
  // Those of one session are apart: the second would find the cache warm.
  std::vector<Batch> batches = {{1, 1}, {sessions, 1}, {1, 8}};
  if (plan.attention_prompt_rows > 0) {
    batches.push_back({1, plan.attention_prompt_rows});
  }
  const int most_rows = std::max(8, plan.attention_prompt_rows);
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Cache> cache,
      Cache::Create(plan, backend, context, sessions, most_rows));
  const int width = plan.attention_heads * plan.attention_head_dim;
  const size_t count = static_cast<size_t>(std::max(sessions, most_rows)) *
                       static_cast<size_t>(width);
  std::vector<float> host(count);
  for (size_t i = 0; i < count; ++i) {
    host[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  }
  NACRE_ASSIGN_OR_RETURN(const auto q,
                         backend->Allocate(count * sizeof(float)));
  NACRE_ASSIGN_OR_RETURN(const auto out,
                         backend->Allocate(count * sizeof(float)));
  backend->CopyFromHost(host.data(), count * sizeof(float), q->data());
  std::vector<std::vector<double>> times(batches.size());
  for (int i = 0; i <= plan.repetitions; ++i) {
    for (size_t b = 0; b < batches.size(); ++b) {
      const bool is_prompt = batches[b].rows > 8;
      const std::vector<kernels::RowContext> rows = cache->Rows(batches[b]);
      // Of a prompt's rows one layer takes long enough.
      const size_t layers = is_prompt ? 1 : cache->layers().size();
      NACRE_RETURN_IF_ERROR(backend->Synchronize());
      const double start = Seconds();
      for (size_t layer = 0; layer < layers; ++layer) {
        backend->Attention(q->f32(), width, plan.attention_heads, 0.1f, rows,
                           cache->layers()[layer], out->f32());
      }
      NACRE_RETURN_IF_ERROR(backend->Synchronize());
      if (i > 0) {
        times[b].push_back((Seconds() - start) / static_cast<double>(layers));
      }
    }
  }
  for (size_t b = 0; b < batches.size(); ++b) {
    const double seconds = Median(times[b]);
    const double rate =
        KvBytes(plan, backend->kv_type(), context, batches[b]) / seconds;
    const double operations = Operations(plan, context, batches[b]) / seconds;
    std::printf("%8d %8d %6d %10.1f %8.0f %10.1f %9.2f\n", context,
                batches[b].sessions, batches[b].rows, seconds * 1e6,
                rate * 1e-9, 100 * rate / bench.limits.read,
                operations * 1e-12);
    (*json)["cases"].push_back({{"context", context},
                                {"sessions", batches[b].sessions},
                                {"rows", batches[b].rows},
                                {"seconds", seconds},
                                {"of_read_bandwidth", rate / bench.limits.read},
                                {"operations_per_second", operations}});
  }
  if (wide == nullptr || plan.attention_prompt_rows == 0) {
    return absl::OkStatus();
  }
  // The last batch was the last to write.
  std::vector<float> expected(static_cast<size_t>(plan.attention_prompt_rows) *
                              static_cast<size_t>(width));
  backend->CopyToHost(out->data(), expected.size() * sizeof(float),
                      expected.data());
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  return MeasureWarpgroups(plan, wide, *cache, batches.back(), context,
                           q->f32(), expected, &(*json)["cases"].back());
}

absl::Status MeasureAttention(const GpuBench& bench, const std::string& kv_type,
                              Json* json) {
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.device = bench.plan.device;
  options.kv_type = kv_type;
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                         kernels::CreateBackend(options));
  options.warpgroup_attention = true;
  // Null with f32, and on devices without.
  const auto wide = kernels::CreateBackend(options);
  backend->BindComputeThread();
  std::printf("%8s %8s %6s %10s %8s %10s %9s\n", "context", "sessions", "rows",
              "us", "GB/s", "% of read", "TFLOP/s");
  for (const int context : bench.plan.attention_contexts) {
    if (bench.budget.left() < 5) {
      (*json)["left_out"] =
          "no time for contexts from " + std::to_string(context) + " on";
      std::printf("left out: no time\n");
      break;
    }
    NACRE_RETURN_IF_ERROR(MeasureContext(bench, backend.get(),
                                         wide.ok() ? wide->get() : nullptr,
                                         context, json));
  }
  return absl::OkStatus();
}

}  // namespace

Json BenchGpuAttention(const GpuBench& bench, const std::string& kv_type) {
  std::printf(
      "\n== attention of one layer: %d query heads, %d KV heads of %d, "
      "%s KV\n",
      bench.plan.attention_heads, bench.plan.attention_kv_heads,
      bench.plan.attention_head_dim, kv_type.c_str());
  std::fflush(stdout);
  Json json = {{"kv_type", kv_type},
               {"heads", bench.plan.attention_heads},
               {"kv_heads", bench.plan.attention_kv_heads},
               {"head_dim", bench.plan.attention_head_dim}};
  const absl::Status status = MeasureAttention(bench, kv_type, &json);
  if (!status.ok()) {
    json["failed"] = std::string(status.message());
    std::printf("failed: %s\n", std::string(status.message()).c_str());
  }
  return json;
}

}  // namespace nacre::model
