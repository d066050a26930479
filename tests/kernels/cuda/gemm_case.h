// One matrix of random weights and many rows of activations, on the host and on
// a device, for the tests of the matrix product.

#ifndef TESTS_KERNELS_CUDA_GEMM_CASE_H_
#define TESTS_KERNELS_CUDA_GEMM_CASE_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/cuda/gemm_host_weights.h"

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

constexpr unsigned char kPoison = 0xff;  // makes NaN
constexpr uint16_t kBf16Nan = 0x7fc0;
// Device memory with poison after it.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : buffer_(bytes + 4096) {
    Check(cudaMemset(buffer_.as(), kPoison, buffer_.bytes()), "guard");
  }
  void Set(const void* bytes, size_t count) {
    Check(cudaMemcpy(buffer_.as(), bytes, count, cudaMemcpyDefault), "upload");
  }
  template <typename T = void>
  T* as() const {
    return buffer_.as<T>();
  }

 private:
  DeviceBuffer buffer_;
};

class Case {
 public:
  // With pairs, outputs have the weights that lie in their place without.
  Case(GemmFormat format, const Shape& shape, int rows, uint64_t seed,
       int pairs_apart = kPlainPairs)
      : format_(format),
        pairs_apart_(pairs_apart),
        shape_(shape),
        rows_(rows),
        weights_(MakeWeights(format, shape, seed)),
        activations_(size_t{1} * rows * shape.inputs),
        device_weights_(weights_.device.size()),
        device_scales_(sizeof(float) * weights_.scales.size()),
        device_activations_(2 * activations_.size()),
        results_(sizeof(float) * (rows + 1) * shape.outputs),
        workspace_(std::max<size_t>(
            16,
            GemmWorkspaceBytes(format, shape.outputs, shape.inputs, rows))) {
    for (size_t i = 0; i < activations_.size(); ++i) {
      activations_[i] = RandomBf16(seed + 1, i);
    }
    for (size_t i = 0; i < weights_.scales.size(); ++i) {
      scales_.resize(weights_.scales.size());
      scales_[OutputAt(i)] = weights_.scales[i];
    }
    device_weights_.Set(weights_.device.data(), weights_.device.size());
    device_scales_.Set(scales_.data(), sizeof(float) * scales_.size());
    SetActivations(activations_);
    Check(cudaMemset(counters_.as(), 0, counters_.bytes()), "counters");
  }

  void SetActivations(const std::vector<uint16_t>& activations) {
    device_activations_.Set(activations.data(), 2 * activations.size());
  }

  // The output whose weights lie in place `place`.
  size_t OutputAt(size_t place) const {
    return OutputOf(static_cast<int>(place / kTileOutputs),
                    static_cast<int>(place % kTileOutputs), pairs_apart_);
  }

  // From now on the last block adds slices, where rows are few.
  void SetLastAdds(bool last_adds) { last_adds_ = last_adds; }

  GemmArgs Args(int first_row, int rows) const {
    GemmArgs args;
    args.format = format_;
    args.weights = device_weights_.as();
    if (!weights_.scales.empty()) args.scales = device_scales_.as<float>();
    args.activations = device_activations_.as<uint16_t>() +
                       size_t{1} * first_row * shape_.inputs;
    args.results = results_.as<float>();
    args.workspace = workspace_.as();
    if (last_adds_) args.counters = counters_.as<unsigned>();
    args.outputs = shape_.outputs;
    args.pairs_apart = pairs_apart_;
    args.inputs = shape_.inputs;
    args.rows = rows;
    return args;
  }

  // Rows [first_row, first_row + rows). Whatever is not written is poison.
  std::vector<float> Run(int first_row, int rows) {
    Check(cudaMemset(results_.as(), kPoison, results_.bytes()), "poison");
    Check(cudaMemset(workspace_.as(), kPoison, workspace_.bytes()), "poison");
    Check(Gemm(Args(first_row, rows), {}), "Gemm");
    std::vector<float> results(results_.bytes() / sizeof(float));
    Check(cudaMemcpy(results.data(), results_.as(), results_.bytes(),
                     cudaMemcpyDefault),
          "results");
    const auto* bytes = reinterpret_cast<const unsigned char*>(results.data());
    const size_t written = sizeof(float) * rows * shape_.outputs;
    EXPECT(std::all_of(bytes + written, bytes + results_.bytes(),
                       [](unsigned char byte) { return byte == kPoison; }),
           "%d x %d, %d rows: wrote past its rows", shape_.outputs,
           shape_.inputs, rows);
    std::vector<unsigned> counters(kGemmCounters);
    Check(cudaMemcpy(counters.data(), counters_.as(), counters_.bytes(),
                     cudaMemcpyDefault),
          "counters");
    EXPECT(counters == std::vector<unsigned>(kGemmCounters),
           "%d x %d, %d rows: left a counter that is not 0", shape_.outputs,
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

  GemmFormat format() const { return format_; }
  const Shape& shape() const { return shape_; }
  int rows() const { return rows_; }
  const std::vector<double>& weights() const { return weights_.values; }
  const std::vector<uint16_t>& activations() const { return activations_; }

 private:
  GemmFormat format_;
  int pairs_apart_;
  Shape shape_;
  int rows_;
  HostWeights weights_;
  std::vector<float> scales_;
  std::vector<uint16_t> activations_;
  GuardedBuffer device_weights_, device_scales_, device_activations_;
  DeviceBuffer results_, workspace_;
  DeviceBuffer counters_{sizeof(unsigned) * kGemmCounters};
  bool last_adds_ = false;
};

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_GEMM_CASE_H_
