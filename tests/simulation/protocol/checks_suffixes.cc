// What a target may propose to itself: what followed, somewhere in the texts
// that it may look at, the two tokens before it.

#include <algorithm>
#include <array>
#include <vector>

#include "tests/simulation/protocol/checks.h"
#include "tests/simulation/protocol/simulated_drafter.h"
#include "tests/simulation/protocol/simulated_heads.h"

namespace nacre::protocol {
namespace {

using Three = std::array<int32_t, 3>;

bool Has(absl::Span<const int32_t> text, const Three& three) {
  for (size_t i = 0; i + three.size() <= text.size(); ++i) {
    if (absl::MakeConstSpan(text).subspan(i, three.size()) == three) {
      return true;
    }
  }
  return false;
}

std::vector<int32_t> Committed(const SessionOnWorker& session) {
  std::vector<int32_t> text;
  for (int i = 0; i < session.committed; ++i) text.push_back(session.token(i));
  return text;
}

// After the text, whose last token was drawn from the row of the two before.
bool IsSaidByHeads(const LogitTable* heads, const SessionOnWorker& session,
                   absl::Span<const int32_t> text, int row) {
  if (heads == nullptr) return false;
  const int32_t token_id = session.rows[static_cast<size_t>(row) - 1];
  int head = -1;
  for (; row > 0; row = session.parents[static_cast<size_t>(row) - 1]) ++head;
  const size_t length = text.size();
  return SimulatedHeads(session.request->table, heads)
      .Says(head, length < 3 ? -1 : text[length - 3],
            length < 2 ? -1 : text[length - 2], token_id);
}

// The row of that token below this one; -1: none.
int RowBelow(const SessionOnWorker& session, int row, int32_t token_id) {
  for (size_t i = 0; i < session.rows.size(); ++i) {
    if (session.parents[i] == row && session.rows[i] == token_id) {
      return static_cast<int>(i) + 1;
    }
  }
  return -1;
}

// Rows that stand in place, one after the other.
int PathLength(const SessionOnWorker& session) {
  int length = 0;
  while (length < static_cast<int>(session.rows.size()) &&
         session.parents[static_cast<size_t>(length)] == length) {
    ++length;
  }
  return length;
}

// The last row that the step committed; 0: none.
int LastWalked(const SessionOnWorker& session,
               const speculation::Verdict& verdict) {
  int row = 0;
  for (int i = 0; i < verdict.matched && row >= 0; ++i) {
    row = RowBelow(session, row, verdict.token_ids[static_cast<size_t>(i)]);
  }
  return row;
}

}  // namespace

// So it does of all that is before the row. What it ranks before the row, by
// what the target will draw with, is likelier: it must be a row, too.
bool Checks::IsSaidByDrafter(const SessionOnWorker& session,
                             absl::Span<const int32_t> text, int row) {
  if (own_.drafter == nullptr || session.own.look.length != session.committed) {
    return false;
  }
  const RequestState& request = *session.request;
  std::vector<int> path;  // rows, the first one's parent before it
  for (; row > 0; row = session.parents[static_cast<size_t>(row) - 1]) {
    path.push_back(row);
  }
  std::reverse(path.begin(), path.end());
  TableSampler sampler(own_.drafter, request.options->spec);
  Cell end = {-1, kEmptyHash};
  int32_t before = -1;
  const auto push = [&](int32_t token_id) {
    sampler.Push(token_id);
    before = end.token_id;
    end = {token_id, ExtendHash(end.hash, token_id)};
  };
  for (const int32_t token_id : text) push(token_id);
  if (session.own.look.hash != end.hash) {
    Fail(
        "the target's draft was asked about another text than that of request ",
        request.index);
  }
  int parent = 0;
  for (const int at : path) {
    const int32_t said = session.rows[static_cast<size_t>(at) - 1];
    const std::vector<int32_t> ranked = sampler.RankedOf(
        SaidByDrafter(*own_.drafter, end, before, session.own.look.first));
    const auto rank = std::find(ranked.begin(), ranked.end(), said);
    if (rank == ranked.end()) return false;
    for (auto better = ranked.begin(); at == path.back() && better != rank;
         ++better) {
      if (RowBelow(session, parent, *better) < 0) return false;
    }
    push(said);
    parent = at;
  }
  return true;
}

void Checks::FollowTexts(SessionOnWorker& session) {
  const RequestState& request = *session.request;
  const auto& owner = request.options->spec.suffixes;
  session.is_remembered = session.is_of_heads = session.is_of_drafter = false;
  session.follows_texts = owner.has_value();
  if (owner.has_value() && session.rows.empty() &&
      session.own.look.length >= 0 &&
      session.own.look.length != session.committed) {
    ++own_counts_.unasked;
  }
  if (!owner.has_value() || session.rows.empty()) return;
  const std::vector<int32_t> text = Committed(session);
  // A row and the two tokens before it: rows, or the text's last ones.
  const auto token_before = [&](int row, int back) -> int32_t {
    for (; back > 0 && row > 0; --back) {
      row = session.parents[static_cast<size_t>(row) - 1];
    }
    if (row > 0) return session.rows[static_cast<size_t>(row) - 1];
    const int at = session.committed - 1 - back;
    return at < 0 ? -1 : text[static_cast<size_t>(at)];
  };
  for (int row = 1; row <= static_cast<int>(session.rows.size()); ++row) {
    const Three three = {token_before(row, 2), token_before(row, 1),
                         token_before(row, 0)};
    if (Has(text, three)) continue;
    if (IsSaidByHeads(own_.heads, session, text, row)) {
      session.is_of_heads = true;
      continue;
    }
    if (IsSaidByDrafter(session, text, row)) {
      session.is_of_drafter = true;
      continue;
    }
    session.is_remembered = true;
    bool is_found = false;
    for (const RequestState& other : *requests_) {
      is_found |= *owner != speculation::TextOwner() &&
                  other.options->spec.suffixes == owner &&
                  Has(other.expected.token_ids, three);
    }
    session.follows_texts &= is_found;
  }
}

// A step verifies the draft's tokens or the target's own, and counts these
// apart.
void Checks::CheckSuffixes(const SessionOnWorker& session,
                           const speculation::Verdict& verdict) {
  const int index = session.request->index;
  const int num_rows = static_cast<int>(session.rows.size());
  const bool is_own = verdict.suffix_proposed > 0;
  if (verdict.suffix_proposed != (is_own ? num_rows : 0) ||
      verdict.suffix_accepted != (is_own ? verdict.matched : 0)) {
    Fail("a step of request ", index, " matched ", verdict.matched, " of ",
         num_rows, " rows, of which its verdict says it proposed ",
         verdict.suffix_proposed, " itself, ", verdict.suffix_accepted,
         " of them right");
  }
  if (is_own && !session.follows_texts) {
    Fail("the target proposes to request ", index, " at position ",
         session.committed,
         " what followed in no text that it may look at, nor says its draft or "
         "its heads there");
  }
  if (!is_own && session.has_undrafted) {
    Fail("stale tail: the target verifies for request ", index,
         " after position ", session.committed, " what the draft of epoch ",
         session.epoch, " did not draw there");
  }
  if (!is_own) return;
  const int64_t walk = verdict.matched > 0 ? 1 : 0;
  own_counts_.rows += num_rows;
  own_counts_.walks += walk;
  const int path = PathLength(session);
  own_counts_.beside += num_rows - path;
  own_counts_.beside_walks += LastWalked(session, verdict) > path ? 1 : 0;
  own_counts_.remembered += session.is_remembered ? 1 : 0;
  own_counts_.of_heads += session.is_of_heads ? 1 : 0;
  own_counts_.head_walks += session.is_of_heads ? walk : 0;
  if (!session.is_of_drafter) return;
  ++(own_.reads_kv ? own_counts_.of_kv : own_counts_.of_features);
  (own_.reads_kv ? own_counts_.kv_walks : own_counts_.feature_walks) += walk;
  own_counts_.exchanged += session.request->num_drafts > 1 ? walk : 0;
  own_counts_.failed_over += session.request->num_targets > 1 ? walk : 0;
  own_counts_.beheaded += session.own.look.first > 0 ? walk : 0;
}

}  // namespace nacre::protocol
