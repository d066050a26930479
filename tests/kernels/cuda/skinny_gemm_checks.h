// What the skinny matrix product must do, on a GPU (skinny_gemm_test.cu) and on
// an emulated one (skinny_gemm_emulated_test.cc).

#ifndef TESTS_KERNELS_CUDA_SKINNY_GEMM_CHECKS_H_
#define TESTS_KERNELS_CUDA_SKINNY_GEMM_CHECKS_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/cuda/skinny_gemm.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda {

inline int failures = 0;

// Where the expectation does not hold: says so and goes on.
#define EXPECT(condition, ...)                                      \
  do {                                                              \
    if (!(condition)) {                                             \
      if (++failures <= 20) {                                       \
        std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
        std::printf(__VA_ARGS__);                                   \
        std::printf("\n");                                          \
      }                                                             \
    }                                                               \
  } while (false)

constexpr int kRows = kSkinnyGemmMaxRows;
constexpr unsigned char kPoison = 0xff;  // makes NaN
constexpr uint16_t kBf16Nan = 0x7fc0;

struct Shape {
  int outputs;
  int inputs;
};

// One matrix and 16 rows, on both sides.
class Case {
 public:
  Case(const Shape& shape, uint64_t seed)
      : shape_(shape),
        weights_(size_t{1} * shape.outputs * shape.inputs),
        activations_(size_t{1} * kRows * shape.inputs),
        device_weights_(2 * weights_.size()),
        device_activations_(2 * activations_.size()),
        results_(sizeof(float) * (kRows + 1) * shape.outputs),
        workspace_(std::max<size_t>(
            16, SkinnyGemmWorkspaceBytes(shape.outputs, shape.inputs))) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = RandomBf16(seed, i);
    }
    for (size_t i = 0; i < activations_.size(); ++i) {
      activations_[i] = RandomBf16(seed + 1, i);
    }
    Check(cudaMemcpy(device_weights_.as(), weights_.data(),
                     device_weights_.bytes(), cudaMemcpyDefault),
          "weights");
    SetActivations(activations_);
  }

  void SetActivations(const std::vector<uint16_t>& activations) {
    Check(cudaMemcpy(device_activations_.as(), activations.data(),
                     device_activations_.bytes(), cudaMemcpyDefault),
          "activations");
  }

  SkinnyGemmArgs Args(int first_row, int rows) const {
    SkinnyGemmArgs args;
    args.weights = device_weights_.as();
    args.activations = device_activations_.as<uint16_t>() +
                       size_t{1} * first_row * shape_.inputs;
    args.results = results_.as<float>();
    args.workspace = workspace_.as();
    args.outputs = shape_.outputs;
    args.inputs = shape_.inputs;
    args.rows = rows;
    return args;
  }

  // Rows [first_row, first_row + rows). Whatever is not written is poison.
  std::vector<float> Run(int first_row, int rows) {
    Check(cudaMemset(results_.as(), kPoison, results_.bytes()), "poison");
    Check(cudaMemset(workspace_.as(), kPoison, workspace_.bytes()), "poison");
    Check(SkinnyGemm(Args(first_row, rows), nullptr), "SkinnyGemm");
    std::vector<float> results(results_.bytes() / sizeof(float));
    Check(cudaMemcpy(results.data(), results_.as(), results_.bytes(),
                     cudaMemcpyDefault),
          "results");
    const auto* bytes = reinterpret_cast<const unsigned char*>(results.data());
    const size_t written = sizeof(float) * rows * shape_.outputs;
    EXPECT(std::all_of(bytes + written, bytes + results_.bytes(),
                       [](unsigned char byte) { return byte == kPoison; }),
           "%d x %d, %d rows: wrote behind its rows", shape_.outputs,
           shape_.inputs, rows);
    return results;
  }

  // Are `rows` rows of a, from row_a, those of b, from row_b, bit by bit?
  bool SameRows(const std::vector<float>& a, int row_a,
                const std::vector<float>& b, int row_b, int rows) const {
    const size_t row = shape_.outputs;
    return std::memcmp(a.data() + row_a * row, b.data() + row_b * row,
                       sizeof(float) * row * rows) == 0;
  }

  const Shape& shape() const { return shape_; }
  const std::vector<uint16_t>& weights() const { return weights_; }
  const std::vector<uint16_t>& activations() const { return activations_; }

 private:
  Shape shape_;
  std::vector<uint16_t> weights_, activations_;
  DeviceBuffer device_weights_, device_activations_, results_, workspace_;
};

