// The files of a published draft that runs beside its target: tensors, and the
// objects beside them.
//
// Pure functions over files.

#ifndef MODEL_DRAFT_FILES_H_
#define MODEL_DRAFT_FILES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"
#include "model/checkpoint.h"
#include "model/language_model.h"

namespace nacre::model {

// `path`: a file as of Checkpoint::OpenFile, or a folder. Of a folder it opens
// the file `own_name`.safetensors or .pt, where own_name is not empty and there
// is one. Else it opens the folder as Checkpoint::Open does. NOT_FOUND: there
// is none.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenDraftTensors(
    const std::string& path, const std::string& own_name);

// Of the same path: the folder that its other files are in.
std::string DraftFolder(const std::string& path);

// The object in a file of the folder; an empty one where there is no file.
absl::StatusOr<Json> ReadDraftObject(const std::string& folder,
                                     const std::string& name);

// "target_fingerprint" of the folder's nacre_draft.json; `fallback` where there
// is none. INVALID_ARGUMENT: it is no string, or the file no object.
absl::StatusOr<std::string> DraftTargetFingerprint(const std::string& folder,
                                                   const std::string& fallback);

// What the folder's nacre_draft.json says it was trained by: of "method", such
// as "glide:steps=5", all before the colon. Empty where there is none. Errors:
// as before.
absl::StatusOr<std::string> DraftMethod(const std::string& folder);

// INVALID_ARGUMENT where the folder's nacre_draft.json names another
// "target_fingerprint" than the model's.
absl::Status CheckDraftFingerprint(const std::string& folder,
                                   const ModelInfo& info);

// A status about what is in that file.
absl::Status InDraftFile(const std::string& path, const absl::Status& status);

// A name in a file, which may be anything, as one short line of ASCII.
std::string ShownTensorName(absl::string_view name);

}  // namespace nacre::model

#endif  // MODEL_DRAFT_FILES_H_
