// A reader of the protobuf wire format, for the one message that is read here
// (a SentencePiece model). Borrows the bytes; no recursion, no allocation.
// Source: "Encoding", protobuf.dev.

#ifndef TOKENIZER_PROTO_WIRE_H_
#define TOKENIZER_PROTO_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message. What is set depends on the wire type.
struct ProtoField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;      // kVarint, kFixed64 and kFixed32
  absl::string_view bytes;  // kBytes
  size_t offset = 0;        // of the field in the message, for messages
};

class ProtoReader {
 public:
  // `name` says in error messages which message this is.
  ProtoReader(absl::string_view message, std::string name)
      : message_(message), name_(std::move(name)) {}

  bool done() const { return position_ == message_.size(); }

  // The next field. DATA_LOSS: the message is cut off, a varint is longer than
  // ten bytes, a length runs past the end, or a wire type is unknown.
  absl::StatusOr<ProtoField> Next();

  // Typed views of a field. DATA_LOSS: the field has another wire type.
  absl::StatusOr<absl::string_view> Bytes(const ProtoField& field) const;
  absl::StatusOr<int64_t> Varint(const ProtoField& field) const;
  absl::StatusOr<float> Float(const ProtoField& field) const;

 private:
  absl::StatusOr<uint64_t> ReadVarint();
  absl::Status CheckType(const ProtoField& field, WireType type) const;
  absl::Status Error(size_t offset, absl::string_view what) const;

  absl::string_view message_;
  std::string name_;
  size_t position_ = 0;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PROTO_WIRE_H_
