#include "worker/process/own_draft_kinds.h"

#include <utility>

#include "common/status_macros.h"
#include "model/draft_files.h"
#include "model/eagle_model.h"
#include "model/first_forward.h"
#include "model/glide_model.h"
#include "model/medusa_heads.h"

namespace nacre::worker {
namespace {

absl::StatusOr<OwnDraft> LoadMedusa(const std::string& path,
                                    model::LanguageModel* model) {
  NACRE_ASSIGN_OR_RETURN(auto heads, model::MedusaHeads::Load(path, *model));
  NACRE_RETURN_IF_ERROR(
      model::InDraftFile(path, model::ProbeHeads(model, heads.get())));
  OwnDraft draft;
  draft.description = heads->description();
  draft.heads = std::move(heads);
  return draft;
}

absl::StatusOr<OwnDraft> OfDrafter(const std::string& path,
                                   model::LanguageModel* model, auto drafter) {
  NACRE_RETURN_IF_ERROR(
      model::InDraftFile(path, model::ProbeDrafter(model, drafter.get())));
  OwnDraft draft;
  draft.description = drafter->description();
  draft.drafter = std::move(drafter);
  return draft;
}

absl::StatusOr<OwnDraft> LoadEagle(const std::string& path,
                                   model::LanguageModel* model) {
  NACRE_ASSIGN_OR_RETURN(auto eagle, model::EagleModel::Load(path, model));
  return OfDrafter(path, model, std::move(eagle));
}

absl::StatusOr<OwnDraft> LoadGlide(const std::string& path,
                                   model::LanguageModel* model) {
  NACRE_ASSIGN_OR_RETURN(auto glide, model::GlideModel::Load(path, *model));
  return OfDrafter(path, model, std::move(glide));
}

constexpr OwnDraftKind kKinds[] = {
    {"medusa", "PATH",
     "of a target worker: Medusa heads of its model to draft from, a file of "
     "safetensors or its folder (default: none)",
     "Medusa heads", "heads read the target's hidden states", LoadMedusa},
    {"eagle", "DIR",
     "of a target worker, in place of heads: the folder of an EAGLE draft of "
     "its model to draft from (default: none)",
     "an EAGLE draft", "the draft reads the target's hidden states", LoadEagle},
    {"glide", "DIR",
     "of a target worker, in place of these: the folder of a GliDe draft of "
     "its model to draft from (default: none)",
     "a GliDe draft", "the draft reads the target's keys and values",
     LoadGlide},
};

}  // namespace

absl::Span<const OwnDraftKind> OwnDraftKinds() { return kKinds; }

}  // namespace nacre::worker
