// Drafts of random numbers, of the bundled target.

#ifndef TESTS_INTEGRATION_RANDOM_DRAFT_H_
#define TESTS_INTEGRATION_RANDOM_DRAFT_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "model/safetensors_writer.h"

namespace nacre::integration {

// model.safetensors of tensors of bf16: matrices random, vectors of ones.
inline void WriteRandomTensors(const std::string& folder,
                               const std::vector<model::TensorSpec>& tensors) {
  auto writer =
      model::SafetensorsWriter::Create(folder + "/model.safetensors", tensors);
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::mt19937_64 random(1);
  for (const model::TensorSpec& tensor : tensors) {
    int64_t count = 1;
    for (const int64_t each : tensor.shape) count *= each;
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) {
      const float uniform =
          static_cast<float>(random() % 2048) / 1024.0f - 1.0f;
      value = kernels::ToBF16(
          tensor.shape.size() == 1
              ? 1.0f
              : uniform / std::sqrt(static_cast<float>(tensor.shape[1])));
    }
    EXPECT_TRUE((*writer)
                    ->Append(values.data(), values.size() * sizeof(uint16_t))
                    .ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_RANDOM_DRAFT_H_
