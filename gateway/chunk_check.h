// Whether what frames a chunked body is what all servers read in one way: the
// lines of chunk sizes, the ends of chunks, and trailers. Looks on while the
// library parses the same bytes, which reads more leniently.
//
// Thread-compatible; pure.

#ifndef GATEWAY_CHUNK_CHECK_H_
#define GATEWAY_CHUNK_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/api_error.h"

namespace nacre::gateway {

class ChunkCheck {
 public:
  // `max_line_bytes` of a chunk's size with its extensions, and of all trailers
  // together.
  explicit ChunkCheck(size_t max_line_bytes)
      : max_line_bytes_(max_line_bytes) {}

  // Looks at what has been added to the bytes that came and are not parsed. An
  // error is for good: 400, with what is wrong. What follows the body is not
  // looked at.
  std::optional<ApiError> Check(absl::string_view unparsed);
  // So many of them are parsed: the next begin after these.
  void Parsed(size_t bytes) { looked_at_ -= bytes; }

 private:
  enum class State { kSize, kData, kDataEnd, kTrailers, kEnd };

  std::optional<ApiError> Take(absl::string_view bytes);
  // The line that `line_` holds, without its end.
  std::optional<ApiError> TakeLine();
  std::optional<ApiError> TakeSize();
  std::optional<ApiError> TakeTrailer();

  const size_t max_line_bytes_;
  size_t looked_at_ = 0;  // of what is not parsed
  State state_ = State::kSize;
  std::string line_;
  size_t trailer_bytes_ = 0;
  uint64_t left_ = 0;  // of the chunk's data
};

}  // namespace nacre::gateway

#endif  // GATEWAY_CHUNK_CHECK_H_
