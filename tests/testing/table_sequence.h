// A sequence of a TableModel (tests/testing/table_model.h): it holds its tokens
// where others have keys and values.
//
// Thread-compatible; any thread may read what is atomic.

#ifndef TESTS_TESTING_TABLE_SEQUENCE_H_
#define TESTS_TESTING_TABLE_SEQUENCE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "model/language_model.h"
#include "model/tree_slots.h"

namespace nacre::testing {

// What the sequences of a model take of it.
struct TableRoom {
  std::atomic<int64_t> kv_free_tokens;
  std::atomic<int> num_sequences = 0;
  int most_shared = 0;  // positions of a sequence
  std::function<bool()> on_take_over;
};

struct TableSequence : public model::Sequence {
  TableSequence(TableRoom* model_room, int max_length, int num_slots)
      : room(model_room),
        max_length(max_length),
        slots(num_slots),
        slot_tokens(static_cast<size_t>(num_slots)) {
    room->kv_free_tokens -= max_length + num_slots;
    ++room->num_sequences;
  }
  ~TableSequence() override {
    room->kv_free_tokens += max_length + num_slots();
    --room->num_sequences;
  }
  int length() const override { return static_cast<int>(tokens.size()); }
  void Share(absl::Span<const int32_t> ids) override {
    const int shared = std::min(length(), static_cast<int>(ids.size()));
    room->most_shared = std::max(room->most_shared, shared);
  }
  model::TakenOver TakeOver(absl::Span<const int32_t>, int) override {
    model::TakenOver taken;
    taken.more = room->on_take_over && room->on_take_over();
    return taken;
  }
  void Truncate(int length) override {
    NACRE_CHECK(length >= 0, "truncation to a negative length");
    if (length >= this->length()) return;
    tokens.resize(static_cast<size_t>(length));
    slots.Truncate(length);
  }
  int num_slots() const override { return slots.count(); }
  absl::Status KeepPath(int length, absl::Span<const int32_t> path) override {
    if (length < this->length()) return absl::OkStatus();
    if (length > this->length() ||
        static_cast<int>(path.size()) > max_length - length) {
      return absl::InvalidArgumentError(
          absl::StrCat("a path of ", path.size(), " nodes after ", length,
                       " positions, the sequence holds ", this->length(),
                       " and has room for ", max_length));
    }
    if (absl::Status status = slots.CheckPath(length, path); !status.ok()) {
      return status;
    }
    for (const int32_t slot : path) {
      tokens.push_back(slot_tokens[static_cast<size_t>(slot)]);
    }
    slots.KeepPath(path);
    return absl::OkStatus();
  }
  // Returns the text that the node ends.
  std::vector<int32_t> Fill(const model::TreeNode& node, int32_t token_id) {
    slots.Fill(node);
    slot_tokens[static_cast<size_t>(node.slot)] = token_id;
    std::vector<int32_t> path;
    slots.AppendPath(node.slot, &path);
    std::vector<int32_t> text(
        tokens.begin(),
        tokens.begin() + (node.position + 1 - static_cast<int>(path.size())));
    for (const int32_t slot : path) {
      text.push_back(slot_tokens[static_cast<size_t>(slot)]);
    }
    return text;
  }

  TableRoom* room;
  int max_length;
  std::vector<int32_t> tokens;
  model::TreeSlots slots;
  std::vector<int32_t> slot_tokens;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_TABLE_SEQUENCE_H_
