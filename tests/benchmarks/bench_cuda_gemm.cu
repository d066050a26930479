// Skinny matrix product on a GPU against the bandwidth with which the same GPU
// reads memory in the same run: what share of it a product reaches, and what
// more rows cost.
//
//   bench_cuda_gemm [repetitions]
//
// A case runs over so many matrices in turn that none is in the cache when its
// turn comes again. Times are medians over repetitions, in which the cases take
// turns; launches included, as they come on one stream. Bytes are those of the
// weights.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/cuda/skinny_gemm.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda {
namespace {

constexpr size_t kBytes = size_t{2} << 30;  // read by a repetition of a case
constexpr int kWarmups = 2;
constexpr int kReadThreads = 512;
constexpr int kReadBlocks = 4;  // of a multiprocessor

struct Shape {
  int outputs;
  int inputs;
};
constexpr Shape kShapes[] = {{4096, 4096},  {6144, 4096},  {28672, 4096},
                             {14336, 4096}, {4096, 14336}, {128256, 4096}};
constexpr int kRowCounts[] = {1, 2, 4, 8, 16};

__global__ void FillKernel(uint16_t* values, size_t count, uint64_t seed) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += step) {
    values[i] = RandomBf16(seed, i);
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

// Matrices of one shape, back to back; results and workspace shared, as the
// layers of a model share them.
void Products(const Shape& shape, int rows, bool overlap,
              const DeviceBuffer& weights, const DeviceBuffer& activations,
              const DeviceBuffer& results, const DeviceBuffer& workspace) {
  SkinnyGemmArgs args;
  args.activations = activations.as();
  args.results = results.as<float>();
  args.workspace = workspace.as();
  args.outputs = shape.outputs;
  args.inputs = shape.inputs;
  args.rows = rows;
  args.overlap_previous = overlap;
  const size_t each = size_t{2} * shape.outputs * shape.inputs;
  for (size_t at = 0; at + each <= weights.bytes(); at += each) {
    args.weights = weights.as<char>() + at;
    Check(SkinnyGemm(args, nullptr), "SkinnyGemm");
  }
}

int Main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  if (!HasDevice()) {
    std::printf("skipped: no CUDA device\n");
    return kSkipExitCode;
  }
  const int multiprocessors = PrintDevice();
  const DeviceBuffer weights(kBytes), copy(kBytes);
  size_t most_inputs = 0, most_outputs = 0, workspace_bytes = 16;
  for (const Shape& shape : kShapes) {
    most_inputs = std::max<size_t>(most_inputs, shape.inputs);
    most_outputs = std::max<size_t>(most_outputs, shape.outputs);
    workspace_bytes = std::max(
        workspace_bytes, SkinnyGemmWorkspaceBytes(shape.outputs, shape.inputs));
  }
  const DeviceBuffer activations(2 * kSkinnyGemmMaxRows * most_inputs);
  const DeviceBuffer results(sizeof(float) * kSkinnyGemmMaxRows * most_outputs);
  const DeviceBuffer workspace(workspace_bytes);
  const int blocks = kReadBlocks * multiprocessors;
  FillKernel<<<blocks, 256>>>(weights.as<uint16_t>(), kBytes / 2, 1);
  FillKernel<<<blocks, 256>>>(activations.as<uint16_t>(),
                              activations.bytes() / 2, 2);
  Check(cudaDeviceSynchronize(), "fill");

  const auto read = [&] {
    ReadKernel<<<blocks, kReadThreads>>>(
        weights.as<uint4>(), kBytes / sizeof(uint4), results.as<uint32_t>());
  };
  const auto copy_all = [&] {
    Check(cudaMemcpyAsync(copy.as(), weights.as(), kBytes,
                          cudaMemcpyDeviceToDevice),
          "copy");
  };
  std::vector<Measured> limits = {{read, 1.0 * kBytes},
                                  {copy_all, 2.0 * kBytes}};
  TakeTurns(limits, repetitions);
  const double bandwidth = limits[0].GigabytesPerSecond();
  std::printf("read %.0f GB/s, copy %.0f GB/s (read + written)\n\n", bandwidth,
              limits[1].GigabytesPerSecond());
  std::printf(
      "outputs x inputs   rows        us      GB/s  %% of read  to 1 row"
      "   us not overlapped\n");
  for (const Shape& shape : kShapes) {
    const size_t each = size_t{2} * shape.outputs * shape.inputs;
    const auto products = static_cast<double>(kBytes / each);
    std::vector<Measured> cases;
    for (const int rows : kRowCounts) {
      for (const bool overlap : {true, false}) {
        cases.push_back({[&, rows, overlap] {
                           Products(shape, rows, overlap, weights, activations,
                                    results, workspace);
                         },
                         products * each});
      }
    }
    TakeTurns(cases, repetitions);
    for (size_t i = 0; i < cases.size(); i += 2) {
      std::printf("%7d x %6d   %4d  %8.2f  %8.0f  %8.1f%%  %8.3f  %17.2f\n",
                  shape.outputs, shape.inputs, kRowCounts[i / 2],
                  1e3 * cases[i].Median() / products,
                  cases[i].GigabytesPerSecond(),
                  100 * cases[i].GigabytesPerSecond() / bandwidth,
                  cases[i].Median() / cases[0].Median(),
                  1e3 * cases[i + 1].Median() / products);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nacre::kernels::cuda

int main(int argc, char** argv) {
  return nacre::kernels::cuda::Main(argc, argv);
}
