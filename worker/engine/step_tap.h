// What the rows of a step yield besides tokens: logits and hidden states. They
// are for recorders, and for the publisher that drafts read from. An engine
// knows one tap. StepTaps makes one of several.
//
// The engine's thread; nothing here waits for another worker.

#ifndef WORKER_ENGINE_STEP_TAP_H_
#define WORKER_ENGINE_STEP_TAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/float_view.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

// A session as taps know it. Valid for the call.
struct TapSession {
  SessionKey key;
  const std::string& request_id;
  int prompt_length = 0;
  int vocab_limit = 0;  // of a draft: only ids below are drawn
  // Of a target: as what its hidden states may be read, and for which draft.
  uint64_t hidden_channel = 0;
  uint32_t hidden_epoch = 0;
  bool has_ended = false;  // nothing is drafted after its last token
  bool is_held = false;    // its step waits for the draft's next token
};

// Rows of one session in the step that has run, those that gave tokens.
struct TapRows {
  int position = 0;                     // tokens before the first of these
  absl::Span<const int32_t> token_ids;  // [rows]
  absl::Span<const float> logits;       // [rows, vocab_size] if it reads them
  kernels::FloatView hidden;            // [rows, hidden_size] if it reads them
};

class StepTap {
 public:
  enum class Rows { kNone, kLast, kAll };

  virtual ~StepTap() = default;

  // Whose hidden states it reads, of the rows that the session's step shows: a
  // model need not copy the others.
  virtual Rows ReadsHidden(const TapSession& session) const = 0;
  virtual bool ReadsLogits() const { return false; }

  // Only where it reads something.
  virtual void OnRows(const TapSession& session, const TapRows& rows) = 0;
  // Of a draft: the target accepted so many of the tokens shown before that had
  // no verdict yet, and rejected the next one or not.
  virtual void OnVerdict(const TapSession& session, int accepted,
                         bool rejected) {
    static_cast<void>(session);
    static_cast<void>(accepted);
    static_cast<void>(rejected);
  }
  virtual void OnClosed(const TapSession& session) {
    static_cast<void>(session);
  }
};

class StepTaps final : public StepTap {
 public:
  // Null: no tap.
  void Add(std::unique_ptr<StepTap> tap);
  bool empty() const { return taps_.empty(); }

  // What any of them reads: the others may be shown more than they asked for.
  Rows ReadsHidden(const TapSession& session) const override;
  bool ReadsLogits() const override;
  void OnRows(const TapSession& session, const TapRows& rows) override;
  void OnVerdict(const TapSession& session, int accepted,
                 bool rejected) override;
  void OnClosed(const TapSession& session) override;

 private:
  std::vector<std::unique_ptr<StepTap>> taps_;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_STEP_TAP_H_
