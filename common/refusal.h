// Why a request was refused and which of its fields is at fault, for programs:
// beside a status, whose words are for people. Over gRPC both are in the
// status' details (rpc/grpc_status.h).
//
// Pure functions.

#ifndef COMMON_REFUSAL_H_
#define COMMON_REFUSAL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace nacre {

// As many requests wait as may. A request waited for room as long as it may. It
// needs more KV than any target has, or its choices more places than there are.
inline constexpr char kQueueFull[] = "QUEUE_FULL";
inline constexpr char kQueueTimeout[] = "QUEUE_TIMEOUT";
inline constexpr char kNeverFits[] = "NEVER_FITS";

struct Refusal {
  std::string reason;
  // When another try may have more luck; 0: that is not known.
  int64_t retry_after_s = 0;
};

// `status`, which is no OK, with a refusal; in place of the one that it had.
absl::Status WithRefusal(absl::Status status, const Refusal& refusal);
// Nothing where the status has none.
absl::optional<Refusal> RefusalOf(const absl::Status& status);
// `status`, with the path of the field at fault in the message that the caller
// sent: "sampling.top_p". In place of none: where an inner function has named
// one, that stays, and an OK stays OK.
absl::Status WithField(absl::Status status, absl::string_view field);
// Empty where the status has none.
std::string FieldOf(const absl::Status& status);
// `status`, which is no OK, in other words: with its code, refusal and field.
absl::Status Reworded(const absl::Status& status, absl::string_view message);
bool IsRefusedFor(const absl::Status& status, absl::string_view reason);

}  // namespace nacre

#endif  // COMMON_REFUSAL_H_
