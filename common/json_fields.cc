#include "common/json_fields.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre {
namespace {

// How deep objects and arrays are within each other, as far as `text` is JSON.
int DepthOf(absl::string_view text) {
  int depth = 0;
  int most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return most;
}

template <typename AnyJson>
absl::StatusOr<AnyJson> ParseObject(absl::string_view text) {
  NACRE_RETURN_IF_ERROR(CheckJsonDepth(text, "JSON"));
  AnyJson json = AnyJson::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError("not a JSON object");
}

}  // namespace

absl::Status CheckJsonDepth(absl::string_view text, absl::string_view what) {
  if (DepthOf(text) <= kMaxJsonDepth) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is nested deeper than ", kMaxJsonDepth));
}

absl::StatusOr<Json> ParseJsonObject(absl::string_view text) {
  return ParseObject<Json>(text);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedObject(
    absl::string_view text) {
  return ParseObject<nlohmann::ordered_json>(text);
}

absl::StatusOr<Json> ParseJsonObject(absl::string_view text,
                                     absl::string_view what) {
  NACRE_RETURN_IF_ERROR(CheckJsonDepth(text, what));
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not valid JSON (", text.size(), " bytes)"));
  }
  NACRE_RETURN_IF_ERROR(CheckObject(json, what));
  return json;
}

std::vector<std::string> KeysInOrder(absl::string_view text,
                                     absl::string_view field) {
  std::vector<std::string> keys;
  if (!CheckJsonDepth(text, "JSON").ok()) return keys;
  bool is_inside = false;
  // The values are not kept.
  const auto take = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event != Json::parse_event_t::key) return true;
    if (depth == 1) is_inside = value.get<std::string>() == field;
    if (depth == 2 && is_inside) keys.push_back(value.get<std::string>());
    return depth == 1;
  };
  const Json json = Json::parse(text.begin(), text.end(), take,
                                /*allow_exceptions=*/false);
  return json.is_object() ? keys : std::vector<std::string>();
}

const Json* FindField(const Json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || field->is_null()) return nullptr;
  return &*field;
}

absl::Status TypeError(absl::string_view path, const Json& found,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is ", found.type_name(), ", expected ", expected));
}

absl::Status CheckObject(const Json& value, absl::string_view path) {
  if (value.is_object()) return absl::OkStatus();
  return TypeError(path, value, "an object");
}

absl::StatusOr<std::string> StringField(const Json& object, const char* key,
                                        absl::string_view path) {
  const Json* const field = FindField(object, key);
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".", key, " is missing"));
  }
  if (!field->is_string()) {
    return TypeError(absl::StrCat(path, ".", key), *field, "a string");
  }
  return field->get<std::string>();
}

absl::StatusOr<std::string> StringFieldOr(const Json& object, const char* key,
                                          absl::string_view fallback,
                                          absl::string_view path) {
  if (FindField(object, key) == nullptr) return std::string(fallback);
  return StringField(object, key, path);
}

absl::StatusOr<std::optional<bool>> OptionalBoolField(const Json& object,
                                                      const char* key,
                                                      absl::string_view path) {
  const Json* const field = FindField(object, key);
  if (field == nullptr) return std::optional<bool>();
  if (!field->is_boolean()) {
    return TypeError(absl::StrCat(path, ".", key), *field, "a boolean");
  }
  return std::optional<bool>(field->get<bool>());
}

absl::StatusOr<bool> BoolFieldOr(const Json& object, const char* key,
                                 bool fallback, absl::string_view path) {
  NACRE_ASSIGN_OR_RETURN(const std::optional<bool> value,
                         OptionalBoolField(object, key, path));
  return value.value_or(fallback);
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

absl::Status BadField(absl::string_view key, const Json& value,
                      absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key, "\" is ", JsonText(value), ", not ", wanted));
}

absl::StatusOr<double> NumberUpTo(absl::string_view key, const Json& value,
                                  double max) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  // Written so that NaN fails.
  if (!(number >= 0.0 && number <= max)) {
    return BadField(key, value, absl::StrCat("a number in [0, ", max, "]"));
  }
  return number;
}

absl::StatusOr<int64_t> WholeNumberUpTo(absl::string_view key,
                                        const Json& value, int64_t max) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(max)) {
    return BadField(key, value,
                    absl::StrCat("a whole number in [0, ", max, "]"));
  }
  return value.get<int64_t>();
}

}  // namespace nacre
