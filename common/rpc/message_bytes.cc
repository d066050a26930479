#include "common/rpc/message_bytes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"

namespace nacre::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxDepth = 32;

absl::Status NoMessage(const Descriptor* type) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are no ", type->name()));
}

// Counts the fields that cost more than their bytes, and skips the rest.
class FieldCounter {
 public:
  FieldCounter(CodedInputStream* input, int max_fields)
      : input_(input), max_fields_(max_fields) {}

  bool too_many() const { return num_fields_ > max_fields_; }
  // A message, up to the input's limit. False: too many, or no message.
  bool Count(const Descriptor* type, int depth) {
    while (const uint32_t tag = input_->ReadTag()) {
      const FieldDescriptor* field =
          type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const WireFormatLite::WireType wire_type =
          WireFormatLite::GetTagWireType(tag);
      // No proto3 message has groups; what is in one would not be counted.
      if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) return false;
      const bool has_length =
          wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      if (!IsCheap(field, wire_type) && ++num_fields_ > max_fields_) {
        return false;
      }
      if (has_length && field != nullptr &&
          field->type() == FieldDescriptor::TYPE_MESSAGE) {
        if (!CountMessage(field->message_type(), depth + 1)) return false;
      } else if (!WireFormatLite::SkipField(input_, tag)) {
        return false;
      }
    }
    return input_->ConsumedEntireMessage();
  }

 private:
  // Numbers, packed or not. Written in another way than its schema says, a
  // field is as good as unknown.
  static bool IsCheap(const FieldDescriptor* field,
                      WireFormatLite::WireType wire_type) {
    if (field == nullptr) return false;
    if (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return field->is_packable();
    }
    return WireFormatLite::WireTypeForFieldType(
               static_cast<WireFormatLite::FieldType>(field->type())) ==
           wire_type;
  }

  bool CountMessage(const Descriptor* type, int depth) {
    int size = 0;
    if (depth > kMaxDepth || !input_->ReadVarintSizeAsInt(&size)) return false;
    const CodedInputStream::Limit limit = input_->PushLimit(size);
    const bool ok = Count(type, depth) && input_->BytesUntilLimit() == 0;
    input_->PopLimit(limit);
    return ok;
  }

  CodedInputStream* const input_;
  const int max_fields_;
  int num_fields_ = 0;
};

}  // namespace

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, int max_fields,
                          google::protobuf::Message* message) {
  const Descriptor* type = message->GetDescriptor();
  grpc::ByteBuffer copy = bytes;  // of references
  {
    grpc::ProtoBufferReader reader(&copy);
    CodedInputStream input(&reader);
    FieldCounter counter(&input, max_fields);
    if (!reader.status().ok()) return NoMessage(type);
    if (!counter.Count(type, 0)) {
      if (!counter.too_many()) return NoMessage(type);
      return absl::InvalidArgumentError(
          absl::StrCat("the ", type->name(), " has more than ", max_fields,
                       " strings, messages and unknown fields"));
    }
  }
  grpc::ProtoBufferReader reader(&copy);
  return message->ParseFromZeroCopyStream(&reader) ? absl::OkStatus()
                                                   : NoMessage(type);
}

}  // namespace nacre::rpc
