#include "common/refusal.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace nacre {
namespace {

// Its value: seconds, a blank, the reason.
constexpr char kPayload[] = "nacre/refusal";
constexpr char kFieldPayload[] = "nacre/field";

}  // namespace

absl::Status WithRefusal(absl::Status status, const Refusal& refusal) {
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(refusal.retry_after_s,
                                                      " ", refusal.reason)));
  return status;
}

absl::optional<Refusal> RefusalOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return absl::nullopt;
  const std::string text(*payload);
  const size_t blank = text.find(' ');
  Refusal refusal;
  if (blank == std::string::npos ||
      !absl::SimpleAtoi(text.substr(0, blank), &refusal.retry_after_s)) {
    return absl::nullopt;
  }
  refusal.reason = text.substr(blank + 1);
  return refusal;
}

absl::Status WithField(absl::Status status, absl::string_view field) {
  if (!field.empty() && !status.GetPayload(kFieldPayload).has_value()) {
    status.SetPayload(kFieldPayload, absl::Cord(field));
  }
  return status;
}

std::string FieldOf(const absl::Status& status) {
  return std::string(status.GetPayload(kFieldPayload).value_or(absl::Cord()));
}

absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  absl::Status reworded(status.code(), message);
  const absl::optional<Refusal> refusal = RefusalOf(status);
  if (refusal.has_value()) reworded = WithRefusal(reworded, *refusal);
  return WithField(std::move(reworded), FieldOf(status));
}

bool IsRefusedFor(const absl::Status& status, absl::string_view reason) {
  const absl::optional<Refusal> refusal = RefusalOf(status);
  return refusal.has_value() && refusal->reason == reason;
}

}  // namespace nacre
