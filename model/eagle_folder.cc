#include "model/eagle_folder.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "model/draft_files.h"
#include "model/fingerprint.h"

namespace nacre::model {

absl::StatusOr<OpenedEagle> OpenEagle(const std::string& path,
                                      const ModelInfo& target) {
  OpenedEagle folder;
  NACRE_ASSIGN_OR_RETURN(folder.checkpoint, OpenDraftTensors(path, ""));
  const std::string dir = DraftFolder(path);
  if (!target.fingerprint.empty()) {
    NACRE_RETURN_IF_ERROR(CheckDraftFingerprint(dir, target));
  }
  NACRE_ASSIGN_OR_RETURN(const Json json, ReadDraftObject(dir, "config.json"));
  auto layout = FindEagleLayout(folder.checkpoint->Names());
  if (!layout.ok()) return InDraftFile(path, layout.status());
  folder.layout = *std::move(layout);
  auto config = ParseEagleConfig(json, folder.layout, target);
  if (!config.ok()) {
    return InDraftFile(absl::StrCat(dir, "/config.json"), config.status());
  }
  folder.config = *std::move(config);
  NACRE_ASSIGN_OR_RETURN(const Json card,
                         ReadDraftObject(dir, "nacre_draft.json"));
  const auto lag =
      IntOr(card, "max_lag", folder.config.max_depth, 1, OpenedEagle::kMostLag);
  if (!lag.ok()) {
    return InDraftFile(absl::StrCat(dir, "/nacre_draft.json"), lag.status());
  }
  folder.max_lag = *lag;
  return folder;
}

bool IsEagle(const std::string& path) {
  const auto config = ReadDraftObject(DraftFolder(path), "config.json");
  if (config.ok()) {
    for (const char* field : {"architectures", "speculators_model_type"}) {
      const auto it = config->find(field);
      if (it != config->end() &&
          absl::StrContains(absl::AsciiStrToLower(it->dump()), "eagle")) {
        return true;
      }
    }
    if (config->contains("eagle_config")) return true;
  }
  // Others call themselves a Llama.
  const auto checkpoint = OpenDraftTensors(path, "");
  if (!checkpoint.ok()) return false;
  for (const char* name :
       {"fc.weight", "model.fc.weight", "fusion_fc.weight"}) {
    if ((*checkpoint)->Contains(name)) return true;
  }
  return false;
}

absl::StatusOr<std::string> EagleFingerprint(const std::string& path,
                                             const Checkpoint& checkpoint) {
  NACRE_ASSIGN_OR_RETURN(const std::string config,
                         ReadConfigText(DraftFolder(path)));
  return checkpoint.StartFingerprint(config)->Finish();
}

}  // namespace nacre::model
