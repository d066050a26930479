// What a target may draft from beside its model: a table with a row for each
// kind. A row is its flag of target workers and of `nacre up`, how it is
// loaded, and what messages call it.

#ifndef WORKER_PROCESS_OWN_DRAFT_KINDS_H_
#define WORKER_PROCESS_OWN_DRAFT_KINDS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "model/draft_kind.h"
#include "model/feature_drafter.h"
#include "model/future_heads.h"
#include "model/kv_budget.h"
#include "model/language_model.h"

namespace nacre::worker {

// One of them, as TargetEngine::Options takes it.
struct OwnDraft {
  std::unique_ptr<model::FutureHeads> heads;
  std::unique_ptr<model::FeatureDrafter> drafter;
  std::string description;  // for the log
};

struct OwnDraftKind {
  model::DraftKind kind;
  const char* flag;   // without dashes
  const char* value;  // what help calls its value
  const char* help;
  const char* name;   // "Medusa heads"
  const char* reads;  // why only a target has it, as in "heads read ..."
  // Of a file or folder; `model` is the target's, and outlives what is loaded.
  absl::StatusOr<OwnDraft> (*load)(const std::string& path,
                                   model::LanguageModel* model);
  // What it takes of a device beside the model in `target_dir`, with keys and
  // values in `kv_type` and steps of up to so many rows; before either is
  // loaded. What cannot be read takes nothing: `load` says why.
  model::DraftNeeds (*needs)(const std::string& path,
                             const std::string& target_dir,
                             kernels::DType kv_type, int step_rows);
};

absl::Span<const OwnDraftKind> OwnDraftKinds();

// As kind.load. Where the path has a draft of another kind, the error says so.
absl::StatusOr<OwnDraft> LoadOwnDraft(const OwnDraftKind& kind,
                                      const std::string& path,
                                      model::LanguageModel* model);

// An error of reading `path` as `wanted`, which was given as --flag: with what
// it is, and which flag takes that, where it is something else.
absl::Status ExplainDraft(const std::string& path, model::DraftKind wanted,
                          const std::string& flag, const absl::Status& status);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_OWN_DRAFT_KINDS_H_
