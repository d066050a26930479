// Any bytes as the chunks of a peer that publishes tensors: what is put
// together from them is whole, of the size expected, and the bytes that came.
//
// An op is the number of values that the chunk's channel expects.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/check.h"
#include "proto/tensors.pb.h"
#include "tests/fuzz/chunks.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/tensor_chunks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = nacre::fuzz;
  namespace worker = nacre::worker;
  using Outcome = worker::TensorAssembler::Outcome;
  worker::TensorAssembler assembler;
  std::string bytes;  // of the tensor under way
  fuzz::ChunkReader reader(data, size);
  fuzz::Chunk piece;
  while (reader.Next(&piece)) {
    nacre::v1::TensorEvent event;
    if (!fuzz::ChunkReader::Parse(piece, &event)) continue;
    worker::TensorChunk chunk;
    if (!worker::ToChunk(event.chunk(), &chunk)) continue;
    const size_t expected = piece.op;
    const Outcome outcome = assembler.Add(chunk, expected);
    if (chunk.offset == 0) bytes.clear();
    if (outcome == Outcome::kMalformed || outcome == Outcome::kWrongSize) {
      bytes.clear();
      continue;
    }
    NACRE_CHECK(chunk.offset == bytes.size(), "a hole");
    bytes.append(chunk.data.data(), chunk.data.size());
    NACRE_CHECK((bytes.size() == expected * sizeof(float)) ==
                    (outcome == Outcome::kWhole),
                "whole or not");
    if (outcome != Outcome::kWhole) continue;
    const worker::Tensor tensor = assembler.TakeTensor();
    NACRE_CHECK(tensor.values.size() == expected, "another size");
    NACRE_CHECK(tensor.tag == chunk.tag && tensor.shape == chunk.shape,
                "another tensor");
    NACRE_CHECK(
        std::memcmp(tensor.values.data(), bytes.data(), bytes.size()) == 0,
        "other values");
    nacre::v1::TensorChunk again;
    worker::FillChunk(worker::ChunkAt(tensor, 0), &again);
    NACRE_CHECK(again.data() == bytes, "not the same on the way back");
    bytes.clear();
  }
  return 0;
}
