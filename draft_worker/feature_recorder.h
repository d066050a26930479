// Records what length policies are calibrated from: what the draft's row said
// of each drafted token that the target has verified, and whether it was right.
// One JSON object a line (docs/policies.md, "Recording").
//
// A FeatureFile serves all sessions of the process and outlives them. One
// thread, the engine's, which writes when a verdict comes: this is for
// calibration, not for serving.

#ifndef DRAFT_WORKER_FEATURE_RECORDER_H_
#define DRAFT_WORKER_FEATURE_RECORDER_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "speculation/draft_session.h"
#include "speculation/policies/length_policy.h"

namespace nacre::draft_worker {

class FeatureFile {
 public:
  // Appends to `path`. Errors of the disk, naming it.
  static absl::StatusOr<std::unique_ptr<FeatureFile>> Open(
      const std::string& path);

  // Logs how many lines were lost, if any.
  ~FeatureFile();
  FeatureFile(const FeatureFile&) = delete;
  FeatureFile& operator=(const FeatureFile&) = delete;

  // Whole lines, `num_lines` of them. The first failure is logged; from then on
  // nothing is written, so that the file holds no line of half a write behind
  // another: what should have been is counted.
  void Write(const std::string& lines, int num_lines);

  uint64_t lost_lines() const { return lost_lines_; }

 private:
  FeatureFile(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}

  const std::string path_;
  std::FILE* const file_;  // owned
  bool failed_ = false;
  uint64_t lost_lines_ = 0;
};

// Of one session: holds the rows of its drafted tokens until a verdict.
class SessionFeatures {
 public:
  struct Options {
    FeatureFile* file = nullptr;  // outlives it
    std::string request_id;
    uint64_t session_id = 0;
    int prompt_length = 0;
    int vocab_limit = 0;  // only ids below are drawn
  };

  explicit SessionFeatures(Options options) : options_(std::move(options)) {}

  // The token drawn for `position` was appended.
  //   logits [vocab_limit or more]
  void OnDrafted(int position, int32_t token_id,
                 absl::Span<const float> logits);

  // After the session has applied a commit. Writes the tokens that it verifies,
  // in their order; those that a rejection drops unverified are forgotten.
  void OnCommit(const speculation::DraftSession::CommitReport& report);

 private:
  struct Row {
    int generated = 0;  // tokens of the answer before this one
    std::array<float, speculation::kTopProbabilities> top = {};
    float entropy = 0.0f;      // nats
    float probability = 0.0f;  // of the token that was drawn
  };

  void AppendLine(const Row& row, bool accepted, std::string* lines) const;

  const Options options_;
  std::deque<Row> unverified_;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_FEATURE_RECORDER_H_
