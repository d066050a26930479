#include "model/draft_files.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

constexpr char kCardName[] = "nacre_draft.json";

namespace fs = std::filesystem;

constexpr int64_t kMaxJsonBytes = 1 << 20;

std::string PathIn(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenDraftTensors(
    const std::string& path, const std::string& own_name) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return Checkpoint::OpenFile(path);
  if (!own_name.empty()) {
    for (const char* end : {".safetensors", ".pt"}) {
      const std::string own = PathIn(path, absl::StrCat(own_name, end));
      if (fs::exists(own, error)) return Checkpoint::OpenFile(own);
    }
  }
  auto checkpoint = Checkpoint::Open(path);
  if (!absl::IsNotFound(checkpoint.status())) return checkpoint;
  const std::string own =
      own_name.empty()
          ? ""
          : absl::StrCat(own_name, ".safetensors, no ", own_name, ".pt, no ");
  return absl::NotFoundError(absl::StrCat(
      "folder ", path, " has no ", own,
      "model.safetensors, no pytorch_model.bin and no index of all "
      "their files: ",
      checkpoint.status().message()));
}

std::string DraftFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? path
                                       : fs::path(path).parent_path().string();
}

absl::StatusOr<Json> ReadDraftObject(const std::string& folder,
                                     const std::string& name) {
  const std::string path = PathIn(folder, name);
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxJsonBytes);
  if (absl::IsNotFound(text.status())) return Json::object();
  NACRE_RETURN_IF_ERROR(text.status());
  return ParseJsonObject(*text, path);
}

absl::StatusOr<std::string> DraftTargetFingerprint(
    const std::string& folder, const std::string& fallback) {
  NACRE_ASSIGN_OR_RETURN(const Json draft, ReadDraftObject(folder, kCardName));
  return StringFieldOr(draft, "target_fingerprint", fallback,
                       PathIn(folder, kCardName));
}

absl::StatusOr<std::string> DraftMethod(const std::string& folder) {
  NACRE_ASSIGN_OR_RETURN(const Json draft, ReadDraftObject(folder, kCardName));
  NACRE_ASSIGN_OR_RETURN(
      const std::string method,
      StringFieldOr(draft, "method", "", PathIn(folder, kCardName)));
  return method.substr(0, method.find(':'));
}

absl::Status CheckDraftFingerprint(const std::string& folder,
                                   const ModelInfo& info) {
  NACRE_ASSIGN_OR_RETURN(const std::string target,
                         DraftTargetFingerprint(folder, info.fingerprint));
  if (target == info.fingerprint) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      PathIn(folder, kCardName), ": the draft is of the target ",
      ShownTensorName(target), ", the model here is ", info.fingerprint));
}

absl::Status InDraftFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

std::string ShownTensorName(absl::string_view name) {
  const std::string quoted = JsonText(Json(std::string(name.substr(0, 120))));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace nacre::model
