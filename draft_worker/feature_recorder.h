// Records what length policies are calibrated from: what the draft's row said
// of each drafted token, and whether the target agreed. One JSON object a line
// (docs/policies.md, "Recording"), and, where asked for, the hidden states that
// the lines refer to.
//
// One thread, the engine's, which writes when a verdict comes: this is for
// calibration, not for serving.

#ifndef DRAFT_WORKER_FEATURE_RECORDER_H_
#define DRAFT_WORKER_FEATURE_RECORDER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/draft_session.h"
#include "speculation/policies/length_policy.h"
#include "worker/engine/step_tap.h"
#include "worker/engine/streams.h"
#include "worker/recording/feature_file.h"

namespace nacre::draft_worker {

// Of one session: holds the rows of its drafted tokens until a verdict.
class SessionFeatures {
 public:
  struct Options {
    worker::FeatureFile* file = nullptr;  // outlives it
    std::string request_id;
    uint64_t session_id = 0;
    int prompt_length = 0;
    int vocab_limit = 0;  // only ids below are drawn
  };

  explicit SessionFeatures(Options options) : options_(std::move(options)) {}

  bool needs_hidden() const { return options_.file->hidden() != nullptr; }

  // The token drawn for `position` was appended.
  //   logits [vocab_limit or more]
  //   hidden [hidden_size] of that row, if needs_hidden()
  void OnDrafted(int position, int32_t token_id, absl::Span<const float> logits,
                 absl::Span<const float> hidden);

  // After the session has applied a commit. Writes the tokens that it verifies,
  // in their order; those that a rejection drops unverified are forgotten.
  void OnCommit(const speculation::DraftSession::CommitReport& report);

  // The session ends: the verdict that ends an answer does not come to its
  // draft. Writes the tokens that still wait for theirs, without an outcome.
  void OnClosed();

 private:
  struct Row {
    int generated = 0;  // tokens of the answer before this one
    int32_t token_id = 0;
    size_t unverified = 0;  // drafted tokens before this one, when it was drawn
    std::array<float, speculation::kTopProbabilities> top = {};
    float entropy = 0.0f;               // nats
    float probability = 0.0f;           // of the token that was drawn
    std::vector<float> hidden;          // until it is in the file
    absl::optional<int64_t> hidden_at;  // there
  };

  // Writes and forgets the first rows: `accepted` of them accepted, then
  // `rejected` rejected, then `unknown` that nothing is known of.
  void Write(int accepted, int rejected, int unknown);
  // Of the first row; `outcome` is a JSON value.
  void AppendLine(const char* outcome, std::string* lines);
  // Where the row's hidden state is, as a member of a JSON object.
  void AppendHidden(const char* key, Row& row, std::string* lines);

  const Options options_;
  std::deque<Row> unverified_;  // of positions without a gap
};

// Of all sessions of an engine.
class FeatureRecorder final : public worker::StepTap {
 public:
  explicit FeatureRecorder(worker::FeatureFile* file)  // outlives it
      : file_(file) {}

  bool ReadsLogits() const override { return true; }
  Rows ReadsHidden(const worker::TapSession&) const override {
    return file_->hidden() != nullptr ? Rows::kAll : Rows::kNone;
  }
  // One row each.
  void OnRows(const worker::TapSession& session,
              const worker::TapRows& rows) override;
  void OnVerdict(const worker::TapSession& session, int accepted,
                 bool rejected) override;
  void OnClosed(const worker::TapSession& session) override;

 private:
  worker::FeatureFile* const file_;
  std::map<worker::SessionKey, SessionFeatures> sessions_;  // that drafted
  std::vector<float> copy_;  // of what lies on a device
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_FEATURE_RECORDER_H_
