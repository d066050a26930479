// A published folder of an EAGLE draft, opened: which tensors it has, and what
// its config says of them.
//
// Values; functions over files.

#ifndef MODEL_EAGLE_FOLDER_H_
#define MODEL_EAGLE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/eagle_config.h"
#include "model/eagle_files.h"
#include "model/language_model.h"

namespace nacre::model {

struct OpenedEagle {
  std::unique_ptr<Checkpoint> checkpoint;
  EagleLayout layout;
  EagleConfig config;
  // Tokens that it may be asked for beyond its features: "max_lag" of
  // nacre_draft.json, or else what it was trained for.
  int max_lag = 0;

  static constexpr int kMostLag = 32;
};

// `path`: a folder with config.json and the tensors as of OpenDraftTensors, or
// the file of these beside it. Where there is a nacre_draft.json, its
// "target_fingerprint" must be that of `target`; one that is not known, which
// is empty, may be any.
//
// NOT_FOUND: there is no such file. INVALID_ARGUMENT: it is malformed, its
// max_lag is outside of 1 to kMostLag, or it is not a draft of this target,
// with the field and its value. UNIMPLEMENTED: a variant that is not known
// here.
absl::StatusOr<OpenedEagle> OpenEagle(const std::string& path,
                                      const ModelInfo& target);

// Whether it is meant to be an EAGLE draft: its config.json says so, or it has
// what projects features. Whether it is one that can be read, OpenEagle says.
bool IsEagle(const std::string& path);

// SHA-256 of its config.json and tensors, as of a model.
absl::StatusOr<std::string> EagleFingerprint(const std::string& path,
                                             const Checkpoint& checkpoint);

}  // namespace nacre::model

#endif  // MODEL_EAGLE_FOLDER_H_
