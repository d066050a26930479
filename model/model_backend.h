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

// `options` with what "auto" means for this model on this machine. Weights of
// backend "cpu" are "bf16a16" where the CPU multiplies pairs and every matrix,
// the head and the embedding too, is bf16 as of HasBf16Matrices; elsewhere they
// stay "auto". Sets bf16_checkpoint where keys and values depend on it.
kernels::BackendOptions WithAutoChosen(const Checkpoint& checkpoint,
                                       const ModelConfig& config,
                                       kernels::BackendOptions options);

// CreateBackend for the model that LoadModel reads from `dir`, WithAutoChosen.
// Errors of that, of ReadConfig and of Checkpoint::Open.
absl::StatusOr<std::unique_ptr<kernels::Backend>> CreateBackendFor(
    const std::string& dir, kernels::BackendOptions options);

}  // namespace nacre::model

#endif  // MODEL_MODEL_BACKEND_H_
