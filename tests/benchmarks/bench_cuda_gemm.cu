// Matrix product on a GPU against what the same GPU does in the same run: with
// few rows the bandwidth with which it reads memory, with many the arithmetic.
//
//   bench_cuda_gemm [repetitions [JSON file]]
//
// A case runs over so many matrices in turn that none is in the cache when its
// turn comes again. Times are medians over repetitions, in which the cases take
// turns; launches included, as they come on one stream. Bytes are those of the
// weights, read once.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda {
namespace {

constexpr size_t kBytes = size_t{2} << 30;  // read by a repetition of a case
constexpr double kOperations = 2e13;        // but no more arithmetic than this
constexpr int kWarmups = 2;
constexpr int kReadThreads = 512;
constexpr int kReadBlocks = 4;  // of a multiprocessor

struct Shape {
  const char* model;
  int outputs;
  int inputs;
};
// What a token goes through of a Llama 3 of 1B, 8B and 70B (but for the head)
// and of a Llama of 33B.
constexpr Shape kShapes[] = {
    {"1B", 3072, 2048},   {"1B", 2048, 2048},   {"1B", 16384, 2048},
    {"1B", 2048, 8192},   {"1B", 128256, 2048}, {"70B", 10240, 8192},
    {"70B", 8192, 8192},  {"70B", 57344, 8192}, {"70B", 8192, 28672},
    {"8B", 6144, 4096},   {"8B", 4096, 4096},   {"8B", 28672, 4096},
    {"8B", 4096, 14336},  {"8B", 128256, 4096}, {"33B", 19968, 6656},
    {"33B", 6656, 6656},  {"33B", 35840, 6656}, {"33B", 6656, 17920},
    {"33B", 32000, 6656},
};
constexpr int kRowCounts[] = {1, 2, 4, 8, 16, 32, 64, 512};
constexpr int kMostRows = 512;
constexpr struct {
  GemmFormat format;
  const char* name;
} kFormats[] = {{GemmFormat::kBf16, "bf16"},
                {GemmFormat::kInt8, "int8"},
                {GemmFormat::kFp8, "fp8"},
                {GemmFormat::kInt4, "int4"}};

// Numbers in each format, none of them NaN: what is multiplied decides how much
// power a GPU draws.
__global__ void FillKernel(uint16_t* values, size_t count, GemmFormat format,
                           uint64_t seed) {
  // In values; of the other formats all are weights.
  const bool scaled =
      format == GemmFormat::kInt8 || format == GemmFormat::kInt4;
  const int block = PackedBlockBytes(format) / 2;
  const int weights =
      (format == GemmFormat::kInt4 ? kInt4WeightBytes : kBlockWeightBytes) / 2;
  const size_t step = size_t{1} * gridDim.x * blockDim.x;
  for (size_t i = size_t{1} * blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const auto bits = static_cast<uint16_t>(RandomWord(seed, i) >> 20);
    if (format == GemmFormat::kBf16 || (scaled && i % block >= weights)) {
      values[i] = RandomBf16(seed, i);
    } else {
      values[i] = format == GemmFormat::kFp8 ? bits & 0xbfbf : bits;
    }
  }
}

// Reads everything once, several 16-byte loads of a thread at a time.
__global__ void __launch_bounds__(kReadThreads)
    ReadKernel(const uint4* values, size_t count, uint32_t* sink) {
  constexpr int kLoads = 8;
  uint32_t sum = 0;
  const size_t step = size_t{gridDim.x} * kReadThreads * kLoads;
  for (size_t base = size_t{blockIdx.x} * kReadThreads * kLoads; base < count;
       base += step) {
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = __ldcs(values + base + i * kReadThreads + threadIdx.x);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      sum ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (sum == 0x12345678) *sink = sum;  // hardly ever, but it must be computed
}

// Milliseconds of what `work` queues.
double Time(const std::function<void()>& work) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    Check(cudaEventCreate(&begin), "cudaEventCreate");
    Check(cudaEventCreate(&end), "cudaEventCreate");
  }
  Check(cudaEventRecord(begin), "cudaEventRecord");
  work();
  Check(cudaGetLastError(), "launch");
  Check(cudaEventRecord(end), "cudaEventRecord");
  Check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "time");
  return milliseconds;
}

