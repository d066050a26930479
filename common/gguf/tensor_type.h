// The types of elements that a tensor of a GGUF file can have: blocks of so
// many elements in so many bytes. Numbers and sizes are ggml's.
//
// Constant data and pure functions.

#ifndef COMMON_GGUF_TENSOR_TYPE_H_
#define COMMON_GGUF_TENSOR_TYPE_H_

#include <cstdint>

namespace nacre::gguf {

struct TensorType {
  uint32_t id;  // in the file
  const char* name;
  uint64_t block_elements;
  uint64_t block_bytes;
};

// Null: not known.
const TensorType* FindTensorType(uint32_t id);

}  // namespace nacre::gguf

#endif  // COMMON_GGUF_TENSOR_TYPE_H_
