// JSON that others wrote, and typed access to the fields of its objects. Every
// error is INVALID_ARGUMENT and names the field and what was found there.
//
// All JSON of files is parsed here: tools/check_layout.py asks for it.
//
// Pure functions.

#ifndef COMMON_JSON_FIELDS_H_
#define COMMON_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json.h"

namespace nacre {

using Json = nlohmann::json;

// Objects and arrays within each other. The library writes, compares and copies
// a value by one call for each: a text of many ends the process.
inline constexpr int kMaxJsonDepth = 64;

// An error if `text` is nested deeper. Of what is no JSON it may say either.
absl::Status CheckJsonDepth(absl::string_view text, absl::string_view what);

// Parses `text`, which must be one JSON object. `what` names it in errors.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text,
                                     absl::string_view what);
// The same for a caller that says itself where the text is from: "not a JSON
// object".
absl::StatusOr<Json> ParseJsonObject(absl::string_view text);
// One that keeps the order of its keys.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedObject(
    absl::string_view text);

// The keys of the object `field` of the JSON object `text`, in their order. One
// that is there twice is there twice. Empty where there is no such object.
std::vector<std::string> KeysInOrder(absl::string_view text,
                                     absl::string_view field);

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
