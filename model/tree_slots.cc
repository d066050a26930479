#include "model/tree_slots.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace nacre::model {
namespace {

// The node that fills `slot`; null: none does.
const TreeNode* FindFilling(absl::Span<const TreeNode> nodes, int32_t slot) {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(),
                   [&](const TreeNode& node) { return node.slot == slot; });
  return found == nodes.end() ? nullptr : &*found;
}

}  // namespace

TreeSlots::TreeSlots(int count) : slots_(static_cast<size_t>(count)) {}

absl::Status TreeSlots::CheckRange(int32_t slot) const {
  if (slot >= 0 && slot < count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "slot ", slot, " is outside the sequence's ", count(), " slots"));
}

bool TreeSlots::IsWhole(int32_t slot,
                        absl::Span<const TreeNode> refilled) const {
  while (true) {
    const Slot& at = At(slot);
    if (at.fill == 0 || FindFilling(refilled, slot) != nullptr) return false;
    if (at.parent == kNoSlot) return true;
    if (At(at.parent).fill != at.parent_fill) return false;
    slot = at.parent;
  }
}

absl::Status TreeSlots::CheckParent(absl::Span<const TreeNode> nodes,
                                    size_t index, int length) const {
  const TreeNode& node = nodes[index];
  if (node.parent == kNoSlot) {
    if (node.position >= 1 && node.position <= length) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a node at position ", node.position,
                     " follows none of the sequence's ", length, " positions"));
  }
  if (absl::Status status = CheckRange(node.parent); !status.ok()) {
    return status;
  }
  const TreeNode* const parent = FindFilling(nodes.first(index), node.parent);
  if (parent == nullptr && !IsWhole(node.parent, nodes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", node.parent, ", the parent of slot ", node.slot,
                     ", does not end a path"));
  }
  const int before =
      parent != nullptr ? parent->position : At(node.parent).position;
  if (node.position == before + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a node at position ", node.position, " in slot ", node.slot,
                   ", but its parent is at position ", before));
}

absl::Status TreeSlots::CheckNodes(absl::Span<const TreeNode> nodes,
                                   int length) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (absl::Status status = CheckRange(nodes[i].slot); !status.ok()) {
      return status;
    }
    if (FindFilling(nodes.first(i), nodes[i].slot) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", nodes[i].slot, " is filled twice in a step"));
    }
    if (absl::Status status = CheckParent(nodes, i, length); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

void TreeSlots::Fill(const TreeNode& node) {
  Slot& slot = slots_[static_cast<size_t>(node.slot)];
  slot.fill = ++last_fill_;
  slot.position = node.position;
  slot.parent = node.parent;
  slot.parent_fill = node.parent == kNoSlot ? 0 : At(node.parent).fill;
}

void TreeSlots::Empty(int slot) { slots_[static_cast<size_t>(slot)].fill = 0; }

void TreeSlots::Truncate(int length) {
  // What is below an emptied slot is not whole.
  for (Slot& slot : slots_) {
    if (slot.parent == kNoSlot && slot.position > length) slot.fill = 0;
  }
}

void TreeSlots::AppendPath(int slot, std::vector<int32_t>* slots) const {
  const auto begin = static_cast<std::ptrdiff_t>(slots->size());
  for (; slot != kNoSlot; slot = At(slot).parent) slots->push_back(slot);
  std::reverse(slots->begin() + begin, slots->end());
}

absl::Status TreeSlots::CheckPath(int length,
                                  absl::Span<const int32_t> slots) const {
  int32_t parent = kNoSlot;
  for (const int32_t slot : slots) {
    if (absl::Status status = CheckRange(slot); !status.ok()) return status;
    if (At(slot).parent != parent || !IsWhole(slot, {})) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot ", slot, " holds no node after ",
          parent == kNoSlot ? "the sequence" : absl::StrCat("slot ", parent)));
    }
    parent = slot;
  }
  if (!slots.empty() && At(slots[0]).position != length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slot ", slots[0], " is of position ", At(slots[0]).position,
        ", a path is kept after a sequence of ", length));
  }
  return absl::OkStatus();
}

void TreeSlots::KeepPath(absl::Span<const int32_t> slots) {
  for (const int32_t kept : slots) {
    const uint64_t fill = At(kept).fill;
    Empty(kept);
    for (Slot& slot : slots_) {
      if (slot.fill != 0 && slot.parent == kept && slot.parent_fill == fill) {
        slot.parent = kNoSlot;
      }
    }
  }
}

}  // namespace nacre::model
