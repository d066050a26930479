// Which target was given the beginning of a prompt last: prompts that begin
// alike are best computed where that is cached. Only a hint: the target may
// have dropped it.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_FLEET_PROMPT_PREFIXES_H_
#define COORDINATOR_FLEET_PROMPT_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::coordinator {

struct PromptPrefix {
  uint64_t hash = 0;
  int tokens = 0;
};

// Those of 16, 32, 64, ... tokens, and all of its whole blocks of 16: what the
// workers' caches can share. The longest first.
std::vector<PromptPrefix> PrefixesOf(absl::Span<const int32_t> prompt);

class PrefixHolders {
 public:
  // At most 2 * kGeneration prefixes are kept, the newest.
  static constexpr size_t kGeneration = 4096;

  void Note(const std::vector<PromptPrefix>& prefixes, uint64_t worker_id);

  // Who was given the longest of them, among those that `may_take` accepts for
  // so many tokens.
  absl::optional<uint64_t> Find(
      const std::vector<PromptPrefix>& prefixes,
      absl::FunctionRef<bool(uint64_t worker_id, int tokens)> may_take) const;

  // How many sessions more than the least loaded worker its holder may have.
  static int ExtraSessions(int tokens);

  size_t size() const { return newest_.size() + older_.size(); }

 private:
  using Holders = absl::flat_hash_map<uint64_t, uint64_t>;  // hash to worker
  Holders newest_;
  Holders older_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_PROMPT_PREFIXES_H_
