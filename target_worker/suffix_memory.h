// The suffixes that sessions of the target draft from: of their own text, and
// of answers that their client got before.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_SUFFIX_MEMORY_H_
#define TARGET_WORKER_SUFFIX_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "speculation/suffix_draft.h"
#include "speculation/suffix_index.h"
#include "target_worker/target_messages.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class SuffixMemory {
 public:
  static constexpr int64_t kLeastBytes = 64 << 10;

  // `allowed`: whether sessions may draft from suffixes at all. Answers take
  // `bytes` at most, of all clients; below kLeastBytes they are forgotten.
  SuffixMemory(bool allowed, int64_t bytes);

  // Of a session that was opened so: whether it drafts from suffixes.
  void Open(EngineSession& session, const OpenTarget& open) const;
  // Nodes of the session's own; none where it does not draft from suffixes.
  // Valid until the next call for it.
  absl::Span<const speculation::SuffixNode> Propose(
      EngineSession& session) const;
  // The session is being closed: its answer serves the next ones of its client.
  void Remember(const EngineSession& session);

 private:
  const bool allowed_;
  // Answers of finished sessions, by client; null: they are forgotten.
  const std::unique_ptr<speculation::SuffixIndex> answers_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_SUFFIX_MEMORY_H_
