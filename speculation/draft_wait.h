// Whether a target waits for a session's draft: what the draft last said of
// going on, and how long the target has waited.
//
// Two waits, never at once: of a closed gate before a step, and of a step that
// holds its last row (pipeline.h). Each ends by itself after the gate's
// timeout. A draft that sent nothing meanwhile is SILENT until it is heard,
// whatever it had sent before. So a hung draft does not cost one timeout per
// step.
//
// Pure: no I/O, no clock (times are passed in, nanoseconds of one monotonic
// clock), no threads. Owned by TargetSession.

#ifndef SPECULATION_DRAFT_WAIT_H_
#define SPECULATION_DRAFT_WAIT_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

class DraftWait {
 public:
  DraftWait(bool has_draft, int64_t timeout_ns)
      : has_draft_(has_draft), timeout_ns_(timeout_ns) {}

  // Also of a wait that runs.
  void OnTimeout(int64_t timeout_ns) { timeout_ns_ = timeout_ns; }

  // Another draft is there.
  void OnAttached();
  void OnLost() { has_draft_ = false; }
  // A message came. `missed`: the draft has none of it where the text goes on.
  void OnHeard(bool missed) {
    is_silent_ = false;
    was_heard_ = true;
    missed_ = missed;
  }
  // A complete chunk ends after the token `end_length` - 1. The gate is open
  // until it has been verified, however far the draft goes on after it.
  void OnChunk(int end_length) { chunk_end_ = end_length; }
  // Why the draft goes no further, of a message that knows the newest commit.
  void OnStop(StopMark stop) {
    stop_ = stop == StopMark::kChunk ? StopMark::kNone : stop;
  }
  // A step committed tokens: what stopped the draft may let it go on.
  void OnCommitted();
  // ... along a branch, where the draft has come to no end.
  void OnBranch() { stop_ = StopMark::kNone; }
  // The draft goes on from another token.
  void OnMismatch();

  bool has_draft() const { return has_draft_; }
  // Whether the draft begins anew, because it had not what the target said: a
  // wait for it is one after a miss. So a session starts.
  bool missed() const { return missed_; }
  // Whether steps go on as if there were no draft.
  bool is_without_draft() const { return !has_draft_ || is_silent_; }
  // Whether nothing more will come before a step.
  bool has_stopped() const { return stop_ != StopMark::kNone; }
  // Whether the draft may send more for a text of `length` before its step.
  bool MayCome(int length) const {
    return !is_without_draft() && !has_stopped() && chunk_end_ <= length;
  }

  // Whether to wait on, since the first call after EndGateWait. Where the time
  // is over the wait ends, and a draft that was not heard in it is silent.
  bool WaitAtGate(int64_t now_ns);
  void EndGateWait() { gate_since_ns_.reset(); }
  bool WaitWithLastRow(int64_t now_ns);
  void EndLastRowWait() { last_row_since_ns_.reset(); }
  bool waits_with_last_row() const { return last_row_since_ns_.has_value(); }
  // When the wait ends by itself; nullopt: there is none.
  absl::optional<int64_t> gate_deadline_ns() const;
  absl::optional<int64_t> last_row_deadline_ns() const;

 private:
  bool Wait(absl::optional<int64_t>* since_ns, int64_t now_ns);
  absl::optional<int64_t> Deadline(absl::optional<int64_t> since_ns) const;

  bool has_draft_;
  int64_t timeout_ns_;
  bool missed_ = true;
  bool was_heard_ = false;  // since the wait began
  bool is_silent_ = false;  // a wait timed out and nothing has arrived since
  StopMark stop_ = StopMark::kNone;
  // After the last token that a length policy ended a chunk with; at most the
  // text's length where there is none.
  int chunk_end_ = 0;
  absl::optional<int64_t> gate_since_ns_;
  absl::optional<int64_t> last_row_since_ns_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_DRAFT_WAIT_H_
