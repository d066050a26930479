// The key-value pairs at the head of a GGUF file. Values stay where they are in
// the file's bytes until they are asked for: a vocabulary costs no memory
// before.
//
// Immutable after Parse, thread-safe. Borrows the bytes.

#ifndef COMMON_GGUF_METADATA_H_
#define COMMON_GGUF_METADATA_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/cursor.h"

namespace nacre::gguf {

// As in the file.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

class Metadata {
 public:
  // Reads `count` pairs. INVALID_ARGUMENT names the key. It is empty or there
  // twice, its type is unknown, it is an array of arrays, or a bool is neither
  // 0 nor 1.
  static absl::StatusOr<Metadata> Parse(uint64_t count, Cursor* cursor);

  bool Has(absl::string_view key) const { return values_.contains(key); }
  // Sorted.
  std::vector<absl::string_view> Keys() const;

  // NOT_FOUND: there is no such key. INVALID_ARGUMENT: it has another type.
  absl::StatusOr<absl::string_view> String(absl::string_view key) const;
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  // Of any type of integers; INVALID_ARGUMENT also if it is negative.
  absl::StatusOr<uint64_t> Unsigned(absl::string_view key) const;
  // Of either type of floating point.
  absl::StatusOr<double> Float(absl::string_view key) const;
  // Arrays of these.
  absl::StatusOr<std::vector<absl::string_view>> Strings(
      absl::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> Integers(absl::string_view key) const;

  // Of keys that may be absent.
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool fallback) const {
    return Has(key) ? Bool(key) : fallback;
  }
  absl::StatusOr<uint64_t> UnsignedOr(absl::string_view key,
                                      uint64_t fallback) const {
    return Has(key) ? Unsigned(key) : fallback;
  }

 private:
  struct Value {
    ValueType type = ValueType::kUint8;  // of an array, of its elements
    bool is_array = false;
    uint64_t count = 1;
    absl::string_view bytes;  // of all elements
  };

  static absl::StatusOr<Value> ParseValue(absl::string_view key,
                                          Cursor* cursor);
  absl::StatusOr<Value> Find(absl::string_view key, bool is_array) const;

  std::map<absl::string_view, Value> values_;
};

}  // namespace nacre::gguf

#endif  // COMMON_GGUF_METADATA_H_
