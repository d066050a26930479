#include "worker/tensors/tensor_chunks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtype.h"
#include "tests/testing/device_backend.h"
#include "tests/worker/tensors/random_tensor.h"

namespace nacre::worker {
namespace {

using Outcome = TensorAssembler::Outcome;

std::vector<TensorChunk> Cut(const WireTensor& tensor, size_t max_bytes) {
  std::vector<TensorChunk> chunks;
  for (size_t offset = 0; offset < tensor.bytes.size(); offset += max_bytes) {
    chunks.push_back(ChunkAt(tensor, offset, max_bytes));
  }
  return chunks;
}

TEST(TensorChunks, PutTogetherTheyAreTheTensor) {
  TensorAssembler assembler;
  // Over gRPC's 4 MiB, and not a multiple of a chunk.
  for (const int size : {1, 64, 1 << 18, (5 << 18) + 3}) {
    const Tensor tensor = RandomTensor(9, 4, size);
    const std::vector<TensorChunk> chunks = Cut(Encode(tensor), kMaxChunkBytes);
    EXPECT_EQ(chunks.size(),
              (tensor.wire_bytes() + kMaxChunkBytes - 1) / kMaxChunkBytes);
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

std::vector<float> RoundedOf(const Tensor& tensor) {
  std::vector<float> values = ValuesOf(tensor);
  for (float& value : values) {
    value = kernels::FromBF16(kernels::ToBF16(value));
  }
  return values;
}

Tensor InBF16(Tensor tensor) {
  tensor.in_bf16 = true;
  return tensor;
}

TEST(TensorChunks, OfBF16TheyAreHalfAsManyAndTheValuesAreRounded) {
  TensorAssembler assembler;
  for (const int size : {1, 64, 1 << 19, (5 << 19) + 3}) {
    const Tensor tensor = InBF16(RandomTensor(9, 4, size));
    const WireTensor wire = Encode(tensor);
    EXPECT_EQ(wire.bytes.size(), tensor.wire_bytes());
    EXPECT_EQ(wire.bytes.size(), tensor.values.size() * sizeof(uint16_t));
    const std::vector<TensorChunk> chunks = Cut(wire, kMaxChunkBytes);
    EXPECT_EQ(chunks.size(),
              (wire.bytes.size() + kMaxChunkBytes - 1) / kMaxChunkBytes);
    for (size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(assembler.Add(chunks[i], tensor.values.size()),
                i + 1 < chunks.size() ? Outcome::kPart : Outcome::kWhole);
    }
    const Tensor whole = assembler.TakeTensor();
    EXPECT_EQ(whole.tag, tensor.tag);
    EXPECT_TRUE(whole.in_bf16);
    EXPECT_EQ(whole.wire_bytes(), wire.bytes.size());
    EXPECT_EQ(ValuesOf(whole), RoundedOf(tensor));
  }
}

TEST(TensorChunks, BF16RoundsToTheNearestAndIsLittleEndian) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor tensor = InBF16(RandomTensor(1, 1, 6));
  // Ties go to the even one.
  tensor.Own({1.00390625f, 1.01171875f, -2.0f, kInfinity, 3.4e38f, NAN});
  const WireTensor wire = Encode(tensor);
  EXPECT_EQ(wire.bytes.substr(4, 2), absl::string_view("\x00\xC0", 2));
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(ChunkAt(wire, 0), 6), Outcome::kWhole);
  const std::vector<float> values = ValuesOf(assembler.TakeTensor());
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 5),
            (std::vector<float>{1.0f, 1.015625f, -2.0f, kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(values[5]));
}

// What a sender holds does not follow memory that others go on to write.
TEST(TensorChunks, WhatIsEncodedIsSharedOrCopied) {
  const Tensor owned = RandomTensor(1, 1, 4);
  EXPECT_EQ(static_cast<const void*>(Encode(owned).bytes.data()),
            owned.values.data());
  nacre::testing::DeviceBackend device;
  for (const bool in_bf16 : {false, true}) {
    for (const bool on_device : {false, true}) {
      std::vector<float> memory = {4, 5};
      Tensor tensor;
      tensor.shape = {2};
      tensor.in_bf16 = in_bf16;
      tensor.values = on_device ? kernels::FloatView(&device, memory.data(), 2)
                                : kernels::FloatView(memory);
      const WireTensor wire = Encode(tensor);
      memory = {0, 0};
      TensorAssembler assembler;
      EXPECT_EQ(assembler.Add(ChunkAt(wire, 0), 2), Outcome::kWhole);
      EXPECT_EQ(ValuesOf(assembler.TakeTensor()), (std::vector<float>{4, 5}));
    }
  }
}

TEST(TensorChunks, RowsAreCutWhereATransferEnds) {
  Tensor tensor = RandomTensor(5, 40, 7 * 10);
  tensor.tag.is_rows = true;
  tensor.shape = {7, 10};
  for (const bool in_bf16 : {false, true}) {
    tensor.in_bf16 = in_bf16;
    const auto whole = OnWire(tensor);
    const size_t row_bytes = 10 * ElementBytes(in_bf16);
    for (size_t most = 1; most <= 8; ++most) {
      const auto runs = CutRows(whole, most * row_bytes + row_bytes / 2);
      EXPECT_EQ(runs.size(), (7 + most - 1) / most);
      int position = 40;
      std::string bytes;
      for (const auto& run : runs) {
        EXPECT_EQ(run->tag.position, position);
        EXPECT_TRUE(run->tag.is_rows);
        EXPECT_EQ(run->in_bf16, in_bf16);
        ASSERT_EQ(run->shape.size(), 2u);
        EXPECT_LE(run->shape[0], static_cast<int>(most));
        EXPECT_EQ(run->shape[1], 10);
        EXPECT_EQ(run->bytes.size(),
                  static_cast<size_t>(run->shape[0]) * row_bytes);
        EXPECT_EQ(run->owner, whole->owner) << "they share the bytes";
        position += run->shape[0];
        bytes.append(run->bytes.data(), run->bytes.size());
      }
      EXPECT_EQ(bytes, whole->bytes);
    }
    const auto as_it_is = CutRows(whole, row_bytes - 1);
    ASSERT_EQ(as_it_is.size(), 1u);
    EXPECT_EQ(as_it_is[0], whole);
  }
}

TEST(TensorChunks, AFirstChunkBeginsAnewWhateverTheLastTensorCameTo) {
  const Tensor left = RandomTensor(1, 1, 16), next = RandomTensor(2, 2, 16);
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(Cut(Encode(left), 16)[0], 16), Outcome::kPart);
  EXPECT_EQ(assembler.Add(Cut(Encode(left), 16)[1], 16), Outcome::kPart);
  EXPECT_EQ(assembler.Add(ChunkAt(Encode(next), 0), 16), Outcome::kWhole);
  EXPECT_EQ(ValuesOf(assembler.TakeTensor()), ValuesOf(next));
}

// What does not continue the tensor under way is dropped with it; the next
// tensor is read as if nothing had been.
TEST(TensorChunks, WhatMakesNoSenseIsDropped) {
  const Tensor tensor = RandomTensor(1, 1, 16);
  const std::vector<TensorChunk> good = Cut(Encode(tensor), 16);
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
  bad[8].data = ChunkAt(Encode(long_tensor), 0).data;  // beyond the end
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed);  // no beginning
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(assembler.Add(good[0], 16), Outcome::kPart) << i;
    EXPECT_EQ(assembler.Add(bad[i], 16), Outcome::kMalformed) << i;
    EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed) << i;
  }
  EXPECT_EQ(assembler.Add(ChunkAt(Encode(tensor), 0), 16), Outcome::kWhole);
  // It is over: nothing follows it.
  EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed);
}

