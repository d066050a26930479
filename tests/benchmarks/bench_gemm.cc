// Matrix product of the CPU backend against the read bandwidth of this machine:
// what share of it one row reaches, and what more rows cost.
//
//   bench_gemm [--cpus LIST] [--megabytes N] [--repetitions N]
//              [--only CASE]
//
// Times are medians over repetitions, in which the cases take turns, so that a
// busy moment of the machine falls on all alike.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/cpu_list.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::kernels {
namespace {

struct Flags {
  std::vector<int> cpus;
  int megabytes = 256;  // of weights; should exceed the last-level cache
  int repetitions = 15;
  std::string only;  // name of one case
};

struct Case {
  const char* name;
  std::string weights;
  DType dtype;
  int cols;
  int megabytes;
};

// Bytes of a weight, scales included, but where codes save some.
double BytesPerWeight(const Case& test) {
  if (test.weights == "int8") return 1 + 2.0 / 64;
  if (test.weights == "int4") return 0.5 + 2.0 / 32;
  return static_cast<double>(SizeOf(test.dtype));
}

std::unique_ptr<PackedMatrix> MakeWeights(Backend& backend, const Case& test,
                                          int* outputs) {
  *outputs = static_cast<int>((size_t{1} << 20) * test.megabytes /
                              (test.cols * BytesPerWeight(test)));
  std::vector<char> bytes(size_t{1} * *outputs * test.cols *
                          SizeOf(test.dtype));
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size() / SizeOf(test.dtype); ++i) {
    state = state * 1664525u + 1013904223u;
    const float value =
        static_cast<float>(static_cast<int32_t>(state)) * 1e-10f;
    if (test.dtype == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = ToBF16(value);
    }
  }
  const HostMatrix matrix = {test.dtype, bytes.data(), *outputs, test.cols};
  return ValueOrExit(backend.Pack({&matrix, 1}));
}

void RunCase(const Flags& flags, const Case& test) {
  BackendOptions options;
  options.cpus = flags.cpus;
  options.weights = test.weights;
  const auto made = ValueOrExit(CreateBackend(options));
  Backend& backend = *made;
  backend.BindComputeThread();
  const std::vector<int> row_counts = {1, 2, 4, 6, 8, 12, 16, 32, 128};
  int outputs = 0;
  const auto weights = MakeWeights(backend, test, &outputs);
  std::vector<float> x(row_counts.back() * test.cols, 0.25f);
  std::vector<float> y(size_t{1} * row_counts.back() * outputs);
  std::vector<std::vector<double>> times(row_counts.size());
  ThreadPool threads(flags.cpus);
  ReadBandwidth read(backend, &threads, (size_t{1} << 20) * flags.megabytes);
  // Small cases repeat until they take as long as a large one.
  const int inner = std::max(1, flags.megabytes / test.megabytes);
  for (int repetition = 0; repetition < flags.repetitions; ++repetition) {
    read.MeasureOnce();
    for (size_t c = 0; c < row_counts.size(); ++c) {
      if (row_counts[c] > 16 && repetition > 2) continue;
      const double start = Seconds();
      for (int i = 0; i < inner; ++i) {
        backend.MatMul(x.data(), row_counts[c], *weights, y.data());
      }
      times[c].push_back((Seconds() - start) / inner);
    }
  }
  const double bandwidth = read.bytes_per_second();
  std::printf("\n%s, %d MB as %d x %d; read bandwidth %.2f GB/s\n", test.name,
              test.megabytes, outputs, test.cols, bandwidth * 1e-9);
  std::printf("%6s %10s %8s %10s %9s %9s\n", "rows", "ms", "GB/s", "% of read",
              "to 1 row", "GMAC/s");
  const double bytes = static_cast<double>(weights->size_bytes());
  const double one_row = Median(times[0]);
  for (size_t c = 0; c < row_counts.size(); ++c) {
    const double seconds = Median(times[c]);
    std::printf("%6d %10.3f %8.2f %10.1f %9.3f %9.1f\n", row_counts[c],
                seconds * 1e3, bytes / seconds * 1e-9,
                100 * bytes / seconds / bandwidth, seconds / one_row,
                1.0 * outputs * test.cols * row_counts[c] / seconds * 1e-9);
  }
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--only") {
      flags.only = argv[i + 1];
    } else if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(argv[i + 1]));
    } else if (name == "--megabytes") {
      flags.megabytes = std::max(1, std::atoi(argv[i + 1]));
    } else if (name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 1;
    }
  }
  const std::vector<Case> cases = {
      {"bf16", "auto", DType::kBF16, 2048, flags.megabytes},
      {"bf16a16", "bf16a16", DType::kBF16, 2048, flags.megabytes},
      {"f32", "auto", DType::kF32, 2048, flags.megabytes},
      {"int8", "int8", DType::kF32, 2048, flags.megabytes},
      {"int4", "int4", DType::kF32, 2048, flags.megabytes},
      {"bf16, long rows", "auto", DType::kBF16, 8192, flags.megabytes},
      {"bf16, few inputs", "auto", DType::kBF16, 256, flags.megabytes},
      {"f32, few inputs", "auto", DType::kF32, 256, flags.megabytes},
      {"bf16, in cache", "auto", DType::kBF16, 256, 1},
  };
  for (const Case& test : cases) {
    if (flags.only.empty() || flags.only == test.name) RunCase(flags, test);
  }
  return 0;
}

}  // namespace
}  // namespace nacre::kernels

int main(int argc, char** argv) { return nacre::kernels::Main(argc, argv); }
