// From the public API's request to plain values, with every check that it must
// pass before a worker sees it.

#ifndef COORDINATOR_REQUEST_CONVERT_H_
#define COORDINATOR_REQUEST_CONVERT_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "proto/inference.pb.h"
#include "speculation/policies/policy_spec.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

inline constexpr size_t kMaxRequestIdBytes = 256;

// How many choices the request asks for: INVALID_ARGUMENT where not 1 to 16.
absl::StatusOr<int> NumChoices(const v1::GenerateRequest& request);

// Errors as documented at Inference.Generate: INVALID_ARGUMENT, NOT_FOUND,
// UNIMPLEMENTED. `default_policy`: of requests that name none.
absl::StatusOr<RequestSpec> ParseRequest(
    const v1::GenerateRequest& request, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model,
    const speculation::PolicySpec& default_policy = {});

// The request of one of its choices, with a seed of its own.
RequestSpec ChoiceOf(const RequestSpec& request, int choice);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_REQUEST_CONVERT_H_
