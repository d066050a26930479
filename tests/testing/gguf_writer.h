// Builds the bytes of a GGUF file, piece by piece, malformed where a test wants
// it.
//
// Thread-compatible.

#ifndef TESTS_TESTING_GGUF_WRITER_H_
#define TESTS_TESTING_GGUF_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nacre::gguf {

class GgufWriter {
 public:
  // Numbers of types of values.
  enum Type : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64,
  };

  template <class T>
  static std::string Raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static std::string RawString(absl::string_view text) {
    return absl::StrCat(Raw<uint64_t>(text.size()), text);
  }

  // A pair of any type, of raw bytes.
  GgufWriter& Pair(absl::string_view key, uint32_t type,
                   absl::string_view bytes) {
    ++num_pairs_;
    absl::StrAppend(&pairs_, RawString(key), Raw(type), bytes);
    return *this;
  }
  GgufWriter& Array(absl::string_view key, uint32_t type, uint64_t count,
                    absl::string_view bytes) {
    return Pair(key, kArray, absl::StrCat(Raw(type), Raw(count), bytes));
  }
  GgufWriter& String(absl::string_view key, absl::string_view text) {
    return Pair(key, kString, RawString(text));
  }
  GgufWriter& U32(absl::string_view key, uint32_t value) {
    return Pair(key, kU32, Raw(value));
  }
  GgufWriter& F32(absl::string_view key, float value) {
    return Pair(key, kF32, Raw(value));
  }
  GgufWriter& Bool(absl::string_view key, bool value) {
    return Pair(key, kBool, Raw<uint8_t>(value ? 1 : 0));
  }
  GgufWriter& Strings(absl::string_view key,
                      const std::vector<std::string>& texts) {
    std::string bytes;
    for (const std::string& text : texts) {
      absl::StrAppend(&bytes, RawString(text));
    }
    return Array(key, kString, texts.size(), bytes);
  }
  template <class T>
  GgufWriter& Numbers(absl::string_view key, uint32_t type,
                      const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) absl::StrAppend(&bytes, Raw(value));
    return Array(key, type, values.size(), bytes);
  }

  // `shape`: rows first.
  GgufWriter& Tensor(absl::string_view name, uint32_t type,
                     const std::vector<int64_t>& shape,
                     absl::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    Info(name, type, shape, data_.size());
    absl::StrAppend(&data_, bytes);
    return *this;
  }
  // What is said of a tensor, without bytes of its own.
  GgufWriter& Info(absl::string_view name, uint32_t type,
                   const std::vector<int64_t>& shape, uint64_t offset) {
    ++num_tensors_;
    absl::StrAppend(&infos_, RawString(name),
                    Raw(static_cast<uint32_t>(shape.size())));
    for (size_t i = shape.size(); i > 0; --i) {
      absl::StrAppend(&infos_, Raw(shape[i - 1]));
    }
    absl::StrAppend(&infos_, Raw(type), Raw(offset));
    return *this;
  }

  std::string Bytes() const {
    std::string bytes =
        absl::StrCat(magic, Raw(version), Raw(num_tensors_ + more_tensors),
                     Raw(num_pairs_ + more_pairs), pairs_, infos_);
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return bytes + data_;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  // Promised by the header and not there.
  uint64_t more_tensors = 0;
  uint64_t more_pairs = 0;

 private:
  uint64_t num_pairs_ = 0;
  uint64_t num_tensors_ = 0;
  std::string pairs_;
  std::string infos_;
  std::string data_;
};

}  // namespace nacre::gguf

#endif  // TESTS_TESTING_GGUF_WRITER_H_
