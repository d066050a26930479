#include "tests/simulation/protocol/tree_watch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/checks.h"

namespace nacre::protocol {
namespace {

bool IsOfRequest(const RequestState& request,
                 absl::Span<const int32_t> token_ids) {
  for (size_t i = 0; i < token_ids.size(); ++i) {
    if (token_ids[i] != request.token(static_cast<int>(i))) return false;
  }
  return true;
}

}  // namespace

void DraftWatch::Text::Push(int32_t token_id) {
  token_ids.push_back(token_id);
  hash = ExtendHash(hash, token_id);
}

int DraftWatch::NumLiveSlots(const RequestState& request) const {
  int count = 0;
  for (const auto& [slot, text] : slots_) {
    const bool is_live =
        text.length() > base_length_ &&
        IsOfRequest(request, absl::MakeConstSpan(text.token_ids)
                                 .first(static_cast<size_t>(base_length_)));
    count += is_live ? 1 : 0;
  }
  return count;
}

std::string DraftWatch::OnBranch(const SessionOnWorker& session,
                                 const model::TreeNode& node,
                                 int32_t token_id) {
  const SimulatedSequence& sequence = *session.sequence;
  Text text;
  if (node.parent != model::kNoSlot) {
    const auto parent = slots_.find(node.parent);
    if (parent == slots_.end()) {
      return absl::StrCat("feeds a branch behind slot ", node.parent,
                          ", which is empty");
    }
    text = parent->second;
  } else if (node.position <= sequence.length()) {
    for (int i = 0; i < node.position; ++i) text.Push(sequence.token(i));
  }
  if (text.length() != node.position) {
    return absl::StrCat("feeds a branch for position ", node.position,
                        " behind ", text.length(), " tokens");
  }
  if (!session.request->drafted.contains(
          DraftedKey(text.hash, token_id, session.epoch))) {
    return absl::StrCat("feeds token ", token_id, " at position ",
                        node.position, ", which it did not draft there");
  }
  text.Push(token_id);
  // What was given back is taken first.
  if (node.slot >= num_used_slots_) {
    const int num_live = NumLiveSlots(*session.request);
    if (num_live < num_used_slots_) {
      return absl::StrCat("takes slot ", node.slot, " where it needs ",
                          num_live, " of ", num_used_slots_);
    }
    num_used_slots_ = node.slot + 1;
  }
  slots_[node.slot] = std::move(text);
  step_slots_.push_back(node.slot);
  return "";
}

std::string DraftWatch::OnForward(const SessionOnWorker& session,
                                  const model::SequenceRows& rows) {
  step_slots_.clear();
  step_tip_.reset();
  const SimulatedSequence& sequence = *session.sequence;
  const size_t num_positions = rows.token_ids.size() - rows.nodes.size();
  uint64_t hash = sequence.hash(sequence.length());
  for (size_t i = 0; i < num_positions; ++i) {
    hash = ExtendHash(hash, rows.token_ids[i]);
    for (const auto& [slot, text] : slots_) {
      if (text.hash != hash) continue;
      return absl::StrCat("feeds again at position ", text.length() - 1,
                          " what it has fed in slot ", slot);
    }
  }
  if (num_positions > 0) {
    step_tip_.emplace();
    for (int i = 0; i < sequence.length(); ++i) {
      step_tip_->Push(sequence.token(i));
    }
    for (size_t i = 0; i < num_positions; ++i) {
      step_tip_->Push(rows.token_ids[i]);
    }
  }
  for (size_t i = 0; i < rows.nodes.size(); ++i) {
    std::string wrong =
        OnBranch(session, rows.nodes[i], rows.token_ids[num_positions + i]);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

bool DraftWatch::IsOfUse(const RequestState& request, const Text& text,
                         int told_length) {
  return text.length() >= told_length &&
         IsOfRequest(request, absl::MakeConstSpan(text.token_ids)
                                  .first(static_cast<size_t>(told_length)));
}

std::string DraftWatch::OnAbandoned(const SessionOnWorker& session,
                                    int told_length) {
  const RequestState& request = *session.request;
  bool is_of_use =
      step_tip_.has_value() && IsOfUse(request, *step_tip_, told_length);
  for (const int32_t slot : step_slots_) {
    is_of_use = is_of_use || IsOfUse(request, slots_[slot], told_length);
    slots_.erase(slot);
  }
  step_slots_.clear();
  step_tip_.reset();
  return is_of_use ? "gives up a step of which it could use a row" : "";
}

std::string DraftWatch::CheckParent(const SessionOnWorker& session,
                                    const Text& parent) const {
  if (parent.length() >= base_length_ &&
      IsOfRequest(*session.request,
                  absl::MakeConstSpan(parent.token_ids)
                      .first(static_cast<size_t>(base_length_)))) {
    return "";
  }
  return absl::StrCat("has a child behind ", parent.length(),
                      " tokens, of which it knows that others are committed");
}

std::string DraftWatch::CheckChildren(
    const SessionOnWorker& session, const Text& parent,
    absl::Span<const int32_t> children) const {
  const coordinator::RequestSpec& spec = session.request->options->spec;
  TableSampler sampler(session.table, spec);
  for (const int32_t token_id : parent.token_ids) sampler.Push(token_id);
  const std::vector<int32_t> ranked =
      spec.tree.ranks_by_q() ? sampler.Likeliest() : sampler.Ranked();
  size_t at = 0;
  for (const int32_t child : children) {
    while (at < ranked.size() && ranked[at] != child) ++at;
    if (at == ranked.size() || ranked[0] != children[0]) {
      return absl::StrCat("ranks token ", child, " behind ", parent.length(),
                          " tokens where its model does not");
    }
  }
  return "";
}

std::string DraftWatch::OnTail(const SessionOnWorker& session,
                               const speculation::Tail& tail, bool redraws) {
  RequestState& request = *session.request;
  const SimulatedSequence& sequence = *session.sequence;
  const size_t count = tail.token_ids.size();
  if (tail.parents.size() != count || tail.scores.size() != count ||
      tail.first_position != tail.base_length ||
      tail.first_node != newest_number_ + 1 ||
      tail.base_length < base_length_) {
    return absl::StrCat("numbers ", count, " nodes from ", tail.first_node,
                        " on at base ", tail.base_length, " after ",
                        newest_number_, " at ", base_length_);
  }
  base_length_ = tail.base_length;
  for (int i = 0; i < std::min(base_length_, sequence.length()); ++i) {
    if (sequence.token(i) == request.token(i)) continue;
    return absl::StrCat("holds token ", sequence.token(i), " at position ", i,
                        ", where it knows that another is committed");
  }
  Text root;
  for (int i = 0; i < base_length_; ++i) root.Push(request.token(i));
  for (size_t begin = 0, end; begin < count; begin = end) {
    end = begin + 1;
    while (end < count && tail.parents[end] == tail.parents[begin]) ++end;
    const auto known = nodes_.find(tail.parents[begin]);
    if (tail.parents[begin] != 0 && known == nodes_.end()) {
      return absl::StrCat("names node ", tail.parents[begin], ", it has none");
    }
    const Text parent = tail.parents[begin] == 0 ? root : known->second;
    std::string wrong = CheckParent(session, parent);
    const auto children =
        absl::MakeConstSpan(tail.token_ids).subspan(begin, end - begin);
    if (wrong.empty() && redraws) {
      wrong = CheckChildren(session, parent, children);
    }
    if (!wrong.empty()) return wrong;
    if (session.perfect && IsOfRequest(request, parent.token_ids) &&
        children[0] != request.token(parent.length())) {
      return absl::StrCat("is never wrong, but ranks token ", children[0],
                          " first at position ", parent.length());
    }
    for (const int32_t token_id : children) {
      const uint64_t key = DraftedKey(parent.hash, token_id, session.epoch);
      request.drafted.insert(key);
      if (!said_.insert(key).second) {
        return absl::StrCat("drafts token ", token_id, " behind ",
                            parent.length(), " tokens twice");
      }
      Text child = parent;
      child.Push(token_id);
      nodes_[++newest_number_] = std::move(child);
    }
    if (parent.length() >
        request.prompt_length() + request.options->spec.max_tokens - 2) {
      return absl::StrCat("drafts for position ", parent.length(),
                          ", beyond max_tokens");
    }
  }
  return "";
}

void ToldPlaces::OnArrived(const RequestState& request,
                           const speculation::Tail& tail) {
  if (!tail.is_tree()) return;
  for (size_t i = 0; i < tail.token_ids.size(); ++i) {
    int place = tail.base_length;
    if (tail.parents[i] != 0) {
      const auto parent = ends_.find(tail.parents[i]);
      if (parent == ends_.end()) continue;
      place = parent->second;
    }
    // Not what is made up for a place whose token the draft knows.
    if (place >= std::max(opened_length_, tail.base_length)) {
      come_.push_back(place);
    }
    if (request.token(place) == tail.token_ids[i]) {
      ends_[tail.first_node + static_cast<int>(i)] = place + 1;
    }
  }
}

void ToldPlaces::BeginStep() {
  told_.insert(come_.begin(), come_.end());
  come_.clear();
}

int ToldPlaces::OnVerdict(int num_verified, int length) {
  num_verified_ += num_verified;
  const auto num_told = std::distance(told_.begin(), told_.lower_bound(length));
  return static_cast<int>(num_told) - num_verified_;
}

}  // namespace nacre::protocol
