#include "model/draft_kind.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"
#include "model/config_cross.h"
#include "model/draft_files.h"
#include "model/eagle_folder.h"
#include "model/families.h"

namespace nacre::model {
namespace {

constexpr char kMedusaFile[] = "medusa_lm_head";

// An empty one where it cannot be read.
Json ObjectIn(const std::string& path, const char* name) {
  auto json = ReadDraftObject(DraftFolder(path), name);
  return json.ok() ? *std::move(json) : Json::object();
}

// Whether the field, a text or a list of texts, has this word.
bool Says(const Json& json, const char* field, absl::string_view word) {
  const Json* const value = FindField(json, field);
  return value != nullptr &&
         absl::StrContains(absl::AsciiStrToLower(JsonText(*value)), word);
}

// Whether its card says that it was trained so.
bool IsOfMethod(const std::string& path, absl::string_view method) {
  const auto found = DraftMethod(DraftFolder(path));
  return found.ok() && *found == method;
}

bool HasCrossTensors(const std::string& path) {
  const auto checkpoint = OpenDraftTensors(path, "");
  if (!checkpoint.ok()) return false;
  const std::vector<std::string> names = (*checkpoint)->Names();
  return std::any_of(names.begin(), names.end(), IsCrossTensor);
}

bool IsGlide(const std::string& path) {
  return HasCross(ObjectIn(path, "config.json")) || IsOfMethod(path, "glide") ||
         HasCrossTensors(path);
}

bool IsMedusa(const std::string& path) {
  const Json config = ObjectIn(path, "config.json");
  if (FindField(config, "medusa_num_heads") != nullptr ||
      Says(config, "architectures", "medusa") ||
      Says(config, "model_type", "medusa") || IsOfMethod(path, "medusa")) {
    return true;
  }
  std::error_code error;
  for (const char* end : {".safetensors", ".pt"}) {
    if (std::filesystem::exists(
            absl::StrCat(DraftFolder(path), "/", kMedusaFile, end), error)) {
      return true;
    }
  }
  return false;
}

bool IsModel(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) return true;
  const Json config = ObjectIn(path, "config.json");
  const Json* const names = FindField(config, "architectures");
  return names != nullptr && names->is_array() && names->size() == 1 &&
         (*names)[0].is_string() &&
         FindFamily((*names)[0].get<std::string>()) != nullptr;
}

}  // namespace

DraftKind FindDraftKind(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return DraftKind::kUnknown;
  if (IsGlide(path)) return DraftKind::kGlide;
  if (IsEagle(path)) return DraftKind::kEagle;
  // A model may have its heads beside it.
  if (IsModel(path)) return DraftKind::kModel;
  return IsMedusa(path) ? DraftKind::kMedusa : DraftKind::kUnknown;
}

}  // namespace nacre::model
