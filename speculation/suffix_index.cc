#include "speculation/suffix_index.h"

#include <algorithm>

#include "common/check.h"

namespace nacre::speculation {
namespace {

// Of one chain: positions that only share the hash are passed by, too.
constexpr int kMaxLinks = 4 * SuffixIndex::kMaxOccurrences;

// The finalizer of SplitMix64 (Steele et al., OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

SuffixIndex::SuffixIndex(int64_t capacity) {
  NACRE_CHECK(capacity >= 1 && capacity <= kMaxTokens,
              "room for 1 to 2^31 tokens");
  const size_t size = static_cast<size_t>(capacity);
  size_t num_heads = 1;
  while (2 * num_heads <= size) num_heads *= 2;
  hash_mask_ = static_cast<uint32_t>(num_heads - 1);
  tokens_.resize(size);
  text_of_.resize(size);
  for (Chains& chains : chains_) {
    chains.heads.assign(num_heads, kNone);
    chains.previous.resize(size);
  }
}

uint32_t SuffixIndex::HashOf(const TextOwner& owner, const int32_t* end,
                             int gram) const {
  uint64_t hash = owner[0] ^ Mix(owner[1] + static_cast<uint64_t>(gram));
  for (const int32_t* id = end - gram; id != end; ++id) {
    hash = Mix(hash + static_cast<uint32_t>(*id) + 0x9e3779b97f4a7c15u);
  }
  return static_cast<uint32_t>(hash) & hash_mask_;
}

void SuffixIndex::DropOldest() {
  texts_.pop_front();
  ++oldest_;
}

void SuffixIndex::MakeRoom(uint32_t room) {
  uint32_t begin = texts_.empty() ? 0 : texts_.back().end;
  if (capacity() - begin < room) {
    // The rest of the ring stays empty: a text lies in one piece.
    while (!texts_.empty() && texts_.front().begin >= begin) DropOldest();
    begin = 0;
  }
  const uint32_t end = begin + room;
  while (!texts_.empty() && texts_.front().begin < end &&
         texts_.front().end > begin) {
    DropOldest();
  }
  room_end_ = end;
  texts_.push_back({{}, begin, begin});
}

void SuffixIndex::Begin(const TextOwner& owner, int64_t room) {
  NACRE_CHECK(room >= 0 && room <= capacity(), "a text of the capacity");
  MakeRoom(static_cast<uint32_t>(room));
  texts_.back().owner = owner;
}

void SuffixIndex::Append(absl::Span<const int32_t> token_ids) {
  NACRE_CHECK(!texts_.empty(), "Append before Begin");
  Text& text = texts_.back();
  NACRE_CHECK(token_ids.size() <= room_end_ - text.end,
              "more than the room of the text");
  const uint32_t number = oldest_ + static_cast<uint32_t>(texts_.size()) - 1;
  for (const int32_t id : token_ids) {
    const uint32_t position = text.end++;
    tokens_[position] = id;
    text_of_[position] = number;
    const int length = static_cast<int>(text.end - text.begin);
    for (size_t level = 0; level < kGrams.size(); ++level) {
      if (length < kGrams[level]) continue;
      Chains& chains = chains_[level];
      uint32_t& head = chains.heads[HashOf(
          text.owner, tokens_.data() + text.end, kGrams[level])];
      chains.previous[position] = head;
      head = position;
    }
  }
}

void SuffixIndex::Add(const TextOwner& owner,
                      absl::Span<const int32_t> token_ids) {
  if (token_ids.empty()) return;
  const size_t most = tokens_.size();
  if (token_ids.size() > most) {
    token_ids.remove_prefix(token_ids.size() - most);
  }
  Begin(owner, static_cast<int64_t>(token_ids.size()));
  Append(token_ids);
}

const SuffixIndex::Text* SuffixIndex::TextAt(uint32_t position) const {
  // Numbers of dropped texts are below the oldest: the difference wraps.
  const uint32_t index = text_of_[position] - oldest_;
  if (index >= texts_.size()) return nullptr;
  const Text& text = texts_[index];
  return position >= text.begin && position < text.end ? &text : nullptr;
}

int SuffixIndex::MatchAt(const Text& text, uint32_t position,
                         absl::Span<const int32_t> context) const {
  const int most = static_cast<int>(
      std::min({size_t{kMaxMatch}, context.size(),
                static_cast<size_t>(position - text.begin) + 1}));
  const int32_t* const end = context.data() + context.size();
  int match = 0;
  while (match < most &&
         tokens_[position - static_cast<uint32_t>(match)] == end[-1 - match]) {
    ++match;
  }
  return match;
}

void SuffixIndex::Walk(int level, const TextOwner& owner,
                       absl::Span<const int32_t> context, int max_next,
                       std::vector<Occurrence>* found) const {
  const int gram = kGrams[static_cast<size_t>(level)];
  const Chains& chains = chains_[static_cast<size_t>(level)];
  uint32_t position =
      chains.heads[HashOf(owner, context.data() + context.size(), gram)];
  const Text* newer = nullptr;
  uint32_t newer_position = kNone;
  for (int links = 0; position != kNone && links < kMaxLinks; ++links) {
    const Text* const text = TextAt(position);
    // A chain leads back in time. Where it does not, its rest was dropped and
    // the place taken anew.
    if (text == nullptr) return;
    if (newer != nullptr) {
      const uint32_t age = text_of_[newer_position] - text_of_[position];
      if (age >= texts_.size() || (age == 0 && position >= newer_position)) {
        return;
      }
    }
    newer = text;
    newer_position = position;
    const int match = text->owner == owner && position + 1 < text->end
                          ? MatchAt(*text, position, context)
                          : 0;
    if (match >= gram) {
      const uint32_t count =
          std::min(static_cast<uint32_t>(max_next), text->end - position - 1);
      found->push_back({{tokens_.data() + position + 1, count}, match});
      if (static_cast<int>(found->size()) == kMaxOccurrences) return;
    }
    position = chains.previous[position];
  }
}

void SuffixIndex::Find(const TextOwner& owner,
                       absl::Span<const int32_t> context, int max_next,
                       std::vector<Occurrence>* found) const {
  found->clear();
  if (max_next < 1) return;
  for (size_t level = 0; level < kGrams.size() && found->empty(); ++level) {
    if (static_cast<int>(context.size()) < kGrams[level]) continue;
    Walk(static_cast<int>(level), owner, context, max_next, found);
  }
  int longest = 0;
  for (const Occurrence& one : *found) longest = std::max(longest, one.match);
  found->erase(std::remove_if(found->begin(), found->end(),
                              [longest](const Occurrence& one) {
                                return one.match < longest;
                              }),
               found->end());
}

}  // namespace nacre::speculation
