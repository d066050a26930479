// Typed access to the fields of a request. Remembers the first error and which
// fields were asked for, so that the rest are known to be unknown.
//
// Not thread-safe; borrows the object.

#ifndef GATEWAY_FIELD_READER_H_
#define GATEWAY_FIELD_READER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/api_error.h"
#include "gateway/json_body.h"

namespace nacre::gateway {

class FieldReader {
 public:
  // `prefix` stands before the names of fields in errors, as in "nacre.".
  explicit FieldReader(const OrderedJson& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The field; null where it is absent or null.
  const OrderedJson* Find(const char* key);

  // Each: nothing where the field is absent, null or wrong; the last is an
  // error that names the value and the limit.
  std::optional<bool> Bool(const char* key);
  // In [least, most].
  std::optional<double> Number(const char* key, double least, double most);
  // A whole number, 3.0 too, in [least, most].
  std::optional<int64_t> Whole(const char* key, int64_t least, int64_t most);
  static constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();
  std::optional<std::string> Text(const char* key,
                                  size_t max_bytes = kAnyBytes);
  // A string, or a list of at most `max_count`.
  std::vector<std::string> Texts(const char* key, size_t max_count,
                                 size_t max_bytes);
  std::vector<uint32_t> Ids(const char* key, size_t max_count);

  bool BoolOr(const char* key, bool fallback) {
    return Bool(key).value_or(fallback);
  }

  // Remembers the first error.
  void Fail(ApiError error);
  // That the field is not WANTED, where no error is known.
  void FailField(const char* key, const OrderedJson& found,
                 absl::string_view wanted);
  std::string NameOf(const char* key) const { return prefix_ + key; }

  const std::optional<ApiError>& error() const { return error_; }
  // Names of fields that were never asked for, in the order of the request.
  std::vector<std::string> Unknown() const;

 private:
  const OrderedJson& object_;
  const std::string prefix_;
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

// Is the name of a field one that headers and labels of metrics may hold? Of 1
// to 64 letters, digits, '_', '-' and '.'.
bool IsPlainName(absl::string_view name);

// What was found, short enough for a message.
std::string Shown(const OrderedJson& value);

}  // namespace nacre::gateway

#endif  // GATEWAY_FIELD_READER_H_
