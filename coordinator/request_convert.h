// From the public API's request to plain values, with every check that it must
// pass before a worker sees it.

#ifndef COORDINATOR_REQUEST_CONVERT_H_
#define COORDINATOR_REQUEST_CONVERT_H_

#include "absl/status/statusor.h"
#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "proto/inference.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// Errors as documented at Inference.Generate: INVALID_ARGUMENT, NOT_FOUND,
// UNIMPLEMENTED.
absl::StatusOr<RequestSpec> ParseRequest(const v1::GenerateRequest& request,
                                         const tokenizer::Tokenizer& tokenizer,
                                         const WorkerInfo& model);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_REQUEST_CONVERT_H_
