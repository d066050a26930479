#include "coordinator/fleet/prompt_prefixes.h"

#include <algorithm>
#include <utility>

#include "coordinator/fleet/kv_ledger.h"

namespace nacre::coordinator {
namespace {

// The same in every process, unlike absl::Hash: a seed of the simulation
// decides all that happens.
uint64_t Mix(uint64_t hash, int32_t token_id) {
  hash = (hash ^ static_cast<uint32_t>(token_id)) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

}  // namespace

std::vector<PromptPrefix> PrefixesOf(absl::Span<const int32_t> prompt) {
  constexpr size_t kBlock = KvLedger::kBlockTokens;
  const size_t all = prompt.size() / kBlock * kBlock;
  std::vector<PromptPrefix> prefixes;
  uint64_t hash = 0;
  size_t next = kBlock;
  for (size_t i = 0; i < all; ++i) {
    hash = Mix(hash, prompt[i]);
    const size_t tokens = i + 1;
    if (tokens != next && tokens != all) continue;
    prefixes.push_back({hash, static_cast<int>(tokens)});
    if (tokens == next) next *= 2;
  }
  std::reverse(prefixes.begin(), prefixes.end());
  return prefixes;
}

void PrefixHolders::Note(const std::vector<PromptPrefix>& prefixes,
                         uint64_t worker_id) {
  for (const PromptPrefix& prefix : prefixes) {
    if (newest_.size() == kGeneration && !newest_.contains(prefix.hash)) {
      older_ = std::exchange(newest_, {});
    }
    newest_[prefix.hash] = worker_id;
  }
}

absl::optional<uint64_t> PrefixHolders::Find(
    const std::vector<PromptPrefix>& prefixes,
    absl::FunctionRef<bool(uint64_t worker_id, int tokens)> may_take) const {
  for (const PromptPrefix& prefix : prefixes) {
    for (const Holders* holders : {&newest_, &older_}) {
      const auto it = holders->find(prefix.hash);
      if (it == holders->end()) continue;
      if (may_take(it->second, prefix.tokens)) return it->second;
      break;
    }
  }
  return absl::nullopt;
}

int PrefixHolders::ExtraSessions(int tokens) {
  constexpr int kTokensASession = 64;
  constexpr int kMost = 4;
  return std::min(tokens / kTokensASession, kMost);
}

}  // namespace nacre::coordinator
