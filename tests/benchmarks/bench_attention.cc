// Attention of the CPU backend against its floor: what a few rows after a long
// context cost, by shape of the heads, by context, and by session.
//
//   bench_attention [--kv-type TYPE] [--cpus LIST] [--contexts LIST]
//                   [--rows LIST] [--megabytes N] [--repetitions N]
//                   [--only CASE] [--json FILE]
//
// A step is the attention of as many layers as fill --megabytes, so that keys
// and values come from memory and not from a cache. The floor is the longer of
// reading them once for all rows and of the multiply-adds, at the limits that
// this machine shows in the same run. Times are medians over repetitions, in
// which the row counts take turns, so that a busy moment of the machine falls
// on all alike.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/cpu_list.h"
#include "common/json.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/kv_address.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::kernels {
namespace {

constexpr int kBlockSize = 16;  // as model/kv_pool.h has it

struct Flags {
  std::string kv_type = "f32";
  std::vector<int> cpus = {0};
  std::vector<int> contexts = {1024, 4096, 16384, 32768};
  std::vector<int> rows = {1, 2, 4, 8, 16};
  int megabytes = 256;  // of keys and values; should exceed the caches
  int repetitions = 7;
  std::string only;  // name of one case
  std::string json;
};

struct Case {
  const char* name;
  int heads;
  int kv_heads;
  int head_dim;
  std::vector<int> sessions;
  int max_context;  // longer ones say nothing new
};

struct Batch {
  int sessions;
  int rows;  // of each session
};

// Keys and values of some sessions in some layers; blocks lie scattered.
class Cache {
 public:
  Cache(Backend& backend, const Case& test, int sessions, int context,
        int max_rows, size_t bytes)
      : context_(context) {
    const int blocks_each = (context + max_rows - 1) / kBlockSize + 1;
    KvLayer layer;
    layer.num_blocks = blocks_each * sessions;
    layer.num_kv_heads = test.kv_heads;
    layer.block_size = kBlockSize;
    layer.head_dim = test.head_dim;
    layer.type = backend.kv_type();
    const size_t elements =
        size_t{2} * layer.num_blocks * test.kv_heads * KvHalfElements(layer);
    const size_t layer_bytes = elements * SizeOf(layer.type);
    const size_t layers = (bytes + layer_bytes - 1) / layer_bytes;
    std::vector<char> random(layer_bytes);
    uint32_t state = 1;
    for (size_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      const float value =
          static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      if (layer.type == DType::kInt8) {
        random[i] = static_cast<char>(value * 127);
      } else if (layer.type == DType::kBF16) {
        reinterpret_cast<uint16_t*>(random.data())[i] = ToBF16(value);
      } else {
        reinterpret_cast<float*>(random.data())[i] = value;
      }
    }
    if (layer.type == DType::kInt8) SetScales(layer, random.data());
    for (size_t i = 0; i < layers; ++i) {
      buffers_.push_back(ValueOrExit(backend.Allocate(layer_bytes)));
      std::memcpy(buffers_.back()->data(), random.data(), layer_bytes);
      layer.blocks = buffers_.back()->data();
      layers_.push_back(layer);
    }
    std::vector<int32_t> blocks(layer.num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    for (int i = 0; i < sessions; ++i) {
      tables_.emplace_back(blocks.begin() + i * blocks_each,
                           blocks.begin() + (i + 1) * blocks_each);
    }
  }

  const std::vector<KvLayer>& layers() const { return layers_; }

  // The rows of a step, those of a session together.
  std::vector<RowContext> Rows(const Batch& batch) const {
    std::vector<RowContext> rows;
    for (int session = 0; session < batch.sessions; ++session) {
      for (int row = 0; row < batch.rows; ++row) {
        rows.push_back({tables_[session].data(), context_ + row});
      }
    }
    return rows;
  }

 private:
  static void SetScales(const KvLayer& layer, char* blocks) {
    constexpr float kScale = 1.0f / 127;
    for (KvSlot slot = 0; slot < layer.num_blocks * kBlockSize; ++slot) {
      for (int head = 0; head < layer.num_kv_heads; ++head) {
        char* const scale = blocks + KeyScaleIndex(layer, slot, head);
        std::memcpy(scale, &kScale, sizeof(kScale));
        std::memcpy(scale + KvHalfElements(layer), &kScale, sizeof(kScale));
      }
    }
  }

  int context_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<KvLayer> layers_;
  std::vector<std::vector<int32_t>> tables_;
};

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags), backend_(MakeBackend(flags)), threads_(flags.cpus) {
    backend_->BindComputeThread();
    json_ = {{"backend", backend_->numerics_id()},
             {"threads", flags.cpus.size()}};
  }

