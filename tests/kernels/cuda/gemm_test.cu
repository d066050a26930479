// Matrix product on a GPU: against double precision, and bit by bit for any
// number of rows. Without a device: what needs none, then it skips.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_order.h"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/cuda/gemm_case.h"
#include "tests/kernels/cuda/gemm_checks.h"

namespace nacre::kernels::cuda {
namespace {

__global__ void ToBf16Kernel(const float* from, uint16_t* to, int elements,
                             float scale) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements) to[i] = __float_as_uint(from[i] * scale) >> 16;
}

// Products that feed each other through one workspace, queued without a pause:
// overlapping their starts must not change a bit, nor who adds their slices.
void CheckChains() {
  constexpr int kSize = 2048;  // 2 slices: a workspace is in play
  constexpr int kSteps = 40;
  EXPECT(GemmOrderOf(kSize, kSize).slices > 1, "the chain needs a workspace");
  for (const int rows : {1, 8, 16, 32, 64, 300}) {
    std::vector<float> results[2];
    for (const bool overlap : {false, true}) {
      Case test(GemmFormat::kBf16, {kSize, kSize}, rows, 77);
      test.SetLastAdds(overlap);
      const GemmArgs args = test.Args(0, rows);
      const Queue queue = {nullptr, overlap};
      auto* activations = const_cast<void*>(args.activations);
      const int elements = rows * kSize;
      Check(cudaDeviceSynchronize(), "chain");
      for (int step = 0; step < kSteps; ++step) {
        // The second product of a pair follows a product, the first a
        // conversion; both read what the kernel before them wrote.
        Check(Gemm(args, queue), "Gemm");
        Check(Gemm(args, queue), "Gemm");
        ToBf16Kernel<<<elements / 256, 256>>>(
            args.results, static_cast<uint16_t*>(activations), elements,
            1.0f / 20);
        Check(cudaGetLastError(), "ToBf16Kernel");
      }
      results[overlap].resize(elements);
      Check(cudaMemcpy(results[overlap].data(), args.results,
                       sizeof(float) * elements, cudaMemcpyDefault),
            "chain");
      EXPECT(std::all_of(results[overlap].begin(), results[overlap].end(),
                         [](float x) { return std::isfinite(x) && x != 0; }),
             "a chain of %d rows left the range", rows);
    }
    EXPECT(std::memcmp(results[0].data(), results[1].data(),
                       sizeof(float) * results[0].size()) == 0,
           "%d rows: a chain with overlapped starts differs", rows);
  }
}

int Main(int argc, char** argv) {
  // --quick: small shapes only, for compute-sanitizer.
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  CheckWorkspaces();
  CheckRefusals();
  if (!HasDevice()) {
    if (failures > 0) return 1;
    std::printf("skipped: no CUDA device\n");
    return kSkipExitCode;
  }
  PrintDevice();
  // Odd edges of every kind, then what models have.
  std::vector<Shape> shapes = {{1, 8},     {16, 64},    {17, 72},    {40, 200},
                               {15, 1032}, {100, 9000}, {1000, 4104}};
  if (!quick) {
    shapes.insert(shapes.end(), {{1024, 4096},
                                 {512, 14336},
                                 {6144, 2048},
                                 {30000, 512},
                                 {2056, 20488}});
  }
  const std::vector<int> few = {1, 2, 8, 9, 16, 17, 32, 33, 64, 100};
  std::vector<int> every;
  for (int rows = 1; rows <= 64; ++rows) every.push_back(rows);
  for (const GemmFormat format : kFormats) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      CheckShape(format, shapes[i], few, 100, 1000 + 2 * i);
    }
    CheckShape(format, {40, 2600}, quick ? few : every, 300, 2000);
    if (!quick) CheckShape(format, {4096, 4096}, every, 300, 2001);
    CheckPairs(format, {96, 2600}, 24, few, 2002);
    CheckPairs(format, {4080, 200}, 2040, few, 2003);
  }
  CheckChains();
  std::printf("%s: %d failures\n", failures == 0 ? "PASSED" : "FAILED",
              failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nacre::kernels::cuda

int main(int argc, char** argv) {
  return nacre::kernels::cuda::Main(argc, argv);
}
