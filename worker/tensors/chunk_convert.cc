#include "worker/tensors/chunk_convert.h"

#include <cstdint>
#include <limits>
#include <string>

namespace nacre::worker {
namespace {

bool FitsInt(uint32_t value) {
  return value <= static_cast<uint32_t>(std::numeric_limits<int>::max());
}

}  // namespace

void FillChunk(const TensorChunk& chunk, v1::TensorChunk* proto) {
  proto->set_channel(chunk.tag.channel);
  proto->set_epoch(chunk.tag.epoch);
  proto->set_position(static_cast<uint32_t>(chunk.tag.position));
  proto->set_layer(static_cast<uint32_t>(chunk.tag.layer));
  proto->set_after_norm(chunk.tag.after_norm);
  if (chunk.tag.is_rows) proto->set_kind(v1::TENSOR_KIND_ROWS);
  for (const int size : chunk.shape) {
    proto->add_shape(static_cast<uint32_t>(size));
  }
  proto->set_type(chunk.in_bf16 ? v1::ELEMENT_TYPE_BF16 : v1::ELEMENT_TYPE_F32);
  proto->set_offset(chunk.offset);
  proto->set_data(chunk.data.data(), chunk.data.size());
}

bool ToChunk(const v1::TensorChunk& proto, TensorChunk* chunk) {
  if ((proto.type() != v1::ELEMENT_TYPE_F32 &&
       proto.type() != v1::ELEMENT_TYPE_BF16) ||
      !v1::TensorKind_IsValid(proto.kind()) || !FitsInt(proto.position()) ||
      !FitsInt(proto.layer())) {
    return false;
  }
  chunk->tag.channel = proto.channel();
  chunk->tag.epoch = proto.epoch();
  chunk->tag.position = static_cast<int>(proto.position());
  chunk->tag.layer = static_cast<int>(proto.layer());
  chunk->tag.after_norm = proto.after_norm();
  chunk->tag.is_rows = proto.kind() == v1::TENSOR_KIND_ROWS;
  chunk->shape.clear();
  for (const uint32_t size : proto.shape()) {
    if (!FitsInt(size)) return false;
    chunk->shape.push_back(static_cast<int>(size));
  }
  chunk->in_bf16 = proto.type() == v1::ELEMENT_TYPE_BF16;
  chunk->offset = proto.offset();
  chunk->data = proto.data();
  return true;
}

}  // namespace nacre::worker
