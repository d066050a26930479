// Loads a model. The only place outside its own tests that knows which class
// implements LanguageModel.
//
// Thread-safe: functions on distinct backends.

#ifndef MODEL_LOAD_MODEL_H_
#define MODEL_LOAD_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/language_model.h"
#include "model/model_options.h"

namespace nacre::model {

// Reads a Hugging Face folder or a GGUF file. Errors of ReadConfig,
// Checkpoint::Open and CreateModel. `backend` outlives the model.
absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(
    const std::string& dir, kernels::Backend* backend,
    const ModelOptions& options);

// The same of weights at hand. The fingerprint is of `config_json` and them.
// Errors of LoadWeights, KvBytes and KvPool::Create.
absl::StatusOr<std::unique_ptr<LanguageModel>> CreateModel(
    ModelConfig config, absl::string_view config_json,
    std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
    const ModelOptions& options);

}  // namespace nacre::model

#endif  // MODEL_LOAD_MODEL_H_
