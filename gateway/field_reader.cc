#include "gateway/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/quoted.h"

namespace nacre::gateway {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

// The whole number that a value is, if it is one of 64 bits.
std::optional<int64_t> WholeOf(const OrderedJson& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return std::nullopt;
    }
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) < 9e15) || number != std::floor(number)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

}  // namespace

bool IsPlainName(absl::string_view name) {
  constexpr size_t kMaxBytes = 64;
  return !name.empty() && name.size() <= kMaxBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '-' || c == '.';
         });
}

std::string Shown(const OrderedJson& value) {
  if (value.is_object() || value.is_array()) {
    return absl::StrCat(value.type_name(), " of ", value.size());
  }
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return Dump(value);
}

const OrderedJson* FieldReader::Find(const char* key) {
  known_.insert(key);
  const auto field = object_.find(key);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

void FieldReader::Fail(ApiError error) {
  if (!error_.has_value()) error_ = std::move(error);
}

void FieldReader::FailField(const char* key, const OrderedJson& found,
                            absl::string_view wanted) {
  Fail(BadRequest(
      absl::StrCat(NameOf(key), " is ", Shown(found), ", expected ", wanted),
      NameOf(key)));
}

std::optional<bool> FieldReader::Bool(const char* key) {
  const OrderedJson* const field = Find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_boolean()) return field->get<bool>();
  FailField(key, *field, "true or false");
  return std::nullopt;
}

std::optional<double> FieldReader::Number(const char* key, double least,
                                          double most) {
  const OrderedJson* const field = Find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_number()) {
    const auto number = field->get<double>();
    if (number >= least && number <= most) return number;
  }
  FailField(key, *field, absl::StrCat("a number in [", least, ", ", most, "]"));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Whole(const char* key, int64_t least,
                                          int64_t most) {
  const OrderedJson* const field = Find(key);
  if (field == nullptr) return std::nullopt;
  const std::optional<int64_t> number = WholeOf(*field);
  if (number.has_value() && *number >= least && *number <= most) return number;
  FailField(key, *field,
            absl::StrCat("a whole number in [", least, ", ", most, "]"));
  return std::nullopt;
}

std::optional<std::string> FieldReader::Text(const char* key,
                                             size_t max_bytes) {
  const OrderedJson* const field = Find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_string()) {
    const auto& text = field->get_ref<const std::string&>();
    if (text.size() <= max_bytes) return text;
  }
  FailField(key, *field,
            max_bytes == kAnyBytes
                ? "a string"
                : absl::StrCat("a string of at most ", max_bytes, " bytes"));
  return std::nullopt;
}

std::vector<std::string> FieldReader::Texts(const char* key, size_t max_count,
                                            size_t max_bytes) {
  const OrderedJson* const field = Find(key);
  std::vector<std::string> texts;
  if (field == nullptr) return texts;
  const OrderedJson list =
      field->is_array() ? *field : OrderedJson::array({*field});
  bool good = list.size() <= max_count;
  for (const OrderedJson& text : list) {
    good = good && text.is_string() &&
           !text.get_ref<const std::string&>().empty() &&
           text.get_ref<const std::string&>().size() <= max_bytes;
    if (good) texts.push_back(text.get<std::string>());
  }
  if (good) return texts;
  FailField(key, *field,
            absl::StrCat("a string or a list of at most ", max_count,
                         " strings, each of 1 to ", max_bytes, " bytes"));
  return {};
}

std::vector<uint32_t> FieldReader::Ids(const char* key, size_t max_count) {
  const OrderedJson* const field = Find(key);
  std::vector<uint32_t> ids;
  if (field == nullptr) return ids;
  bool good = field->is_array() && field->size() <= max_count;
  for (size_t i = 0; good && i < field->size(); ++i) {
    const std::optional<int64_t> id = WholeOf((*field)[i]);
    good = id.has_value() && *id >= 0 && *id <= kMaxId;
    if (good) ids.push_back(static_cast<uint32_t>(*id));
  }
  if (good) return ids;
  FailField(key, *field,
            absl::StrCat("a list of at most ", max_count, " token ids"));
  return {};
}

std::vector<std::string> FieldReader::Unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace nacre::gateway
