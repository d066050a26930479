#include "common/gguf/metadata.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::gguf {
namespace {

// llama.cpp's limit.
constexpr size_t kMaxKeyBytes = 65535;

// Bytes of one element; 0: strings, which tell their own.
uint64_t ElementBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

const char* TypeName(ValueType type) {
  constexpr const char* kNames[] = {
      "uint8",   "int8", "uint16", "int16",  "uint32", "int32",  "float32",
      "boolean", "text", "list",   "uint64", "int64",  "float64"};
  return kNames[static_cast<size_t>(type)];
}

template <class T>
T ElementAt(absl::string_view bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

bool IsSigned(ValueType type) {
  return type == ValueType::kInt8 || type == ValueType::kInt16 ||
         type == ValueType::kInt32 || type == ValueType::kInt64;
}

bool IsInteger(ValueType type) {
  return IsSigned(type) || type == ValueType::kUint8 ||
         type == ValueType::kUint16 || type == ValueType::kUint32 ||
         type == ValueType::kUint64;
}

// One of an integer type, as its 64 bits.
uint64_t IntegerAt(ValueType type, absl::string_view bytes, size_t index) {
  switch (ElementBytes(type)) {
    case 1:
      return IsSigned(type)
                 ? static_cast<uint64_t>(ElementAt<int8_t>(bytes, index))
                 : ElementAt<uint8_t>(bytes, index);
    case 2:
      return IsSigned(type)
                 ? static_cast<uint64_t>(ElementAt<int16_t>(bytes, index))
                 : ElementAt<uint16_t>(bytes, index);
    case 4:
      return IsSigned(type)
                 ? static_cast<uint64_t>(ElementAt<int32_t>(bytes, index))
                 : ElementAt<uint32_t>(bytes, index);
    default:
      return ElementAt<uint64_t>(bytes, index);
  }
}

absl::Status WrongType(absl::string_view key, ValueType found,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "metadata ", key, " is ", TypeName(found), ", expected ", expected));
}

absl::StatusOr<ValueType> ParseType(absl::string_view key, Cursor* cursor) {
  NACRE_ASSIGN_OR_RETURN(const uint32_t type,
                         cursor->Number<uint32_t>("a value's type"));
  if (type > static_cast<uint32_t>(ValueType::kFloat64)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", Shown(key), " has type ", type,
                     ", the known types are 0 to 12"));
  }
  return static_cast<ValueType>(type);
}

}  // namespace

absl::StatusOr<Metadata::Value> Metadata::ParseValue(absl::string_view key,
                                                     Cursor* cursor) {
  Value value;
  NACRE_ASSIGN_OR_RETURN(value.type, ParseType(key, cursor));
  if (value.type == ValueType::kArray) {
    value.is_array = true;
    NACRE_ASSIGN_OR_RETURN(value.type, ParseType(key, cursor));
    NACRE_ASSIGN_OR_RETURN(value.count,
                           cursor->Number<uint64_t>("the length of a list"));
    if (value.type == ValueType::kArray) {
      return absl::InvalidArgumentError(absl::StrCat(
          "metadata ", Shown(key), " is a list of lists, which is not read"));
    }
  }
  const std::string what = absl::StrCat("metadata ", Shown(key));
  const uint64_t begin = cursor->position();
  if (value.type == ValueType::kString) {
    for (uint64_t i = 0; i < value.count; ++i) {
      NACRE_RETURN_IF_ERROR(cursor->String(what).status());
    }
  } else {
    uint64_t size;
    if (__builtin_mul_overflow(value.count, ElementBytes(value.type), &size)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is a list of ", value.count,
                       " elements, more than any file holds"));
    }
    NACRE_RETURN_IF_ERROR(cursor->Take(size, what).status());
  }
  value.bytes = cursor->Since(begin);
  if (value.type == ValueType::kBool &&
      value.bytes.find_first_not_of(absl::string_view("\0\1", 2)) !=
          absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " holds a boolean that is neither 0 nor 1"));
  }
  return value;
}

absl::StatusOr<Metadata> Metadata::Parse(uint64_t count, Cursor* cursor) {
  Metadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    NACRE_ASSIGN_OR_RETURN(const absl::string_view key,
                           cursor->String("the key of a metadata pair"));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the key of metadata pair ", i, " has ", key.size(),
                       " bytes, expected 1 to ", kMaxKeyBytes));
    }
    NACRE_ASSIGN_OR_RETURN(Value value, ParseValue(key, cursor));
    if (!metadata.values_.emplace(key, value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", Shown(key), " is there twice"));
    }
  }
  return metadata;
}

std::vector<absl::string_view> Metadata::Keys() const {
  std::vector<absl::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

absl::StatusOr<Metadata::Value> Metadata::Find(absl::string_view key,
                                               bool is_array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return absl::NotFoundError(absl::StrCat("metadata ", key, " is missing"));
  }
  if (found->second.is_array != is_array) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", key, is_array ? " is no list" : " is a list",
                     is_array ? ", expected one" : ", expected one value"));
  }
  return found->second;
}

absl::StatusOr<absl::string_view> Metadata::String(
    absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, false));
  if (value.type != ValueType::kString) {
    return WrongType(key, value.type, "text");
  }
  return value.bytes.substr(sizeof(uint64_t));
}

absl::StatusOr<bool> Metadata::Bool(absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, false));
  if (value.type != ValueType::kBool) {
    return WrongType(key, value.type, "a boolean");
  }
  return value.bytes[0] == 1;
}

absl::StatusOr<uint64_t> Metadata::Unsigned(absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, false));
  if (!IsInteger(value.type)) return WrongType(key, value.type, "an integer");
  const uint64_t bits = IntegerAt(value.type, value.bytes, 0);
  if (IsSigned(value.type) && static_cast<int64_t>(bits) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("metadata ", key, " is ",
                                                   static_cast<int64_t>(bits),
                                                   ", expected 0 or more"));
  }
  return bits;
}

absl::StatusOr<double> Metadata::Float(absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, false));
  if (value.type == ValueType::kFloat64) {
    return ElementAt<double>(value.bytes, 0);
  }
  if (value.type != ValueType::kFloat32) {
    return WrongType(key, value.type, "a floating-point number");
  }
  return ElementAt<float>(value.bytes, 0);
}

absl::StatusOr<std::vector<absl::string_view>> Metadata::Strings(
    absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, true));
  if (value.type != ValueType::kString) {
    return WrongType(key, value.type, "a list of texts");
  }
  std::vector<absl::string_view> strings;
  strings.reserve(value.count);
  Cursor cursor(value.bytes);
  for (uint64_t i = 0; i < value.count; ++i) {
    NACRE_ASSIGN_OR_RETURN(strings.emplace_back(), cursor.String(key));
  }
  return strings;
}

absl::StatusOr<std::vector<float>> Metadata::Floats(
    absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, true));
  if (value.type != ValueType::kFloat32) {
    return WrongType(key, value.type, "a list of float32");
  }
  std::vector<float> floats(value.count);
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = ElementAt<float>(value.bytes, i);
  }
  return floats;
}

absl::StatusOr<std::vector<int32_t>> Metadata::Integers(
    absl::string_view key) const {
  NACRE_ASSIGN_OR_RETURN(const Value value, Find(key, true));
  if (value.type != ValueType::kInt32 && value.type != ValueType::kUint32) {
    return WrongType(key, value.type, "a list of int32");
  }
  std::vector<int32_t> integers(value.count);
  for (size_t i = 0; i < integers.size(); ++i) {
    integers[i] = ElementAt<int32_t>(value.bytes, i);
  }
  return integers;
}

}  // namespace nacre::gguf