// Every element within the rounding of f32 sums: at most a few thousand
// additions, each off by 2^-23 of the magnitudes summed so far.
inline double CheckAgainstDouble(const Case& test,
                                 const std::vector<float>& results) {
  constexpr double kBound = 1e-5;  // of the sum of |x| |w|
  const auto [outputs, inputs] = test.shape();
  std::vector<double> weights(inputs), activations(test.activations().size());
  std::transform(test.activations().begin(), test.activations().end(),
                 activations.begin(), Bf16ToFloat);
  double difference = 0, norm = 0;
  for (int output = 0; output < outputs; ++output) {
    const uint16_t* row_weights =
        test.weights().data() + size_t{1} * output * inputs;
    std::transform(row_weights, row_weights + inputs, weights.begin(),
                   Bf16ToFloat);
    for (int row = 0; row < kRows; ++row) {
      const double* x = activations.data() + size_t{1} * row * inputs;
      double sum = 0, magnitude = 0;
      for (int i = 0; i < inputs; ++i) {
        const double product = x[i] * weights[i];
        sum += product;
        magnitude += std::abs(product);
      }
      const double error = results[size_t{1} * row * outputs + output] - sum;
      EXPECT(std::abs(error) <= kBound * magnitude,
             "%d x %d: row %d output %d is off by %g (sum %g)", outputs, inputs,
             row, output, error, sum);
      difference += error * error;
      norm += sum * sum;
    }
  }
  return std::sqrt(difference / norm);
}

inline void CheckInvariance(Case& test, const std::vector<float>& all) {
  const auto [outputs, inputs] = test.shape();
  for (int rows = 1; rows <= kRows; ++rows) {
    EXPECT(test.SameRows(test.Run(0, rows), 0, all, 0, rows),
           "%d x %d: %d rows differ from 16", outputs, inputs, rows);
  }
  // A row at another place, among fewer.
  for (int first = 1; first < kRows; ++first) {
    const int rows = kRows - first;
    EXPECT(test.SameRows(test.Run(first, rows), 0, all, first, rows),
           "%d x %d: rows from %d on differ", outputs, inputs, first);
  }
  // Neighbours that are not numbers.
  for (const int kept : {0, 5, 8, 15}) {
    std::vector<uint16_t> activations(test.activations().size(), kBf16Nan);
    std::copy_n(test.activations().begin() + size_t{1} * kept * inputs, inputs,
                activations.begin() + size_t{1} * kept * inputs);
    test.SetActivations(activations);
    EXPECT(test.SameRows(test.Run(0, kRows), kept, all, kept, 1),
           "%d x %d: row %d depends on its neighbours", outputs, inputs, kept);
  }
  test.SetActivations(test.activations());
}

inline void CheckSplits() {
  // Deciding bits, they must not change unnoticed.
  const struct {
    Shape shape;
    int splits;
  } expected[] = {{{4096, 4096}, 1},   {{14336, 4096}, 1}, {{4096, 14336}, 4},
                  {{128256, 4096}, 1}, {{1024, 4096}, 4},  {{16, 64}, 1},
                  {{8192, 8192}, 2},   {{2048, 2048}, 2}};
  for (const auto& [shape, splits] : expected) {
    const int got = SkinnyGemmSplits(shape.outputs, shape.inputs);
    EXPECT(got == splits, "%d x %d: %d slices, not %d", shape.outputs,
           shape.inputs, got, splits);
  }
  EXPECT(SkinnyGemmWorkspaceBytes(4096, 4096) == 0, "one slice needs none");
  EXPECT(SkinnyGemmWorkspaceBytes(4096, 14336) == size_t{4} * 4 * 16 * 4096,
         "f32 of every slice, row and output");
}

// Refused before a device is touched.
inline void CheckRefusals() {
  alignas(16) static char memory[32];
  SkinnyGemmArgs good;
  good.weights = good.activations = memory;
  good.results = reinterpret_cast<float*>(memory);
  good.outputs = 1024;
  good.inputs = 4096;
  good.rows = 1;
  good.workspace = memory;
  const auto refused = [&](auto change) {
    SkinnyGemmArgs args = good;
    change(args);
    return SkinnyGemm(args, nullptr) == cudaErrorInvalidValue;
  };
  EXPECT(refused([](auto& args) { args.rows = 0; }), "no rows");
  EXPECT(refused([](auto& args) { args.rows = 17; }), "too many rows");
  EXPECT(refused([](auto& args) { args.outputs = 0; }), "no outputs");
  EXPECT(refused([](auto& args) { args.inputs = 0; }), "no inputs");
  EXPECT(refused([](auto& args) { args.inputs = 4100; }), "ragged inputs");
  EXPECT(refused([](auto& args) { args.weights = memory + 8; }), "alignment");
  EXPECT(refused([](auto& args) { args.activations = nullptr; }), "null");
  EXPECT(refused([](auto& args) { args.results = nullptr; }), "null");
  EXPECT(refused([](auto& args) { args.workspace = nullptr; }), "workspace");
}

// Results against double, then every bit against those of 16 rows.
inline void CheckShape(const Shape& shape, uint64_t seed) {
  Case test(shape, seed);
  const std::vector<float> all = test.Run(0, kRows);
  const double error = CheckAgainstDouble(test, all);
  CheckInvariance(test, all);
  std::printf("%6d x %5d: %d slices, relative error %.1e\n", shape.outputs,
              shape.inputs, SkinnyGemmSplits(shape.outputs, shape.inputs),
              error);
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_SKINNY_GEMM_CHECKS_H_
