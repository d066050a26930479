// Any bytes as the chunks of a peer that publishes tensors: what is put
// together from them is whole, of the size expected, and the bytes that came,
// of either type.
//
// An op is the number of values that the chunk's channel expects.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/check.h"
#include "kernels/dtype.h"
#include "proto/tensors.pb.h"
#include "tests/fuzz/chunks.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/tensor_chunks.h"

namespace {

// As one that rounds to bf16 writes them.
void QuietNaNs(std::string* bytes) {
  for (size_t i = 0; i + 1 < bytes->size(); i += sizeof(uint16_t)) {
    uint16_t half;
    std::memcpy(&half, bytes->data() + i, sizeof half);
    half = nacre::kernels::ToBF16(nacre::kernels::FromBF16(half));
    std::memcpy(bytes->data() + i, &half, sizeof half);
  }
}

}  // namespace

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
    const size_t element = chunk.in_bf16 ? sizeof(uint16_t) : sizeof(float);
    NACRE_CHECK(
        (bytes.size() == expected * element) == (outcome == Outcome::kWhole),
        "whole or not");
    if (outcome != Outcome::kWhole) continue;
    const worker::Tensor tensor = assembler.TakeTensor();
    NACRE_CHECK(tensor.values.size() == expected, "another size");
    NACRE_CHECK(tensor.tag == chunk.tag && tensor.shape == chunk.shape,
                "another tensor");
    NACRE_CHECK(tensor.in_bf16 == chunk.in_bf16, "another type");
    if (tensor.in_bf16) QuietNaNs(&bytes);
    const worker::WireTensor wire = worker::Encode(tensor);
    nacre::v1::TensorChunk again;
    worker::FillChunk(worker::ChunkAt(wire, 0), &again);
    NACRE_CHECK(again.data() == bytes, "not the same on the way back");
    bytes.clear();
  }
  return 0;
}
