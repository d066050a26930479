#include "worker/tensors/chunk_convert.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/worker/tensors/random_tensor.h"

namespace nacre::worker {
namespace {

TEST(ChunkConvert, ThereAndBackNothingChanges) {
  Tensor tensor = RandomTensor(0xF00000000000000FULL, 12, 24);
  tensor.tag = {0xF00000000000000FULL, 3, 12, 5, true};
  tensor.shape = {2, 12};
  v1::TensorChunk proto;
  FillChunk(ChunkAt(Encode(tensor), 16, 32), &proto);
  EXPECT_EQ(proto.type(), v1::ELEMENT_TYPE_F32);
  EXPECT_EQ(proto.data().size(), 32u);
  TensorChunk chunk;
  ASSERT_TRUE(ToChunk(proto, &chunk));
  EXPECT_EQ(chunk.tag, tensor.tag);
  EXPECT_EQ(chunk.shape, tensor.shape);
  EXPECT_FALSE(chunk.in_bf16);
  EXPECT_EQ(chunk.offset, 16u);
  EXPECT_EQ(std::memcmp(chunk.data.data(), tensor.values.data() + 4, 32), 0);
}

TEST(ChunkConvert, RowsInBF16StayWhatTheyAre) {
  Tensor tensor = RandomTensor(5, 12, 24);
  tensor.tag.is_rows = true;
  tensor.shape = {2, 12};
  tensor.in_bf16 = true;
  const WireTensor wire = Encode(tensor);
  v1::TensorChunk proto;
  FillChunk(ChunkAt(wire, 16, 32), &proto);
  EXPECT_EQ(proto.type(), v1::ELEMENT_TYPE_BF16);
  EXPECT_EQ(proto.kind(), v1::TENSOR_KIND_ROWS);
  TensorChunk chunk;
  ASSERT_TRUE(ToChunk(proto, &chunk));
  EXPECT_EQ(chunk.tag, tensor.tag);
  EXPECT_TRUE(chunk.in_bf16);
  EXPECT_EQ(chunk.data, wire.bytes.substr(16));
}

TEST(ChunkConvert, WhatCannotBeExpressedHereIsRefused) {
  v1::TensorChunk good;
  FillChunk(ChunkAt(Encode(RandomTensor(1, 2, 4)), 0), &good);
  TensorChunk chunk;
  ASSERT_TRUE(ToChunk(good, &chunk));
  v1::TensorChunk bad = good;
  bad.set_type(v1::ELEMENT_TYPE_UNSPECIFIED);
  EXPECT_FALSE(ToChunk(bad, &chunk));
  bad = good;
  bad.set_type(static_cast<v1::ElementType>(77));
  EXPECT_FALSE(ToChunk(bad, &chunk));
  bad = good;
  bad.set_type(static_cast<v1::ElementType>(v1::ELEMENT_TYPE_BF16 + 1));
  EXPECT_FALSE(ToChunk(bad, &chunk));
  bad = good;
  bad.set_position(0x80000000u);
  EXPECT_FALSE(ToChunk(bad, &chunk));
  bad = good;
  bad.set_layer(0xFFFFFFFFu);
  EXPECT_FALSE(ToChunk(bad, &chunk));
  bad = good;
  bad.add_shape(0x80000000u);
  EXPECT_FALSE(ToChunk(bad, &chunk));
}

}  // namespace
}  // namespace nacre::worker
