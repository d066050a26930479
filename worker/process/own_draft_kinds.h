// What a target may draft from beside its model: a table with a row for each
// kind. A row is its flag of target workers and of `nacre up`, how it is
// loaded, and what messages call it.

#ifndef WORKER_PROCESS_OWN_DRAFT_KINDS_H_
#define WORKER_PROCESS_OWN_DRAFT_KINDS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/feature_drafter.h"
#include "model/future_heads.h"
#include "model/language_model.h"

namespace nacre::worker {

// One of them, as TargetEngine::Options takes it.
struct OwnDraft {
  std::unique_ptr<model::FutureHeads> heads;
  std::unique_ptr<model::FeatureDrafter> drafter;
  std::string description;  // for the log
};

struct OwnDraftKind {
  const char* flag;   // without dashes
  const char* value;  // what help calls its value
  const char* help;
  const char* name;   // "Medusa heads"
  const char* reads;  // why only a target has it, as in "heads read ..."
  // Of a file or folder; `model` is the target's, and outlives what is loaded.
  absl::StatusOr<OwnDraft> (*load)(const std::string& path,
                                   model::LanguageModel* model);
};

absl::Span<const OwnDraftKind> OwnDraftKinds();

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_OWN_DRAFT_KINDS_H_
