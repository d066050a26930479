#include "worker/tensors/tensor.h"

#include <gtest/gtest.h>

#include "tests/testing/device_backend.h"
#include "tests/worker/tensors/random_tensor.h"

namespace nacre::worker {
namespace {

using Values = std::vector<float>;

TEST(Tensor, OwnsWhatItIsGiven) {
  Tensor tensor;
  tensor.Own({1, 2, 3});
  EXPECT_EQ(tensor.num_bytes(), 3 * sizeof(float));
  EXPECT_EQ(tensor.wire_bytes(), 3 * sizeof(float));
  const Tensor copy = tensor;
  tensor = {};
  EXPECT_EQ(ValuesOf(copy), (Values{1, 2, 3}));
  // It is there already.
  EXPECT_EQ(copy.OnHost().values.data(), copy.values.data());
}

TEST(Tensor, WhatOthersOwnIsCopiedToTheHost) {
  nacre::testing::DeviceBackend device;
  Values memory = {4, 5};
  Tensor tensor;
  tensor.tag = {7, 1, 3, 0, true};
  tensor.shape = {2};
  tensor.in_bf16 = true;
  EXPECT_EQ(tensor.wire_bytes(), 0u);
  for (const bool on_device : {false, true}) {
    tensor.values = on_device ? kernels::FloatView(&device, memory.data(), 2)
                              : kernels::FloatView(memory);
    const Tensor copy = tensor.OnHost();
    memory[0] += 1;  // its owner goes on
    EXPECT_EQ(ValuesOf(copy), (Values{memory[0] - 1, 5}));
    EXPECT_EQ(copy.tag, tensor.tag);
    EXPECT_EQ(copy.shape, tensor.shape);
    EXPECT_TRUE(copy.in_bf16);
    EXPECT_EQ(copy.wire_bytes(), 2 * sizeof(uint16_t));
  }
}

}  // namespace
}  // namespace nacre::worker
