#include "draft_worker/feature_recorder.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "model/distribution.h"
#include "nlohmann/json.hpp"

namespace nacre::draft_worker {
namespace {

// As many digits as give the same float back.
std::string Exact(float value) { return absl::StrFormat("%.9g", value); }

// A request's id is the client's own choice, and may hold any bytes.
std::string JsonString(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                   nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FeatureFile>> FeatureFile::Open(
    const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--record-features ", path));
  }
  return std::unique_ptr<FeatureFile>(new FeatureFile(path, file));
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

void SessionFeatures::OnDrafted(int position, int32_t token_id,
                                absl::Span<const float> logits) {
  const model::Distribution distribution(
      logits.first(static_cast<size_t>(options_.vocab_limit)));
  Row& row = unverified_.emplace_back();
  row.generated = position - options_.prompt_length;
  distribution.FillTop(absl::MakeSpan(row.top));
  row.entropy = static_cast<float>(distribution.entropy());
  row.probability = static_cast<float>(distribution.Probability(token_id));
}

void SessionFeatures::OnCommit(
    const speculation::DraftSession::CommitReport& report) {
  const int num_lines = report.accepted + (report.rejected ? 1 : 0);
  NACRE_CHECK(static_cast<size_t>(num_lines) <= unverified_.size(),
              "a verdict on tokens that were not drafted");
  std::string lines;
  for (int i = 0; i < num_lines; ++i) {
    AppendLine(unverified_.front(), i < report.accepted, &lines);
    unverified_.pop_front();
  }
  if (report.rejected) unverified_.clear();
  if (num_lines > 0) options_.file->Write(lines, num_lines);
}

void SessionFeatures::AppendLine(const Row& row, bool accepted,
                                 std::string* lines) const {
  absl::StrAppend(lines, "{\"request\":", JsonString(options_.request_id),
                  ",\"session\":", options_.session_id,
                  ",\"position\":", row.generated, ",\"top\":[",
                  absl::StrJoin(row.top, ",",
                                [](std::string* out, float p) {
                                  absl::StrAppend(out, Exact(p));
                                }),
                  "],\"entropy\":", Exact(row.entropy),
                  ",\"probability\":", Exact(row.probability),
                  ",\"accepted\":", accepted ? "true" : "false", "}\n");
}

}  // namespace nacre::draft_worker
