// Records what `cali-ts` is calibrated from besides the draft's rows: the
// hidden states that the tokens of an answer were drawn from. One JSON object a
// token (docs/policies.md, "Recording").
//
// The engine's thread.

#ifndef TARGET_WORKER_STATE_RECORDER_H_
#define TARGET_WORKER_STATE_RECORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/step_tap.h"
#include "worker/recording/feature_file.h"

namespace nacre::target_worker {

// Of committed tokens that one step has drawn.
struct RecordedStates {
  const std::string& request_id;
  uint64_t session_id = 0;
  int position = 0;  // tokens of the answer before the first
  int num_tokens = 0;
  absl::Span<const float> states;  // [num_tokens, hidden size]
};

// `file` records hidden states.
void RecordStates(const RecordedStates& recorded, worker::FeatureFile* file);

// Records all rows that give tokens. A step that held its last row is left out.
class StateRecorder final : public worker::StepTap {
 public:
  // `file` records hidden states and outlives it.
  explicit StateRecorder(worker::FeatureFile* file) : file_(file) {}

  Rows ReadsHidden(const worker::TapSession& session) const override {
    return session.is_held ? Rows::kNone : Rows::kAll;
  }
  void OnRows(const worker::TapSession& session,
              const worker::TapRows& rows) override {
    RecordStates(
        {session.request_id, session.key.second,
         rows.position - session.prompt_length,
         static_cast<int>(rows.token_ids.size()), rows.hidden.OnHost(&copy_)},
        file_);
  }

 private:
  worker::FeatureFile* const file_;
  std::vector<float> copy_;  // of what lies on a device
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_STATE_RECORDER_H_
