#include "common/rpc/grpc_status.h"

#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/refusal.h"

namespace nacre::rpc {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// google/rpc/status.proto and error_details.proto, which no package of Debian
// has: field by field.
constexpr int kStatusCode = 1;
constexpr int kStatusMessage = 2;
constexpr int kStatusDetails = 3;  // google.protobuf.Any
constexpr int kAnyTypeUrl = 1;
constexpr int kAnyValue = 2;
constexpr int kErrorInfoReason = 1;
constexpr int kErrorInfoDomain = 2;
constexpr int kRetryInfoDelay = 1;  // google.protobuf.Duration
constexpr int kDurationSeconds = 1;

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kDomain[] = "nacre";

std::string Serialized(const UnknownFieldSet& message) {
  std::string bytes;
  message.SerializeToString(&bytes);
  return bytes;
}

void AddDetail(const char* type, const UnknownFieldSet& detail,
               UnknownFieldSet* status) {
  UnknownFieldSet any;
  any.AddLengthDelimited(kAnyTypeUrl, type);
  any.AddLengthDelimited(kAnyValue, Serialized(detail));
  status->AddLengthDelimited(kStatusDetails, Serialized(any));
}

std::string DetailsOf(const absl::Status& status, const Refusal& refusal) {
  UnknownFieldSet message;
  message.AddVarint(kStatusCode, static_cast<uint64_t>(status.code()));
  message.AddLengthDelimited(kStatusMessage, std::string(status.message()));
  UnknownFieldSet info;
  info.AddLengthDelimited(kErrorInfoReason, refusal.reason);
  info.AddLengthDelimited(kErrorInfoDomain, kDomain);
  AddDetail(kErrorInfo, info, &message);
  if (refusal.retry_after_s > 0) {
    UnknownFieldSet delay;
    delay.AddVarint(kDurationSeconds,
                    static_cast<uint64_t>(refusal.retry_after_s));
    UnknownFieldSet retry;
    retry.AddLengthDelimited(kRetryInfoDelay, Serialized(delay));
    AddDetail(kRetryInfo, retry, &message);
  }
  return Serialized(message);
}

// The last field of that number and type; null: there is none.
const UnknownField* FieldIn(const UnknownFieldSet& message, int number,
                            UnknownField::Type type) {
  const UnknownField* found = nullptr;
  for (int i = 0; i < message.field_count(); ++i) {
    const UnknownField& field = message.field(i);
    if (field.number() == number && field.type() == type) found = &field;
  }
  return found;
}

// Empty where it is none.
std::string TextIn(const UnknownFieldSet& message, int number) {
  const UnknownField* const field =
      FieldIn(message, number, UnknownField::TYPE_LENGTH_DELIMITED);
  return field == nullptr ? "" : field->length_delimited();
}

void TakeDetail(const std::string& bytes, absl::optional<std::string>* reason,
                int64_t* retry_after_s) {
  UnknownFieldSet any;
  UnknownFieldSet detail;
  if (!any.ParseFromString(bytes) ||
      !detail.ParseFromString(TextIn(any, kAnyValue))) {
    return;
  }
  const std::string type = TextIn(any, kAnyTypeUrl);
  if (type == kErrorInfo && TextIn(detail, kErrorInfoDomain) == kDomain) {
    *reason = TextIn(detail, kErrorInfoReason);
  } else if (type == kRetryInfo) {
    UnknownFieldSet delay;
    if (!delay.ParseFromString(TextIn(detail, kRetryInfoDelay))) return;
    const UnknownField* const seconds =
        FieldIn(delay, kDurationSeconds, UnknownField::TYPE_VARINT);
    // A year is more than any server means.
    constexpr uint64_t kMost = uint64_t{366} * 24 * 3600;
    if (seconds == nullptr || seconds->varint() > kMost) return;
    *retry_after_s = static_cast<int64_t>(seconds->varint());
  }
}

absl::optional<Refusal> RefusalIn(const std::string& details) {
  UnknownFieldSet message;
  if (details.empty() || !message.ParseFromString(details)) {
    return absl::nullopt;
  }
  absl::optional<std::string> reason;
  int64_t retry_after_s = 0;
  for (int i = 0; i < message.field_count(); ++i) {
    const UnknownField& field = message.field(i);
    if (field.number() == kStatusDetails &&
        field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      TakeDetail(field.length_delimited(), &reason, &retry_after_s);
    }
  }
  if (!reason.has_value()) return absl::nullopt;
  return Refusal{*std::move(reason), retry_after_s};
}

}  // namespace

// Both enumerations are google.rpc.Code: the numbers agree. code() and not
// raw_code(): a code that is none of them becomes UNKNOWN.
grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::optional<Refusal> refusal = RefusalOf(status);
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()),
      std::string(status.message()),
      refusal.has_value() ? DetailsOf(status, *refusal) : std::string());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  const absl::optional<Refusal> refusal = RefusalIn(status.error_details());
  return refusal.has_value() ? WithRefusal(std::move(result), *refusal)
                             : result;
}

}  // namespace nacre::rpc
