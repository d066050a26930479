// The length policies that a draft worker can run: all that need no file, and
// those whose calibration it has loaded.
//
// Immutable but for a warning that it gives once; one thread, the engine's. The
// policies that it makes must not outlive it.

#ifndef DRAFT_WORKER_POLICY_LIBRARY_H_
#define DRAFT_WORKER_POLICY_LIBRARY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "draft_worker/policy_file.h"
#include "model/language_model.h"
#include "speculation/draft_length.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::draft_worker {

class PolicyLibrary {
 public:
  // Without files.
  PolicyLibrary() = default;

  // `folders`: (name of a policy that reads files, its folder), each once.
  // Errors of LoadPolicyFile.
  static absl::StatusOr<PolicyLibrary> Load(
      const std::vector<std::pair<std::string, std::string>>& folders,
      const model::ModelInfo& draft);

  void Add(speculation::PolicyKind kind, PolicyFile file) {
    files_[kind] = std::move(file);
  }

  // (name, fingerprint of the target that it was made with).
  std::vector<std::pair<std::string, std::string>> files() const;

  struct Made {
    std::unique_ptr<speculation::DraftLength> length;  // null: no own rule
    // What it has to go without; empty: nothing.
    std::string note;
  };
  // Errors of MakePolicy, and FAILED_PRECONDITION where the file that it needs
  // was made with another target than `target_fingerprint` (empty: not known).
  // `inputs.file` is filled in here.
  absl::StatusOr<Made> Make(const speculation::PolicySpec& spec,
                            speculation::PolicyInputs inputs,
                            absl::string_view target_fingerprint = {});

 private:
  std::map<speculation::PolicyKind, PolicyFile> files_;
  bool warned_ = false;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_POLICY_LIBRARY_H_
