// The text of one session at its target: what is committed, and where it ends.
//
// Pure: no I/O, no clock, no threads. Owned by TargetSession.

#ifndef SPECULATION_TARGET_TEXT_H_
#define SPECULATION_TARGET_TEXT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

class TargetText {
 public:
  struct Limits {
    int prompt_length = 0;          // >= 1
    int max_tokens = 0;             // >= 1, counted from the prompt
    std::vector<int32_t> eos_ids;   // end with kEos; empty with ignore_eos
    std::vector<int32_t> stop_ids;  // end with kStop
  };
  // `committed` is the prompt and, after a re-open, what was emitted before.
  // That may have ended already.
  TargetText(Limits limits, std::vector<int32_t> committed);

  // The target's next token. It may end the text.
  void Commit(int32_t token_id);
  // Several that do not.
  void CommitInside(absl::Span<const int32_t> token_ids);

  // Whether, and how, the text would end with this token.
  FinishReason EndsWith(int32_t token_id) const;
  bool IsEnd(int32_t token_id) const {
    return EndsWith(token_id) != FinishReason::kNone;
  }

  const std::vector<int32_t>& committed() const { return committed_; }
  int length() const { return static_cast<int>(committed_.size()); }
  int generated() const { return length() - limits_.prompt_length; }
  int remaining() const { return limits_.max_tokens - generated(); }
  FinishReason finish() const { return finish_; }
  bool finished() const { return finish_ != FinishReason::kNone; }

 private:
  Limits limits_;
  std::vector<int32_t> committed_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_TARGET_TEXT_H_
