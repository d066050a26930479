#include "model/config_fields.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nacre::model {

std::string ShownJson(const Json& value) {
  std::string text = JsonText(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

bool IsAbsent(const Json& object, const char* field) {
  return FindField(object, field) == nullptr;
}

absl::StatusOr<int> IntInRange(const char* field, const Json& value, int min,
                               int max) {
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned()
                         ? value.get<uint64_t>() <= static_cast<uint64_t>(max)
                         : value.get<int64_t>() <= max) &&
                    value.get<int64_t>() >= min;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", ShownJson(value),
                     ", expected an integer from ", min, " to ", max));
  }
  return value.get<int>();
}

absl::StatusOr<int> RequiredInt(const Json& object, const char* field,
                                int max) {
  const Json* const value = FindField(object, field);
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is missing"));
  }
  return IntInRange(field, *value, 1, max);
}

absl::StatusOr<int> IntOr(const Json& object, const char* field, int fallback,
                          int min, int max) {
  const Json* const value = FindField(object, field);
  return value == nullptr ? fallback : IntInRange(field, *value, min, max);
}

absl::StatusOr<double> PositiveOr(const Json& object, const char* field,
                                  double fallback, double max) {
  const Json* const found = FindField(object, field);
  if (found == nullptr) return fallback;
  const Json& value = *found;
  if (!value.is_number() || !(value.get<double>() > 0) ||
      !(value.get<double>() <= max)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", ShownJson(value),
                     ", expected a number > 0 and <= ", max));
  }
  return value.get<double>();
}

absl::StatusOr<bool> BoolOr(const Json& object, const char* field,
                            bool fallback) {
  const Json* const value = FindField(object, field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, " is ", ShownJson(*value), ", expected true or false"));
  }
  return value->get<bool>();
}

}  // namespace nacre::model
