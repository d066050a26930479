// The only conversion between absl::Status and grpc::Status.

#ifndef COMMON_RPC_GRPC_STATUS_H_
#define COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace nacre::rpc {

// A refusal (common/refusal.h) is among the details of the status, as
// google.rpc.Status has them. It is an ErrorInfo with its reason and the domain
// "nacre", and a RetryInfo where it says when to try again. So is the field at
// fault: a BadRequest with one violation, which repeats a short message. Other
// payloads are lost.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_GRPC_STATUS_H_
