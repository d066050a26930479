#include "model/load_model.h"

#include <utility>

#include "common/status_macros.h"
#include "model/draft_files.h"
#include "model/transformer.h"

namespace nacre::model {

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(
    const std::string& dir, kernels::Backend* backend,
    const ModelOptions& options) {
  NACRE_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(dir));
  if (config.cross.has_value()) {
    NACRE_ASSIGN_OR_RETURN(config.cross->target_fingerprint,
                           DraftTargetFingerprint(dir, ""));
  }
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                         Checkpoint::Open(dir));
  NACRE_ASSIGN_OR_RETURN(const std::string config_text, ReadConfigText(dir));
  const bool is_glide = config.cross.has_value();
  auto model = CreateModel(std::move(config), config_text,
                           std::move(checkpoint), backend, options);
  // One of several models that a user has at hand.
  if (!model.ok() && is_glide) return InDraftFile(dir, model.status());
  return model;
}

absl::StatusOr<std::unique_ptr<LanguageModel>> CreateModel(
    ModelConfig config, absl::string_view config_json,
    std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
    const ModelOptions& options) {
  return Transformer::Create(std::move(config), config_json,
                             std::move(checkpoint), backend, options);
}

}  // namespace nacre::model
