// Typed access to the fields of a JSON object. Every error is INVALID_ARGUMENT
// and names the field and what was found there.
//
// Pure functions.

#ifndef COMMON_JSON_FIELDS_H_
#define COMMON_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre {

using Json = nlohmann::json;

// Parses `text`, which must be one JSON object. `what` names it in errors.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text,
                                     absl::string_view what);

// The field, or nullptr when it is absent or null. `object` must be an object.
const Json* FindField(const Json& object, const char* key);

// "PATH is a number, expected a string".
absl::Status TypeError(absl::string_view path, const Json& found,
                       absl::string_view expected);

// An error unless `value` is an object.
absl::Status CheckObject(const Json& value, absl::string_view path);

// A required string.
absl::StatusOr<std::string> StringField(const Json& object, const char* key,
                                        absl::string_view path);
// Optional fields: absent and null give the fallback.
absl::StatusOr<std::string> StringFieldOr(const Json& object, const char* key,
                                          absl::string_view fallback,
                                          absl::string_view path);
absl::StatusOr<bool> BoolFieldOr(const Json& object, const char* key,
                                 bool fallback, absl::string_view path);
absl::StatusOr<std::optional<bool>> OptionalBoolField(const Json& object,
                                                      const char* key,
                                                      absl::string_view path);

// In one line of ASCII, whatever bytes its strings have: for messages.
std::string JsonText(const Json& value);

// "\"KEY\" is VALUE, not WANTED".
absl::Status BadField(absl::string_view key, const Json& value,
                      absl::string_view wanted);

// A number in [0, max].
absl::StatusOr<double> NumberUpTo(absl::string_view key, const Json& value,
                                  double max);
// A whole number in [0, max].
absl::StatusOr<int64_t> WholeNumberUpTo(absl::string_view key,
                                        const Json& value, int64_t max);

}  // namespace nacre

#endif  // COMMON_JSON_FIELDS_H_
