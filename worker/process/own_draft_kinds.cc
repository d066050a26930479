#include "worker/process/own_draft_kinds.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config.h"
#include "model/draft_files.h"
#include "model/eagle_model.h"
#include "model/first_forward.h"
#include "model/glide_model.h"
#include "model/kv_budget.h"
#include "model/kv_pool.h"
#include "model/medusa_heads.h"
#include "model/remote_eagle.h"

namespace nacre::worker {
namespace {

using model::DraftKind;

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

model::DraftNeeds NeedsOfMedusa(const std::string& path,
                                const std::string& target_dir, kernels::DType,
                                int) {
  const auto config = model::ReadConfig(target_dir);
  if (!config.ok()) return {};
  return model::MedusaHeads::ReadNeeds(path, *config)
      .value_or(model::DraftNeeds());
}

model::DraftNeeds NeedsOfEagle(const std::string& path,
                               const std::string& target_dir,
                               kernels::DType kv_type, int step_rows) {
  return model::RemoteEagle::ReadNeeds(path, target_dir, kv_type, step_rows)
      .value_or(model::DraftNeeds());
}

model::DraftNeeds NeedsOfGlide(const std::string& path, const std::string&,
                               kernels::DType kv_type, int step_rows) {
  const auto checkpoint = model::OpenDraftTensors(path, "");
  const auto config = model::ReadConfig(model::DraftFolder(path));
  if (!checkpoint.ok() || !config.ok()) return {};
  return {model::MostWeightBytes(**checkpoint) +
              model::ScratchBytes(*config, step_rows),
          model::KvPool::BytesPerToken({config->num_hidden_layers,
                                        config->num_key_value_heads,
                                        config->head_dim, kv_type})};
}

constexpr OwnDraftKind kKinds[] = {
    {model::DraftKind::kMedusa, "medusa", "PATH",
     "of a target worker: Medusa heads of its model to draft from, a file of "
     "safetensors or its folder (default: none)",
     "Medusa heads", "heads read the target's hidden states", LoadMedusa,
     NeedsOfMedusa},
    {model::DraftKind::kEagle, "eagle", "DIR",
     "of a target worker, in place of heads: the folder of an EAGLE draft of "
     "its model to draft from (default: none)",
     "an EAGLE draft", "the draft reads the target's hidden states", LoadEagle,
     NeedsOfEagle},
    {model::DraftKind::kGlide, "glide", "DIR",
     "of a target worker, in place of these: the folder of a GliDe draft of "
     "its model to draft from (default: none)",
     "a GliDe draft", "the draft reads the target's keys and values", LoadGlide,
     NeedsOfGlide},
};

struct Described {
  std::string name;
  std::string taken_by;
};

Described Describe(DraftKind kind) {
  for (const OwnDraftKind& own : kKinds) {
    if (own.kind == kind) {
      return {own.name, absl::StrCat("--", own.flag, " of a target worker")};
    }
  }
  return {"a model", "--model of a draft worker"};
}

}  // namespace

absl::Span<const OwnDraftKind> OwnDraftKinds() { return kKinds; }

absl::StatusOr<OwnDraft> LoadOwnDraft(const OwnDraftKind& kind,
                                      const std::string& path,
                                      model::LanguageModel* model) {
  auto draft = kind.load(path, model);
  if (draft.ok()) return draft;
  return ExplainDraft(path, kind.kind, kind.flag, draft.status());
}

absl::Status ExplainDraft(const std::string& path, model::DraftKind wanted,
                          const std::string& flag, const absl::Status& status) {
  const model::DraftKind found = model::FindDraftKind(path);
  if (status.ok() || found == wanted || found == DraftKind::kUnknown) {
    return status;
  }
  const Described is = Describe(found);
  return absl::Status(
      status.code(),
      absl::StrCat(path, ": ", is.name, ", which ", is.taken_by, " takes; --",
                   flag, " takes ", Describe(wanted).name, " (",
                   status.message(), ")"));
}

}  // namespace nacre::worker
