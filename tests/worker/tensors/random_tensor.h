// Tensors with values that tell them apart.

#ifndef TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_
#define TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_

#include <cstdint>
#include <random>

#include "worker/tensors/tensor.h"

namespace nacre::worker {

inline Tensor RandomTensor(uint64_t channel, int position, int size) {
  Tensor tensor;
  tensor.tag = {channel, 7, position, 0, true};
  tensor.shape = {size};
  std::minstd_rand random(static_cast<uint32_t>(position + 1));
  for (int i = 0; i < size; ++i) {
    tensor.values.push_back(static_cast<float>(random()) * 0x1p-30f);
  }
  return tensor;
}

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_RANDOM_TENSOR_H_
