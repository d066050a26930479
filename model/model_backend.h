// The backend for a checkpoint. What of a backend depends on the types of a
// checkpoint is found here, before anything is loaded.
//
// Pure functions of files.

#ifndef MODEL_MODEL_BACKEND_H_
#define MODEL_MODEL_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend_factory.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// Whether every matrix of the layers is bf16, or published in a quantized
// format whose values are. False also where one is missing, or of a type that
// is not read: that is said when it is loaded.
bool HasBf16Matrices(const Checkpoint& checkpoint, const ModelConfig& config);

// CreateBackend for the model that LoadModel reads from `dir`, with
// BackendOptions::bf16_checkpoint as the checkpoint says. Errors of that, of
// ReadConfig and of Checkpoint::Open.
absl::StatusOr<std::unique_ptr<kernels::Backend>> CreateBackendFor(
    const std::string& dir, kernels::BackendOptions options);

}  // namespace nacre::model

#endif  // MODEL_MODEL_BACKEND_H_