TEST(TensorChunks, PartsOfNumbersAndOtherTypesAreDropped) {
  const Tensor tensor = RandomTensor(1, 1, 16);
  const WireTensor of_half = Encode(InBF16(tensor));
  const WireTensor of_float = Encode(tensor);
  for (const WireTensor& wire : {of_half, of_float}) {
    const std::vector<TensorChunk> good = Cut(wire, 8);
    std::vector<TensorChunk> bad(4, good[1]);
    bad[0].data = wire.bytes.substr(8, 7);  // a part of a number
    bad[1].offset = 9;
    bad[2].in_bf16 = !wire.in_bf16;
    bad[3].data = wire.bytes.substr(0, wire.bytes.size());  // beyond the end
    TensorAssembler assembler;
    for (size_t i = 0; i < bad.size(); ++i) {
      EXPECT_EQ(assembler.Add(good[0], 16), Outcome::kPart) << i;
      EXPECT_EQ(assembler.Add(bad[i], 16), Outcome::kMalformed) << i;
      EXPECT_EQ(assembler.Add(good[1], 16), Outcome::kMalformed) << i;
    }
    TensorChunk first = good[0];
    first.data = wire.bytes.substr(0, 1);
    EXPECT_EQ(assembler.Add(first, 16), Outcome::kMalformed);
    EXPECT_EQ(assembler.Add(ChunkAt(wire, 0), 16), Outcome::kWhole);
  }
  // Twice the bytes that it can have.
  TensorChunk chunk = ChunkAt(of_float, 0);
  chunk.in_bf16 = true;
  TensorAssembler assembler;
  EXPECT_EQ(assembler.Add(chunk, 16), Outcome::kMalformed);
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
    TensorChunk chunk = ChunkAt(Encode(tensor), 0);
    chunk.shape = shape;
    EXPECT_EQ(assembler.Add(chunk, 16), Outcome::kWrongSize);
  }
  TensorChunk chunk = ChunkAt(Encode(tensor), 0);
  chunk.shape = {2, 8};
  EXPECT_EQ(assembler.Add(chunk, 16), Outcome::kWhole);
}

}  // namespace
}  // namespace nacre::worker
