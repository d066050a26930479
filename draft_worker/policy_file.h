// A calibration of a length policy, as a folder holds it (docs/policies.md).
// policy.json names the policy, its parameters and the pair of models that it
// was made with. policy.safetensors holds its weights, if it has any.

#ifndef DRAFT_WORKER_POLICY_FILE_H_
#define DRAFT_WORKER_POLICY_FILE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/language_model.h"
#include "speculation/policies/make_policy.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::draft_worker {

struct PolicyFile {
  std::string target_fingerprint;
  speculation::PolicyCalibration calibration;
};

// Errors name the folder. NOT_FOUND: no such file; INVALID_ARGUMENT or
// DATA_LOSS: malformed, another policy's, an unknown or missing tensor, a wrong
// shape, a weight that is not a finite number; UNIMPLEMENTED: a tensor of
// another type than F32, BF16 and F16; FAILED_PRECONDITION: made for another
// draft than `draft`.
absl::StatusOr<PolicyFile> LoadPolicyFile(const std::string& dir,
                                          speculation::PolicyKind kind,
                                          const model::ModelInfo& draft);

// The same of what is in the two files. `open_weights` gives the second one,
// where the policy has any; its errors are returned.
absl::StatusOr<PolicyFile> ParsePolicyFile(
    speculation::PolicyKind kind, const model::ModelInfo& draft,
    absl::string_view json,
    absl::FunctionRef<absl::StatusOr<absl::string_view>()> open_weights);

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_POLICY_FILE_H_
