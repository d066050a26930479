#include "tokenizer/proto_wire.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::tokenizer {

absl::Status ProtoReader::Error(size_t offset, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(name_, ": ", what, " at byte ",
                                          offset, " of ", message_.size()));
}

absl::StatusOr<uint64_t> ProtoReader::ReadVarint() {
  const size_t begin = position_;
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (done()) return Error(begin, "varint is cut off");
    const uint8_t byte = static_cast<uint8_t>(message_[position_++]);
    // The tenth byte holds bit 63 only.
    if (shift == 63 && byte > 1) break;
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return Error(begin, "varint does not fit 64 bits");
}

absl::StatusOr<ProtoField> ProtoReader::Next() {
  ProtoField field;
  field.offset = position_;
  NACRE_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
  if (tag >> 3 == 0 || tag >> 3 >= (1u << 29)) {
    return Error(field.offset,
                 absl::StrCat("field number ", tag >> 3, " is not valid"));
  }
  field.number = static_cast<uint32_t>(tag >> 3);
  const size_t fixed_size = (tag & 7) == 1 ? 8 : 4;
  switch (tag & 7) {
    case 0: {
      field.type = WireType::kVarint;
      NACRE_ASSIGN_OR_RETURN(field.varint, ReadVarint());
      return field;
    }
    case 1:
    case 5: {
      field.type = (tag & 7) == 1 ? WireType::kFixed64 : WireType::kFixed32;
      if (message_.size() - position_ < fixed_size) {
        return Error(field.offset,
                     absl::StrCat("field ", field.number, " is cut off"));
      }
      for (size_t i = 0; i < fixed_size; ++i) {
        const uint8_t byte = static_cast<uint8_t>(message_[position_ + i]);
        field.varint |= uint64_t{byte} << (8 * i);
      }
      position_ += fixed_size;
      return field;
    }
    case 2: {
      field.type = WireType::kBytes;
      NACRE_ASSIGN_OR_RETURN(const uint64_t length, ReadVarint());
      if (length > message_.size() - position_) {
        return Error(
            field.offset,
            absl::StrCat("field ", field.number, " has ", length, " bytes, ",
                         message_.size() - position_, " are left,"));
      }
      field.bytes = message_.substr(position_, length);
      position_ += length;
      return field;
    }
    default:
      return Error(field.offset,
                   absl::StrCat("field ", field.number, " has wire type ",
                                tag & 7, ", which is not supported,"));
  }
}

absl::Status ProtoReader::CheckType(const ProtoField& field,
                                    WireType type) const {
  if (field.type == type) return absl::OkStatus();
  return Error(field.offset,
               absl::StrCat("field ", field.number, " has wire type ",
                            static_cast<int>(field.type), " instead of ",
                            static_cast<int>(type)));
}

absl::StatusOr<absl::string_view> ProtoReader::Bytes(
    const ProtoField& field) const {
  NACRE_RETURN_IF_ERROR(CheckType(field, WireType::kBytes));
  return field.bytes;
}

absl::StatusOr<int64_t> ProtoReader::Varint(const ProtoField& field) const {
  NACRE_RETURN_IF_ERROR(CheckType(field, WireType::kVarint));
  return static_cast<int64_t>(field.varint);
}

absl::StatusOr<float> ProtoReader::Float(const ProtoField& field) const {
  NACRE_RETURN_IF_ERROR(CheckType(field, WireType::kFixed32));
  const uint32_t bits = static_cast<uint32_t>(field.varint);
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace nacre::tokenizer
