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
constexpr int kBadRequestViolations = 1;  // FieldViolation
constexpr int kViolationField = 1;
constexpr int kViolationDescription = 2;

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kBadRequest[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr char kDomain[] = "nacre";
// Of a name that a server says: ours are much shorter.
constexpr size_t kMaxFieldBytes = 256;
// Of a message that a violation says once more: clients take headers of 8 KiB.
constexpr size_t kMaxRepeatedBytes = 256;

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

void AddRefusal(const Refusal& refusal, UnknownFieldSet* message) {
  UnknownFieldSet info;
  info.AddLengthDelimited(kErrorInfoReason, refusal.reason);
  info.AddLengthDelimited(kErrorInfoDomain, kDomain);
  AddDetail(kErrorInfo, info, message);
  if (refusal.retry_after_s > 0) {
    UnknownFieldSet delay;
    delay.AddVarint(kDurationSeconds,
                    static_cast<uint64_t>(refusal.retry_after_s));
    UnknownFieldSet retry;
    retry.AddLengthDelimited(kRetryInfoDelay, Serialized(delay));
    AddDetail(kRetryInfo, retry, message);
  }
}

// Empty where there are none.
std::string DetailsOf(const absl::Status& status) {
  const absl::optional<Refusal> refusal = RefusalOf(status);
  const std::string field = FieldOf(status);
  if (!refusal.has_value() && field.empty()) return "";
  UnknownFieldSet message;
  message.AddVarint(kStatusCode, static_cast<uint64_t>(status.code()));
  message.AddLengthDelimited(kStatusMessage, std::string(status.message()));
  if (refusal.has_value()) AddRefusal(*refusal, &message);
  if (!field.empty()) {
    UnknownFieldSet violation;
    violation.AddLengthDelimited(kViolationField, field);
    if (status.message().size() <= kMaxRepeatedBytes) {
      violation.AddLengthDelimited(kViolationDescription,
                                   std::string(status.message()));
    }
    UnknownFieldSet bad;
    bad.AddLengthDelimited(kBadRequestViolations, Serialized(violation));
    AddDetail(kBadRequest, bad, &message);
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

struct Details {
  absl::optional<std::string> reason;
  int64_t retry_after_s = 0;
  std::string field;
};

int64_t SecondsOf(const UnknownFieldSet& retry) {
  UnknownFieldSet delay;
  if (!delay.ParseFromString(TextIn(retry, kRetryInfoDelay))) return 0;
  const UnknownField* const seconds =
      FieldIn(delay, kDurationSeconds, UnknownField::TYPE_VARINT);
  // A year is more than any server means.
  constexpr uint64_t kMost = uint64_t{366} * 24 * 3600;
  if (seconds == nullptr || seconds->varint() > kMost) return 0;
  return static_cast<int64_t>(seconds->varint());
}

std::string FieldOfBadRequest(const UnknownFieldSet& bad) {
  UnknownFieldSet violation;
  if (!violation.ParseFromString(TextIn(bad, kBadRequestViolations))) return "";
  std::string field = TextIn(violation, kViolationField);
  return field.size() <= kMaxFieldBytes ? field : "";
}

void TakeDetail(const std::string& bytes, Details* details) {
  UnknownFieldSet any;
  UnknownFieldSet detail;
  if (!any.ParseFromString(bytes) ||
      !detail.ParseFromString(TextIn(any, kAnyValue))) {
    return;
  }
  const std::string type = TextIn(any, kAnyTypeUrl);
  if (type == kErrorInfo && TextIn(detail, kErrorInfoDomain) == kDomain) {
    details->reason = TextIn(detail, kErrorInfoReason);
  } else if (type == kRetryInfo) {
    details->retry_after_s = SecondsOf(detail);
  } else if (type == kBadRequest) {
    details->field = FieldOfBadRequest(detail);
  }
}

Details DetailsIn(const std::string& bytes) {
  Details details;
  UnknownFieldSet message;
  if (bytes.empty() || !message.ParseFromString(bytes)) return details;
  for (int i = 0; i < message.field_count(); ++i) {
    const UnknownField& field = message.field(i);
    if (field.number() == kStatusDetails &&
        field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      TakeDetail(field.length_delimited(), &details);
    }
  }
  return details;
}

}  // namespace

// Both enumerations are google.rpc.Code: the numbers agree. code() and not
// raw_code(): a code that is none of them becomes UNKNOWN.
grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()), DetailsOf(status));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  Details details = DetailsIn(status.error_details());
  if (details.reason.has_value()) {
    result = WithRefusal(result,
                         {*std::move(details.reason), details.retry_after_s});
  }
  return WithField(std::move(result), details.field);
}

}  // namespace nacre::rpc
