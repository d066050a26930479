#include "target_worker/suffix_memory.h"

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using speculation::TextOwner;

namespace {

// Shorter answers are not worth a place.
constexpr int kLeastRemembered = 16;

std::unique_ptr<speculation::SuffixIndex> MakeAnswers(int64_t bytes) {
  using speculation::SuffixIndex;
  if (bytes < SuffixMemory::kLeastBytes) return nullptr;
  constexpr int64_t kBytes = SuffixIndex::kBytesPerToken +
                             SuffixIndex::kBytesPerText / kLeastRemembered;
  return std::make_unique<SuffixIndex>(
      std::min(bytes / kBytes, SuffixIndex::kMaxTokens));
}

}  // namespace

SuffixMemory::SuffixMemory(bool allowed, int64_t bytes)
    : allowed_(allowed), answers_(allowed ? MakeAnswers(bytes) : nullptr) {}

void SuffixMemory::Open(EngineSession& session, const OpenTarget& open) const {
  if (!allowed_ || !open.suffixes.has_value() ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  session.suffixes = std::make_unique<speculation::SuffixDraft>(
      *open.suffixes, open.prompt_length + open.max_tokens);
}

absl::Span<const speculation::SuffixNode> SuffixMemory::Propose(
    EngineSession& session) const {
  if (session.suffixes == nullptr) return {};
  speculation::SuffixDraft& suffixes = *session.suffixes;
  const bool remembers = suffixes.owner() != TextOwner();
  // It learns from all.
  return suffixes.Propose(session.schedule.committed(),
                          remembers ? answers_.get() : nullptr,
                          session.schedule.suffix_limits());
}

void SuffixMemory::Remember(const EngineSession& session) {
  if (session.suffixes == nullptr || answers_ == nullptr ||
      session.suffixes->owner() == TextOwner() ||
      session.schedule.text().generated() < kLeastRemembered) {
    return;
  }
  // Only what this service has said itself.
  answers_->Add(
      session.suffixes->owner(),
      absl::MakeConstSpan(session.schedule.committed())
          .last(static_cast<size_t>(session.schedule.text().generated())));
}

}  // namespace nacre::target_worker
