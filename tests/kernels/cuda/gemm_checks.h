// What the matrix product must do, on a GPU (gemm_test.cu) and on an emulated
// one (gemm_emulated_test.cc).

#ifndef TESTS_KERNELS_CUDA_GEMM_CHECKS_H_
#define TESTS_KERNELS_CUDA_GEMM_CHECKS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_order.h"
#include "tests/kernels/cuda/gemm_case.h"

namespace nacre::kernels::cuda {

// Every element within the rounding of f32 sums: at most a few thousand
// additions, each off by 2^-23 of the magnitudes summed so far.
inline double CheckAgainstDouble(const Case& test,
                                 const std::vector<float>& results) {
  constexpr double kBound = 1e-5;  // of the sum of |x| |w|
  const auto [outputs, inputs] = test.shape();
  std::vector<double> activations(test.activations().size());
  std::transform(test.activations().begin(), test.activations().end(),
                 activations.begin(), Bf16ToFloat);
  double difference = 0, norm = 0;
  for (int output = 0; output < outputs; ++output) {
    const double* const weights =
        test.weights().data() + size_t{1} * output * inputs;
    for (int row = 0; row < test.rows(); ++row) {
      const double* x = activations.data() + size_t{1} * row * inputs;
      double sum = 0, magnitude = 0;
      for (int i = 0; i < inputs; ++i) {
        const double product = x[i] * weights[i];
        sum += product;
        magnitude += std::abs(product);
      }
      const double error = results[size_t{1} * row * outputs + output] - sum;
      EXPECT(std::abs(error) <= kBound * magnitude,
             "%s %d x %d: row %d output %d is off by %g (sum %g)",
             NameOf(test.format()), outputs, inputs, row, output, error, sum);
      difference += error * error;
      norm += sum * sum;
    }
  }
  return std::sqrt(difference / norm);
}

// Rows from `first` on are those of `all`, whoever adds slices.
inline void CheckRows(Case& test, const std::vector<float>& all, int first,
                      int rows) {
  const auto [outputs, inputs] = test.shape();
  for (const bool last_adds : {false, true}) {
    if (last_adds && GemmOrderOf(outputs, inputs).slices == 1) break;
    test.SetLastAdds(last_adds);
    EXPECT(test.SameRows(test.Run(first, rows), 0, all, first, rows),
           "%s %d x %d: %d rows from %d on differ from %d, %s adds slices",
           NameOf(test.format()), outputs, inputs, rows, first, test.rows(),
           last_adds ? "the last block" : "a kernel");
  }
  test.SetLastAdds(false);
}

// Neighbours that are not numbers.
inline void CheckNeighbours(Case& test, const std::vector<float>& all, int rows,
                            int kept) {
  const int inputs = test.shape().inputs;
  std::vector<uint16_t> activations(test.activations().size(), kBf16Nan);
  std::copy_n(test.activations().begin() + size_t{1} * kept * inputs, inputs,
              activations.begin() + size_t{1} * kept * inputs);
  test.SetActivations(activations);
  EXPECT(test.SameRows(test.Run(0, rows), kept, all, kept, 1),
         "%s %d x %d: row %d of %d depends on its neighbours",
         NameOf(test.format()), test.shape().outputs, test.shape().inputs, kept,
         rows);
  test.SetActivations(test.activations());
}

// All `most` rows against double, then every bit of fewer rows, and in turn of
// rows at another place, of a single row, and of rows among other neighbours.
inline void CheckShape(GemmFormat format, const Shape& shape,
                       const std::vector<int>& row_counts, int most,
                       uint64_t seed) {
  Case test(format, shape, most, seed);
  const std::vector<float> all = test.Run(0, most);
  const double error = CheckAgainstDouble(test, all);
  for (size_t i = 0; i < row_counts.size(); ++i) {
    const int rows = row_counts[i];
    CheckRows(test, all, 0, rows);
    if (i % 3 == 0) CheckNeighbours(test, all, rows, (rows - 1) / 2);
    if (i % 3 == 1) CheckRows(test, all, (most - rows + 1) / 2, rows);
    if (i % 3 == 2) CheckRows(test, all, rows - 1, 1);
  }
  std::printf("%4s %6d x %5d, %d rows: %d slices, relative error %.1e\n",
              NameOf(format), shape.outputs, shape.inputs, most,
              GemmOrderOf(shape.outputs, shape.inputs).slices, error);
}

// Pairs of outputs: the results of the same weights without, elsewhere.
inline void CheckPairs(GemmFormat format, const Shape& shape, int pairs_apart,
                       const std::vector<int>& row_counts, uint64_t seed) {
  const int most = *std::max_element(row_counts.begin(), row_counts.end());
  Case plain(format, shape, most, seed);
  Case paired(format, shape, most, seed, pairs_apart);
  const size_t outputs = shape.outputs;
  for (const int rows : row_counts) {
    for (const bool last_adds : {false, true}) {
      plain.SetLastAdds(last_adds);
      paired.SetLastAdds(last_adds);
      const std::vector<float> expected = plain.Run(0, rows);
      const std::vector<float> results = paired.Run(0, rows);
      bool same = true;
      for (size_t i = 0; i < rows * outputs; ++i) {
        const size_t at = i / outputs * outputs + paired.OutputAt(i % outputs);
        same =
            same && std::memcmp(&results[at], &expected[i], sizeof(float)) == 0;
      }
      EXPECT(same, "%s %d x %d, %d rows: outputs in pairs, %d apart, differ",
             NameOf(format), shape.outputs, shape.inputs, rows, pairs_apart);
    }
  }
}

inline void CheckWorkspaces() {
  EXPECT(GemmWorkspaceBytes(GemmFormat::kBf16, 14336, 4096, 5000) == 0,
         "one slice needs none");
  EXPECT(GemmWorkspaceBytes(GemmFormat::kBf16, 4096, 4096, 16) == 0,
         "one slice needs none");
  EXPECT(GemmWorkspaceBytes(GemmFormat::kFp8, 4096, 4096, 5000) ==
             size_t{4} * 8 * 64 * 4096,
         "chains apart");
  EXPECT(GemmWorkspaceBytes(GemmFormat::kBf16, 4096, 14336, 16) ==
             size_t{4} * 4 * 16 * 4096,
         "f32 of every slice, row and output");
  EXPECT(GemmWorkspaceBytes(GemmFormat::kBf16, 4096, 14336, 5000) ==
             size_t{4} * 4 * 256 * 4096,
         "many rows go through slices one after another");
}

// Refused before a device is touched.
inline void CheckRefusals() {
  alignas(16) static char memory[32];
  GemmArgs good;
  good.weights = good.activations = memory;
  good.results = reinterpret_cast<float*>(memory);
  good.outputs = 1024;
  good.inputs = 4096;
  good.rows = 1;
  good.workspace = memory;
  const auto refused = [&](auto change) {
    GemmArgs args = good;
    change(args);
    return Gemm(args, {}) == cudaErrorInvalidValue;
  };
  EXPECT(refused([](auto& args) { args.rows = 0; }), "no rows");
  EXPECT(refused([](auto& args) { args.outputs = 0; }), "no outputs");
  EXPECT(refused([](auto& args) { args.inputs = 0; }), "no inputs");
  EXPECT(refused([](auto& args) { args.inputs = 4100; }), "ragged inputs");
  EXPECT(refused([](auto& args) { args.weights = memory + 8; }), "alignment");
  EXPECT(refused([](auto& args) { args.activations = nullptr; }), "null");
  EXPECT(refused([](auto& args) { args.results = nullptr; }), "null");
  EXPECT(refused([](auto& args) { args.workspace = nullptr; }), "workspace");
  EXPECT(refused([](auto& args) { args.pairs_apart = 0; }), "no pairs");
  EXPECT(refused([](auto& args) { args.pairs_apart = 12; }), "half a tile");
  EXPECT(refused([](auto& args) { args.pairs_apart = 24; }), "no whole pairs");
  EXPECT(refused([](auto& args) { args.format = GemmFormat::kFp8; }),
         "fp8 without scales");
  EXPECT(refused([](auto& args) { args.scales = args.results; }),
         "bf16 with scales");
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_GEMM_CHECKS_H_
