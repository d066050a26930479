#include "draft_worker/policy_library.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::draft_worker {

using speculation::PolicyKind;
using speculation::PolicySpec;

absl::StatusOr<PolicyLibrary> PolicyLibrary::Load(
    const std::vector<std::pair<std::string, std::string>>& folders,
    const model::ModelInfo& draft) {
  PolicyLibrary library;
  for (const auto& [name, dir] : folders) {
    NACRE_ASSIGN_OR_RETURN(const PolicySpec spec,
                           speculation::ParsePolicySpec(name));
    NACRE_ASSIGN_OR_RETURN(PolicyFile file,
                           LoadPolicyFile(dir, spec.kind(), draft));
    spdlog::info("length policy {}: {}, made with target {}", name, dir,
                 file.target_fingerprint);
    library.Add(spec.kind(), std::move(file));
  }
  return library;
}

std::vector<std::pair<std::string, std::string>> PolicyLibrary::files() const {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& [kind, file] : files_) {
    files.emplace_back(speculation::InfoOf(kind).name, file.target_fingerprint);
  }
  return files;
}

absl::StatusOr<PolicyLibrary::Made> PolicyLibrary::Make(
    const PolicySpec& spec, speculation::PolicyInputs inputs,
    absl::string_view target_fingerprint) {
  Made made;
  const auto it = files_.find(spec.kind());
  if (it != files_.end()) {
    const PolicyFile& file = it->second;
    if (target_fingerprint.empty() ||
        target_fingerprint == file.target_fingerprint) {
      inputs.file = &file.calibration;
    } else if (spec.needs_file()) {
      return absl::FailedPreconditionError(
          absl::StrCat("length policy ", spec.name(),
                       ": its file was made with the target with fingerprint ",
                       file.target_fingerprint, ", this session's has ",
                       target_fingerprint));
    } else if (spec.kind() == PolicyKind::kSvip) {
      made.note = "its file is for another target";
    }
  }
  if (spec.kind() == PolicyKind::kCaliTs &&
      (inputs.file == nullptr || !inputs.has_target_hidden)) {
    made.note = inputs.has_target_hidden
                    ? "no model score: this draft worker has no file for it"
                    : "no model score: the target's hidden states do not come "
                      "to the draft";
    if (!std::exchange(warned_, true)) {
      spdlog::warn("length policy cali-ts runs with {}", made.note);
    }
  }
  NACRE_ASSIGN_OR_RETURN(made.length,
                         speculation::MakePolicy(spec, std::move(inputs)));
  return made;
}

}  // namespace nacre::draft_worker
