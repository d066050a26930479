// Tensors with values that tell them apart.

#ifndef TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_
#define TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "worker/tensors/tensor.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

inline Tensor RandomTensor(uint64_t channel, int position, int size) {
  Tensor tensor;
  tensor.tag = {channel, 7, position, 0, true};
  tensor.shape = {size};
  std::minstd_rand random(static_cast<uint32_t>(position + 1));
  std::vector<float> values;
  for (int i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(random()) * 0x1p-30f);
  }
  tensor.Own(std::move(values));
  return tensor;
}

inline std::shared_ptr<const WireTensor> OnWire(const Tensor& tensor) {
  return std::make_shared<const WireTensor>(Encode(tensor));
}

// Of a tensor on the host.
inline std::vector<float> ValuesOf(const Tensor& tensor) {
  const absl::Span<const float> values = tensor.values.host();
  return {values.begin(), values.end()};
}

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_