  void Run(const Case& test, int context) {
    const std::vector<Batch> batches = Batches(test);
    const int max_sessions = batches.back().sessions;
    const int max_rows =
        *std::max_element(flags_.rows.begin(), flags_.rows.end());
    const Cache cache(*backend_, test, max_sessions, context, max_rows,
                      size_t{1} * flags_.megabytes << 20);
    const int width = test.heads * test.head_dim;
    std::vector<float> q(size_t{1} * max_sessions * max_rows * width);
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
    }
    std::vector<float> out(q.size());
    // A bandwidth of its own for each table: other tenants move it.
    ReadBandwidth read(*backend_, &threads_, size_t{256} << 20);
    std::vector<double> peaks;
    std::vector<std::vector<double>> times(batches.size());
    for (int repetition = 0; repetition <= flags_.repetitions; ++repetition) {
      read.MeasureOnce();
      if (repetition < 3) peaks.push_back(MultiplyAddPeak(&threads_, 1));
      for (size_t b = 0; b < batches.size(); ++b) {
        const std::vector<RowContext> rows = cache.Rows(batches[b]);
        const double start = Seconds();
        for (const KvLayer& layer : cache.layers()) {
          backend_->Attention(q.data(), width, test.heads, 0.1f, rows, layer,
                              out.data());
        }
        if (repetition == 0) continue;  // allocates
        times[b].push_back(Seconds() - start);
      }
    }
    Print(test, context, static_cast<int>(cache.layers().size()), batches,
          times, read.bytes_per_second(), Median(peaks));
  }

  const nlohmann::json& json() const { return json_; }

 private:
  static std::unique_ptr<Backend> MakeBackend(const Flags& flags) {
    BackendOptions options;
    options.cpus = flags.cpus;
    options.kv_type = flags.kv_type;
    return ValueOrExit(CreateBackend(options));
  }

  std::vector<Batch> Batches(const Case& test) const {
    std::vector<Batch> batches;
    for (const int sessions : test.sessions) {
      for (const int rows : flags_.rows) batches.push_back({sessions, rows});
    }
    return batches;
  }

  void Print(const Case& test, int context, int layers,
             const std::vector<Batch>& batches,
             const std::vector<std::vector<double>>& times, double bandwidth,
             double peak) {
    std::printf(
        "\n%s %s: %d query heads, %d KV heads of %d, after %d, %d layers; "
        "read "
        "%.1f GB/s, %.1f G multiply-adds/s\n",
        test.name, flags_.kv_type.c_str(), test.heads, test.kv_heads,
        test.head_dim, context, layers, bandwidth * 1e-9, peak * 1e-9);
    std::printf("%8s %6s %9s %9s %7s %10s %9s %8s %9s %10s\n", "sessions",
                "rows", "MB", "ms", "GB/s", "% of read", "to 1 row", "GMAC/s",
                "floor ms", "% of floor");
    double one_row = 0;
    for (size_t b = 0; b < batches.size(); ++b) {
      const Batch& batch = batches[b];
      const double seconds = Median(times[b]);
      if (batch.rows == flags_.rows[0]) one_row = seconds;
      // The last row sees what all see; the mean row half of their number less.
      const double positions = context + (batch.rows + 1) / 2.0;
      const double bytes = 2.0 * SizeOf(backend_->kv_type()) * layers *
                           batch.sessions * test.kv_heads * test.head_dim *
                           (context + batch.rows);
      const double macs = 2.0 * layers * batch.sessions * batch.rows *
                          positions * test.heads * test.head_dim;
      const double floor = std::max(bytes / bandwidth, macs / peak);
      std::printf("%8d %6d %9.1f %9.3f %7.1f %10.1f %9.3f %8.1f %9.3f %10.1f\n",
                  batch.sessions, batch.rows, bytes * 1e-6, seconds * 1e3,
                  bytes / seconds * 1e-9, 100 * bytes / seconds / bandwidth,
                  seconds / one_row, macs / seconds * 1e-9, floor * 1e3,
                  100 * floor / seconds);
      json_["steps"].push_back({{"case", test.name},
                                {"context", context},
                                {"layers", layers},
                                {"sessions", batch.sessions},
                                {"rows", batch.rows},
                                {"bytes", bytes},
                                {"multiply_adds", macs},
                                {"seconds", seconds},
                                {"to_one_row", seconds / one_row},
                                {"read_bytes_per_second", bandwidth},
                                {"multiply_adds_per_second_peak", peak},
                                {"floor_seconds", floor}});
    }
  }

  const Flags& flags_;
  std::unique_ptr<Backend> backend_;
  ThreadPool threads_;
  nlohmann::json json_;
};

// "1024,4096"
std::vector<int> ParseNumbers(const std::string& text) {
  std::vector<int> numbers;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(item, &number) || number < 1) {
      std::fprintf(stderr, "\"%s\" is no list like 1024,4096\n", text.c_str());
      std::exit(1);
    }
    numbers.push_back(number);
  }
  return numbers;
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--kv-type") {
      flags.kv_type = value;
    } else if (name == "--only") {
      flags.only = value;
    } else if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(value));
    } else if (name == "--contexts") {
      flags.contexts = ParseNumbers(value);
    } else if (name == "--rows") {
      flags.rows = ParseNumbers(value);
    } else if (name == "--megabytes") {
      flags.megabytes = std::max(1, std::atoi(value));
    } else if (name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(value));
    } else if (name == "--json") {
      flags.json = value;
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(1);
    }
  }
  return flags;
}

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  const std::vector<Case> cases = {
      {"gqa128", 32, 8, 128, {1}, 1 << 20},
      {"gqa64", 32, 8, 64, {1}, 1 << 20},
      {"mha128", 8, 8, 128, {1}, 1 << 20},
      {"mha64", 8, 8, 64, {1}, 1 << 20},
      {"sessions", 32, 8, 128, {1, 2, 4, 8}, 4096},
  };
  Bench bench(flags);
  for (const Case& test : cases) {
    if (!flags.only.empty() && flags.only != test.name) continue;
    for (const int context : flags.contexts) {
      if (context <= test.max_context) bench.Run(test, context);
    }
  }
  if (!flags.json.empty()) {
    std::FILE* file = std::fopen(flags.json.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "cannot write %s\n", flags.json.c_str());
      return 1;
    }
    std::fprintf(file, "%s\n", bench.json().dump(2).c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace nacre::kernels

int main(int argc, char** argv) { return nacre::kernels::Main(argc, argv); }
