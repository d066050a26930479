#include "speculation/suffix_draft.h"

#include <algorithm>

#include "common/check.h"

namespace nacre::speculation {
namespace {

// What a session begins with, as if so many matches had been seen.
constexpr double kPriorTrials = 4;
constexpr std::array<double, 5> kPriorHits = {0.3, 0.5, 0.7, 0.8, 0.85};
// Older ones count less and less: texts change.
constexpr double kMaxTrials = 48;

// A node that may come next, and the occurrences that go on so, one bit each.
struct Continuation {
  SuffixNode node;
  int depth = 1;
  uint32_t occurrences = 0;
};
static_assert(SuffixIndex::kMaxOccurrences <= 32, "a bit each");

class TreeGrowth {
 public:
  TreeGrowth(absl::Span<const SuffixIndex::Occurrence> occurrences,
             const SuffixTrust& trust)
      : occurrences_(occurrences), trust_(trust) {}

  void AddChildren(int parent, const Continuation& of, int match) {
    const size_t first = continuations_.size();
    const size_t depth = static_cast<size_t>(of.depth);
    int total = 0;
    for (size_t i = 0; i < occurrences_.size(); ++i) {
      const absl::Span<const int32_t> next = occurrences_[i].next;
      if ((of.occurrences >> i & 1) == 0 || next.size() <= depth) continue;
      ++total;
      size_t at = first;
      while (at < continuations_.size() &&
             continuations_[at].node.token_id != next[depth]) {
        ++at;
      }
      if (at == continuations_.size()) {
        continuations_.push_back(
            {{next[depth], parent, match}, of.depth + 1, 0});
      }
      continuations_[at].occurrences |= uint32_t{1} << i;
    }
    const double trust = trust_.At(match);
    for (size_t at = first; at < continuations_.size(); ++at) {
      SuffixNode& node = continuations_[at].node;
      node.given_parent =
          trust * __builtin_popcount(continuations_[at].occurrences) / total;
      node.probability = of.node.probability * node.given_parent;
    }
  }

  // The likeliest, of equal ones the first. False: there is none.
  bool Take(Continuation* taken) {
    const auto best =
        std::max_element(continuations_.begin(), continuations_.end(),
                         [](const Continuation& a, const Continuation& b) {
                           return a.node.probability < b.node.probability;
                         });
    if (best == continuations_.end()) return false;
    *taken = *best;
    continuations_.erase(best);
    return true;
  }

  void Clear() { continuations_.clear(); }

 private:
  const absl::Span<const SuffixIndex::Occurrence> occurrences_;
  const SuffixTrust& trust_;
  std::vector<Continuation> continuations_;
};

}  // namespace

SuffixTrust::SuffixTrust() {
  for (size_t i = 0; i < counts_.size(); ++i) {
    counts_[i] = {kPriorHits[i] * kPriorTrials, kPriorTrials};
  }
}

int SuffixTrust::ClassOf(int match) {
  int of = 0;
  while (of + 1 < kClasses && match >= (4 << of)) ++of;
  return of;
}

double SuffixTrust::At(int match) const {
  const Count& count = counts_[static_cast<size_t>(ClassOf(match))];
  return std::clamp(count.hits / count.trials, 0.01, 0.99);
}

void SuffixTrust::Add(int match, bool hit) {
  Count& count = counts_[static_cast<size_t>(ClassOf(match))];
  if (count.trials >= kMaxTrials) {
    count.hits *= 1 - 1 / kMaxTrials;
    count.trials *= 1 - 1 / kMaxTrials;
  }
  count.hits += hit ? 1 : 0;
  count.trials += 1;
}

void GrowSuffixTree(absl::Span<const SuffixIndex::Occurrence> occurrences,
                    const SuffixTrust& trust, const SuffixLimits& limits,
                    std::vector<SuffixNode>* nodes) {
  nodes->clear();
  if (occurrences.empty() || limits.max_depth < 1) return;
  const int match = occurrences.front().match;
  TreeGrowth growth(occurrences, trust);
  Continuation root;
  root.node.probability = 1;
  root.depth = 0;
  root.occurrences = UINT32_MAX;
  growth.AddChildren(-1, root, match);
  Continuation next;
  while (static_cast<int>(nodes->size()) < limits.max_nodes &&
         growth.Take(&next) &&
         next.node.probability >= limits.least_probability) {
    nodes->push_back(next.node);
    if (limits.is_chain) growth.Clear();
    if (next.depth < limits.max_depth) {
      growth.AddChildren(static_cast<int>(nodes->size()) - 1, next,
                         std::min(next.node.match + 1, SuffixIndex::kMaxMatch));
    }
  }
}

absl::Span<const SuffixNode> WorthARow(absl::Span<const SuffixNode> nodes,
                                       const SuffixAccount& account,
                                       double row_price) {
  // No node comes before its parent.
  size_t count = 0;
  if (account.budget() > 0) {
    while (count < nodes.size() &&
           nodes[count].probability * account.worth() > row_price) {
      ++count;
    }
  }
  return nodes.first(count);
}

int NumSaid(absl::Span<const SuffixNode> nodes,
            absl::Span<const int32_t> token_ids) {
  int parent = -1;
  int said = 0;
  for (const int32_t token_id : token_ids) {
    const auto child =
        std::find_if(nodes.begin(), nodes.end(), [&](const SuffixNode& node) {
          return node.parent == parent && node.token_id == token_id;
        });
    if (child == nodes.end()) break;
    parent = static_cast<int>(child - nodes.begin());
    ++said;
  }
  return said;
}

SuffixDraft::SuffixDraft(const TextOwner& owner, int max_length)
    : owner_(owner), own_(max_length) {
  own_.Begin(owner_, max_length);
}

absl::Span<const SuffixNode> SuffixDraft::Propose(
    absl::Span<const int32_t> text, const SuffixIndex* remembered,
    const SuffixLimits& limits) {
  NACRE_CHECK(static_cast<int>(text.size()) >= length_, "the text goes on");
  Learn(text);
  own_.Append(text.subspan(static_cast<size_t>(length_)));
  length_ = static_cast<int>(text.size());
  own_.Find(owner_, text, limits.max_depth, &found_);
  if (remembered != nullptr) {
    remembered->Find(owner_, text, limits.max_depth, &remembered_);
    const int own = found_.empty() ? 0 : found_.front().match;
    const int other = remembered_.empty() ? 0 : remembered_.front().match;
    if (other > own) {
      found_.swap(remembered_);
    } else if (other == own) {
      // The text itself tells more than older ones.
      const size_t most = SuffixIndex::kMaxOccurrences - found_.size();
      found_.insert(found_.end(), remembered_.begin(),
                    remembered_.begin() + static_cast<std::ptrdiff_t>(std::min(
                                              most, remembered_.size())));
    }
  }
  GrowSuffixTree(found_, trust_, limits, &nodes_);
  return nodes_;
}

void SuffixDraft::Learn(absl::Span<const int32_t> text) {
  int parent = -1;
  for (size_t at = static_cast<size_t>(length_); at < text.size(); ++at) {
    int hit = -1;
    int match = 0;
    for (int i = parent + 1; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[static_cast<size_t>(i)].parent != parent) continue;
      match = nodes_[static_cast<size_t>(i)].match;
      if (nodes_[static_cast<size_t>(i)].token_id == text[at]) hit = i;
    }
    if (match == 0) break;  // nothing was proposed there
    trust_.Add(match, hit >= 0);
    if (hit < 0) break;
    parent = hit;
  }
  nodes_.clear();
}

}  // namespace nacre::speculation
