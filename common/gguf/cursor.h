// Reads the numbers and strings of a GGUF file one after another. Borrows the
// bytes. DATA_LOSS where the file ends before what it promises.
//
// Thread-compatible.

#ifndef COMMON_GGUF_CURSOR_H_
#define COMMON_GGUF_CURSOR_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace nacre::gguf {

static_assert(std::endian::native == std::endian::little,
              "GGUF files that are read hold little-endian numbers");

// Names come from the file: in quotes, one short line of ASCII.
inline std::string Shown(absl::string_view name) {
  constexpr size_t kMaxBytes = 96;
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxBytes)),
                      name.size() > kMaxBytes ? "...\"" : "\"");
}

class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  absl::string_view Since(uint64_t begin) const {
    return bytes_.substr(begin, position_ - begin);
  }

  // `what` names what is read, for errors.
  absl::StatusOr<absl::string_view> Take(uint64_t size,
                                         absl::string_view what) {
    if (size > bytes_.size() - position_) {
      return absl::DataLossError(absl::StrCat(
          what, " at byte ", position_, " needs ", size,
          " bytes, but the file has ", bytes_.size(), ": it is truncated"));
    }
    const absl::string_view taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }

  template <class T>
  absl::StatusOr<T> Number(absl::string_view what) {
    NACRE_ASSIGN_OR_RETURN(const absl::string_view taken,
                           Take(sizeof(T), what));
    T value;
    std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  // Its length, then its bytes.
  absl::StatusOr<absl::string_view> String(absl::string_view what) {
    NACRE_ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>(what));
    return Take(size, what);
  }

 private:
  absl::string_view bytes_;
  uint64_t position_ = 0;
};

}  // namespace nacre::gguf

#endif  // COMMON_GGUF_CURSOR_H_
