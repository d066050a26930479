#include "worker/recording/feature_file.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace nacre::worker {

absl::StatusOr<std::unique_ptr<FeatureFile>> FeatureFile::Open(
    const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--record-features ", path));
  }
  return std::unique_ptr<FeatureFile>(new FeatureFile(path, file));
}

absl::Status FeatureFile::AddHidden(const std::string& path, int hidden_size) {
  NACRE_ASSIGN_OR_RETURN(hidden_, HiddenFile::Create(path, hidden_size));
  return absl::OkStatus();
}

FeatureFile::~FeatureFile() {
  std::fclose(file_);
  if (lost_lines_ > 0) {
    spdlog::error("--record-features {}: {} tokens were not recorded", path_,
                  lost_lines_);
  }
}

void FeatureFile::Write(const std::string& lines, int num_lines) {
  if (!failed_) {
    // Flushed, so that a process that is killed leaves whole lines.
    if (std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() &&
        std::fflush(file_) == 0) {
      return;
    }
    failed_ = true;
    spdlog::error("--record-features {}: {}; nothing more is recorded", path_,
                  std::strerror(errno));
  }
  lost_lines_ += static_cast<uint64_t>(num_lines);
}

std::string JsonString(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                   nlohmann::json::error_handler_t::replace);
}

}  // namespace nacre::worker
