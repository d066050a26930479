#include "model/load_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/mapped_file.h"
#include "model/transformer.h"

namespace nacre::model {

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(
    const std::string& dir, kernels::Backend* backend,
    const ModelOptions& options) {
  NACRE_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(dir));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                         Checkpoint::Open(dir));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> config_file,
                         MappedFile::Open(absl::StrCat(dir, "/config.json")));
  return CreateModel(std::move(config), config_file->bytes(),
                     std::move(checkpoint), backend, options);
}

absl::StatusOr<std::unique_ptr<LanguageModel>> CreateModel(
    ModelConfig config, absl::string_view config_json,
    std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
    const ModelOptions& options) {
  return Transformer::Create(std::move(config), config_json,
                             std::move(checkpoint), backend, options);
}

}  // namespace nacre::model