struct Measured {
  std::function<void()> work;
  double bytes;
  std::vector<double> milliseconds = {};

  double Median() const {
    std::vector<double> sorted = milliseconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double GigabytesPerSecond() const { return bytes / Median() / 1e6; }
};

void TakeTurns(std::vector<Measured>& cases, int repetitions) {
  for (int i = 0; i < kWarmups + repetitions; ++i) {
    for (Measured& measured : cases) {
      const double milliseconds = Time(measured.work);
      if (i >= kWarmups) measured.milliseconds.push_back(milliseconds);
    }
  }
}

// Memory that all cases share, as the layers of a model share it.
struct Memory {
  DeviceBuffer weights{kBytes};
  DeviceBuffer activations;
  DeviceBuffer results;
  DeviceBuffer scales;
  DeviceBuffer workspace;
  DeviceBuffer counters{sizeof(unsigned) * kGemmCounters};
};

Memory Allocate() {
  size_t inputs = 0, outputs = 0, workspace = 16;
  for (const Shape& shape : kShapes) {
    inputs = std::max<size_t>(inputs, shape.inputs);
    outputs = std::max<size_t>(outputs, shape.outputs);
    workspace =
        std::max(workspace, GemmWorkspaceBytes(GemmFormat::kInt8, shape.outputs,
                                               shape.inputs, kMostRows));
  }
  return {.activations = DeviceBuffer(2 * kMostRows * inputs),
          .results = DeviceBuffer(sizeof(float) * kMostRows * outputs),
          .scales = DeviceBuffer(sizeof(float) * outputs),
          .workspace = DeviceBuffer(workspace)};
}

struct Product {
  GemmFormat format;
  Shape shape;
  int rows;

  size_t Bytes() const {
    return GemmWeightBytes(format, shape.outputs, shape.inputs);
  }
  double Operations() const {
    return 2.0 * rows * shape.outputs * shape.inputs;
  }
  // Products of a repetition.
  int Count() const {
    const double most = kOperations / Operations();
    return std::max(1,
                    static_cast<int>(std::min(1.0 * (kBytes / Bytes()), most)));
  }
  // Matrices of one shape, back to back.
  void Run(const Memory& memory, bool overlap) const {
    GemmArgs args;
    args.format = format;
    if (format == GemmFormat::kFp8) args.scales = memory.scales.as<float>();
    args.activations = memory.activations.as();
    args.results = memory.results.as<float>();
    args.workspace = memory.workspace.as();
    args.counters = memory.counters.as<unsigned>();
    args.outputs = shape.outputs;
    args.inputs = shape.inputs;
    args.rows = rows;
    for (int i = 0; i < Count(); ++i) {
      args.weights = memory.weights.as<char>() + i * Bytes();
      Check(Gemm(args, {nullptr, overlap}), "Gemm");
    }
  }
};

// Goes on with `line` in the JSON file, if there is one.
template <typename... Values>
void Json(std::FILE* file, const char* line, Values... values) {
  if (file != nullptr) std::fprintf(file, line, values...);
}

void Report(std::FILE* json, const char* format, double bandwidth,
            const std::vector<Product>& products,
            const std::vector<Measured>& cases) {
  const double one_row = cases[0].Median() / products[0].Count();
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const double each = cases[2 * i].Median() / product.Count();
    const double apart = cases[2 * i + 1].Median() / product.Count();
    const double gigabytes = product.Bytes() / each / 1e6;
    const double teraflops = product.Operations() / each / 1e9;
    std::printf(
        "%4s %4s %7d x %6d   %4d  %9.2f  %7.0f  %7.1f%%  %7.3f  %8.1f  %9.2f\n",
        format, product.shape.model, product.shape.outputs,
        product.shape.inputs, product.rows, 1e3 * each, gigabytes,
        100 * gigabytes / bandwidth, each / one_row, teraflops, 1e3 * apart);
    Json(json,
         ",\n  {\"format\": \"%s\", \"model\": \"%s\", \"outputs\": %d, "
         "\"inputs\": %d, \"rows\": %d, \"us\": %.3f, "
         "\"us_not_overlapped\": %.3f, \"gb_per_s\": %.1f, "
         "\"of_read\": %.4f, \"to_one_row\": %.4f, \"tflop_per_s\": %.2f}",
         format, product.shape.model, product.shape.outputs,
         product.shape.inputs, product.rows, 1e3 * each, 1e3 * apart, gigabytes,
         gigabytes / bandwidth, each / one_row, teraflops);
  }
  if (json != nullptr) std::fflush(json);
}

