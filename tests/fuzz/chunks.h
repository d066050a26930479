// Cuts a fuzzer's input into chunks, so that one input is a whole conversation:
// a byte that says what to do, two bytes of length (little-endian, cut off at
// the end of the input), and so many bytes. Any input is valid.

#ifndef TESTS_FUZZ_CHUNKS_H_
#define TESTS_FUZZ_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nacre::fuzz {

struct Chunk {
  uint8_t op = 0;
  const uint8_t* data = nullptr;
  int size = 0;
};

class ChunkReader {
 public:
  ChunkReader(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  // False at the end, and after `kMaxChunks`: conversations stay short.
  bool Next(Chunk* chunk) {
    if (left_ < 3 || num_chunks_++ == kMaxChunks) return false;
    const size_t wanted = data_[1] | data_[2] << 8;
    *chunk = {data_[0], data_ + 3,
              static_cast<int>(std::min(wanted, left_ - 3))};
    data_ += 3 + chunk->size;
    left_ -= 3 + chunk->size;
    return true;
  }

  // Whether the chunk is a message of this type, which *message then is.
  template <typename Message>
  static bool Parse(const Chunk& chunk, Message* message) {
    return message->ParseFromArray(chunk.data, chunk.size);
  }

 private:
  static constexpr int kMaxChunks = 64;

  const uint8_t* data_;
  size_t left_;
  int num_chunks_ = 0;
};

}  // namespace nacre::fuzz

#endif  // TESTS_FUZZ_CHUNKS_H_
