#include "worker/tensors/tensor_chunks.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/worker/tensors/random_tensor.h"

namespace nacre::worker {
namespace {

using Outcome = TensorAssembler::Outcome;

std::vector<TensorChunk> Cut(const Tensor& tensor, size_t max_bytes) {
  std::vector<TensorChunk> chunks;
  for (size_t offset = 0; offset < tensor.num_bytes(); offset += max_bytes) {
    chunks.push_back(ChunkAt(tensor, offset, max_bytes));
  }
  return chunks;
}

TEST(TensorChunks, PutTogetherTheyAreTheTensor) {
  TensorAssembler assembler;
  // Over gRPC's 4 MiB, and not a multiple of a chunk.
  for (const int size : {1, 64, 1 << 18, (5 << 18) + 3}) {
    const Tensor tensor = RandomTensor(9, 4, size);
    const std::vector<TensorChunk> chunks = Cut(tensor, kMaxChunkBytes);
    EXPECT_EQ(chunks.size(),
              (tensor.num_bytes() + kMaxChunkBytes - 1) / kMaxChunkBytes);
    for (size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_LE(chunks[i].data.size(), kMaxChunkBytes);
      EXPECT_EQ(assembler.Add(chunks[i], tensor.values.size()),
                i + 1 < chunks.size() ? Outcome::kPart : Outcome::kWhole);
    }
    const Tensor whole = assembler.TakeTensor();
    EXPECT_EQ(whole.tag, tensor.tag);
    EXPECT_EQ(whole.shape, tensor.shape);
    EXPECT_EQ(ValuesOf(whole), ValuesOf(tensor));
  }
}

TEST(TensorChunks, AFirstChunkBeginsAnewWhateverTheLastTensorCameTo) {
  const Tensor left = RandomTensor(1, 1, 16), next = RandomTensor(2, 2, 16);
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(Cut(left, 16)[0], 16), Outcome::kPart);
  EXPECT_EQ(assembler.Add(Cut(left, 16)[1], 16), Outcome::kPart);
  EXPECT_EQ(assembler.Add(ChunkAt(next, 0), 16), Outcome::kWhole);
  EXPECT_EQ(ValuesOf(assembler.TakeTensor()), ValuesOf(next));
}

// What does not continue the tensor under way is dropped with it; the next
// tensor is read as if nothing had been.
TEST(TensorChunks, WhatMakesNoSenseIsDropped) {
  const Tensor tensor = RandomTensor(1, 1, 16);
  const std::vector<TensorChunk> good = Cut(tensor, 16);
  std::vector<TensorChunk> bad(9, good[1]);
  bad[0].offset = 20;  // a hole
  bad[1].offset = 12;  // an overlap
  bad[2].tag.position = 2;
  bad[3].tag.epoch = 8;
  bad[4].tag.channel = 2;
  bad[5].shape = {4, 4};
  bad[6].data = {};
  bad[7].data = good[0].data.substr(0, 1);
  bad[7].offset = std::numeric_limits<uint64_t>::max();
  const Tensor long_tensor = RandomTensor(1, 1, 32);
  bad[8].data = ChunkAt(long_tensor, 0).data;  // beyond the end
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed);  // no beginning
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(assembler.Add(good[0], 16), Outcome::kPart) << i;
    EXPECT_EQ(assembler.Add(bad[i], 16), Outcome::kMalformed) << i;
    EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed) << i;
  }
  EXPECT_EQ(assembler.Add(ChunkAt(tensor, 0), 16), Outcome::kWhole);
  // It is over: nothing follows it.
  EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed);
}

TEST(TensorChunks, TensorsOfAnotherSizeAreRefused) {
  const Tensor tensor = RandomTensor(1, 1, 16);
  TensorAssembler assembler;
  for (const std::vector<int>& shape :
       std::vector<std::vector<int>>{{15},
                                     {17},
                                     {},
                                     {0},
                                     {-16},
                                     {16, 0},
                                     {1, 1, 1, 1, 16},
                                     {1 << 30, 1 << 30, 1 << 30, 1 << 30}}) {
    TensorChunk chunk = ChunkAt(tensor, 0);
    chunk.shape = shape;
    EXPECT_EQ(assembler.Add(chunk, 16), Outcome::kWrongSize);
  }
  TensorChunk chunk = ChunkAt(tensor, 0);
  chunk.shape = {2, 8};
  EXPECT_EQ(assembler.Add(chunk, 16), Outcome::kWhole);
}

}  // namespace
}  // namespace nacre::worker
