#include "model/model_drafter.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/check.h"
#include "common/status_macros.h"
#include "model/logit_row.h"

namespace nacre::model {

ModelDrafter::ModelDrafter(LanguageModel* model) : ForwardedModel(model) {
  traits_.shows_logits = true;
  traits_.ranks_children = true;
  traits_.draws_alone = model->draws_tokens();
}

absl::optional<TokenDraw> ModelDrafter::DrawOf(const DraftRows& node) const {
  if (!model_->draws_tokens() || node.shows_logits || node.max_children > 1) {
    return absl::nullopt;
  }
  if (node.max_children == 0) return DrawToLookAt(model_->info().vocab_size);
  const int position =
      node.node.has_value()
          ? node.node->position + 1
          : node.sequence->length() + static_cast<int>(node.token_ids.size());
  return node.sampler->DeviceDraw(position);
}

SequenceRows ModelDrafter::JoinRows(absl::Span<const DraftRows> nodes,
                                    size_t first) {
  const size_t first_id = token_ids_.size();
  const size_t first_node = tree_nodes_.size();
  for (const DraftRows& node : nodes) {
    NACRE_CHECK(!node.node.has_value() || node.token_ids.size() == 1,
                "a node in a slot is one row");
    NACRE_CHECK(node.node.has_value() || &node == &nodes[0],
                "two nodes of a sequence, and the later in no slot");
    token_ids_.insert(token_ids_.end(), node.token_ids.begin(),
                      node.token_ids.end());
    if (node.node.has_value()) tree_nodes_.push_back(*node.node);
  }
  SequenceRows rows;
  rows.sequence = nodes[0].sequence;
  rows.token_ids = absl::MakeConstSpan(token_ids_).subspan(first_id);
  rows.nodes = absl::MakeConstSpan(tree_nodes_).subspan(first_node);
  rows.num_logits = static_cast<int>(nodes.size());
  rows.target = nodes[0].target;
  const auto draws = absl::MakeConstSpan(draws_).subspan(first, nodes.size());
  if (std::any_of(draws.begin(), draws.end(),
                  [](const auto& draw) { return draw.has_value(); })) {
    rows.draws = draws;
  }
  return rows;
}

void ModelDrafter::PlanRows(absl::Span<const DraftRows> nodes) {
  size_t num_rows = 0;
  draws_.clear();
  for (const DraftRows& node : nodes) {
    draws_.push_back(DrawOf(node));
    num_rows += node.token_ids.size();
  }
  batch_.clear();
  token_ids_.clear();
  tree_nodes_.clear();
  // What has been given to the batch stays where it is.
  token_ids_.reserve(num_rows);
  tree_nodes_.reserve(nodes.size());
  for (size_t begin = 0, end; begin < nodes.size(); begin = end) {
    end = begin + 1;
    while (end < nodes.size() && nodes[end].sequence == nodes[begin].sequence) {
      ++end;
    }
    batch_.push_back(JoinRows(nodes.subspan(begin, end - begin), begin));
  }
}

void ModelDrafter::PlanNextDraws(absl::Span<const DraftRows> nodes) {
  // What follows a node in a slot need not be in a slot after it.
  if (!tree_nodes_.empty()) return;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].goes_on) continue;
    if (draws_[i].has_value()) {
      batch_[i].next_draw =
          nodes[i].sampler->DeviceDraw(draws_[i]->position + 1);
    }
    if (batch_[i].next_draw.has_value()) continue;
    // It will be in the next step, and cannot be told how: there is no use in
    // one of the others alone.
    for (SequenceRows& rows : batch_) rows.next_draw.reset();
    return;
  }
}

void ModelDrafter::TakeDrawn(int32_t token_id, absl::Span<ScoredToken> room,
                             Proposal* proposal) {
  proposal->is_sound = token_id != kUnsoundDraw;
  if (!proposal->is_sound || room.empty()) return;
  room[0] = {token_id, std::numeric_limits<float>::quiet_NaN()};
  proposal->children = room;
}

void ModelDrafter::TakeLogits(const DraftRows& node,
                              absl::Span<const float> logits,
                              absl::Span<ScoredToken> room,
                              Proposal* proposal) const {
  proposal->is_sound = IsSoundRow(logits.data(), info().vocab_size);
  if (node.shows_logits) proposal->logits = logits;
  if (!proposal->is_sound || room.empty()) return;
  // The rows are fed by now.
  const int position =
      node.node.has_value() ? node.node->position + 1 : node.sequence->length();
  const int history_length = node.history->length();
  for (const int32_t id : node.path) node.history->Push(id);
  const int count = node.sampler->Rank(logits, position, *node.history, room);
  node.history->Truncate(history_length);
  proposal->children = room.first(static_cast<size_t>(count));
}

absl::StatusOr<absl::Span<const Proposal>> ModelDrafter::Propose(
    absl::Span<const DraftRows> nodes) {
  size_t num_children = 0;
  bool shows_hidden = false;
  for (const DraftRows& node : nodes) {
    num_children += static_cast<size_t>(node.max_children);
    shows_hidden = shows_hidden || node.shows_hidden;
  }
  PlanRows(nodes);
  // final_hidden() is not to be had of a step after which another has begun.
  if (!shows_hidden) PlanNextDraws(nodes);
  NACRE_ASSIGN_OR_RETURN(absl::Span<const float> logits,
                         model_->Forward(batch_));
  const auto vocab_size = static_cast<size_t>(info().vocab_size);
  const auto hidden_size = static_cast<size_t>(info().hidden_size);
  absl::Span<const int32_t> drawn = model_->drawn_tokens();
  absl::Span<const float> hidden;
  if (shows_hidden) hidden = model_->final_hidden().OnHost(&hidden_copy_);
  children_.resize(num_children);
  absl::Span<ScoredToken> children = absl::MakeSpan(children_);
  proposals_.clear();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const DraftRows& node = nodes[i];
    Proposal& proposal = proposals_.emplace_back();
    const auto room = children.first(static_cast<size_t>(node.max_children));
    children.remove_prefix(room.size());
    if (draws_[i].has_value()) {
      TakeDrawn(drawn.front(), room, &proposal);
      drawn.remove_prefix(1);
    } else {
      TakeLogits(node, logits.first(vocab_size), room, &proposal);
      logits.remove_prefix(vocab_size);
    }
    if (node.shows_hidden) {
      proposal.hidden = hidden.subspan(i * hidden_size, hidden_size);
    }
  }
  return absl::MakeConstSpan(proposals_);
}

}  // namespace nacre::model
