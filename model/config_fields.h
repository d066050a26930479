// Reads the fields of a config.json, each checked: INVALID_ARGUMENT names the
// field, its value and what was expected. A field that is null counts as
// absent, as in Hugging Face.
//
// Pure functions.

#ifndef MODEL_CONFIG_FIELDS_H_
#define MODEL_CONFIG_FIELDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/json_fields.h"

namespace nacre::model {

// Positions of a context that any number of a config may name.
inline constexpr int kMaxContext = 1 << 24;

// For messages: huge strings and structures are cut.
std::string ShownJson(const Json& value);

bool IsAbsent(const Json& object, const char* field);

absl::StatusOr<int> IntInRange(const char* field, const Json& value, int min,
                               int max);

// From 1 to `max`; an absent field is an error.
absl::StatusOr<int> RequiredInt(const Json& object, const char* field, int max);

absl::StatusOr<int> IntOr(const Json& object, const char* field, int fallback,
                          int min, int max);

// Greater than 0 and at most `max`.
absl::StatusOr<double> PositiveOr(const Json& object, const char* field,
                                  double fallback, double max);

absl::StatusOr<bool> BoolOr(const Json& object, const char* field,
                            bool fallback);

}  // namespace nacre::model

#endif  // MODEL_CONFIG_FIELDS_H_