// Returns the read bandwidth in GB/s.
double MeasureLimits(std::FILE* json, const Memory& memory, int blocks,
                     int repetitions) {
  const DeviceBuffer copy(kBytes);
  const auto read = [&] {
    ReadKernel<<<blocks, kReadThreads>>>(memory.weights.as<uint4>(),
                                         kBytes / sizeof(uint4),
                                         memory.results.as<uint32_t>());
  };
  const auto copy_all = [&] {
    Check(cudaMemcpyAsync(copy.as(), memory.weights.as(), kBytes,
                          cudaMemcpyDeviceToDevice),
          "copy");
  };
  std::vector<Measured> limits = {{read, 1.0 * kBytes},
                                  {copy_all, 2.0 * kBytes}};
  TakeTurns(limits, repetitions);
  std::printf("read %.0f GB/s, copy %.0f GB/s (read + written)\n\n",
              limits[0].GigabytesPerSecond(), limits[1].GigabytesPerSecond());
  Json(json, "{\"read_gb_per_s\": %.1f, \"copy_gb_per_s\": %.1f}",
       limits[0].GigabytesPerSecond(), limits[1].GigabytesPerSecond());
  return limits[0].GigabytesPerSecond();
}

int Main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  if (!HasDevice()) {
    std::printf("skipped: no CUDA device\n");
    return kSkipExitCode;
  }
  std::FILE* const json = argc > 2 ? std::fopen(argv[2], "w") : nullptr;
  if (argc > 2 && json == nullptr) {
    std::fprintf(stderr, "%s: cannot be written\n", argv[2]);
    return 1;
  }
  const int blocks = kReadBlocks * PrintDevice();
  const Memory memory = Allocate();
  Check(cudaMemset(memory.counters.as(), 0, memory.counters.bytes()), "zeros");
  const auto fill = [&](const DeviceBuffer& buffer, GemmFormat format) {
    FillKernel<<<blocks, 256>>>(buffer.as<uint16_t>(), buffer.bytes() / 2,
                                format, 1);
    Check(cudaDeviceSynchronize(), "fill");
  };
  fill(memory.activations, GemmFormat::kBf16);
  // Pairs of bf16 are f32 of about the same size.
  fill(memory.scales, GemmFormat::kBf16);
  // A list: the limits, then the cases.
  Json(json, "[\n  ");
  const double bandwidth = MeasureLimits(json, memory, blocks, repetitions);
  std::printf(
      "weights    outputs x inputs   rows         us     GB/s  of read  to 1 "
      "row"
      "  TFLOP/s  us apart\n");
  for (const auto& [format, name] : kFormats) {
    fill(memory.weights, format);
    for (const Shape& shape : kShapes) {
      std::vector<Product> products;
      std::vector<Measured> cases;
      for (const int rows : kRowCounts) {
        products.push_back({format, shape, rows});
        for (const bool overlap : {true, false}) {
          cases.push_back({[product = products.back(), &memory, overlap] {
                             product.Run(memory, overlap);
                           },
                           0});
        }
      }
      TakeTurns(cases, repetitions);
      Report(json, name, bandwidth, products, cases);
    }
  }
  Json(json, "\n]\n");
  if (json != nullptr && std::fclose(json) != 0) {
    std::fprintf(stderr, "%s: not written whole\n", argv[2]);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace nacre::kernels::cuda

int main(int argc, char** argv) {
  return nacre::kernels::cuda::Main(argc, argv);
}
