#include "tests/simulation/protocol/simulated_drafter.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/check.h"
#include "target_worker/feature_drafts.h"
#include "tests/simulation/protocol/checks.h"

namespace nacre::protocol {

using model::FeatureRows;
using model::FeatureTap;
using model::kNoSlot;
using target_worker::FeatureDrafts;

std::array<float, kVocabSize> SaidByDrafter(const LogitTable& table,
                                            const Cell& end, int32_t before,
                                            int first) {
  std::array<float, kVocabSize> said;
  const absl::Span<const float> row = table.Row(before, end.token_id);
  std::copy(row.begin(), row.end(), said.begin());
  const uint64_t draw =
      simulation::MixBits(end.hash + static_cast<uint64_t>(first));
  for (size_t id = 0; id < kVocabSize; ++id) {
    if ((draw >> 2 * id & 3) != 0) continue;
    said[id] = -std::numeric_limits<float>::infinity();
  }
  return said;
}

class SimulatedDrafter::Sequence final : public model::FeatureSequence {
 public:
  Sequence(SessionOnWorker* the_session, int max, int num_slots)
      : session(the_session),
        max_length(max),
        slots(static_cast<size_t>(num_slots)) {}
  ~Sequence() override { session->own.look = {}; }

  int length() const override { return static_cast<int>(ends.size()); }
  void Clear() override {
    if (!ends.empty()) known_end = next();
    ends.clear();
  }
  // The position of the next row.
  int next() const { return first + length(); }

  SessionOnWorker* const session;
  const int max_length;
  int first = 0;             // position of the first row
  int known_end = 0;         // what was cleared ended before this position
  int kept_row = -1;         // the row behind those that found no room
  bool lacked_room = false;  // ... after a call that failed
  std::vector<End> ends;     // of the text that each row ends
  std::vector<absl::optional<End>> slots;
};

SimulatedDrafter::SimulatedDrafter(Options options)
    : options_(std::move(options)), random_(options_.seed) {
  taps_ = {{FeatureTap::Kind::kIn, 1}, {FeatureTap::Kind::kFinal, 0}};
  if (options_.kind.reads_kv) {
    taps_ = {{FeatureTap::Kind::kKv, 0}};
  } else {
    NACRE_CHECK(options_.model->SetTaps(taps_).ok(), "a model with taps");
  }
}

int SimulatedDrafter::feature_size() const {
  return options_.kind.reads_kv
             ? 0
             : static_cast<int>(taps_.size()) * SimulatedModel::kTapSize;
}

template <typename... Parts>
void SimulatedDrafter::Wrong(const Sequence& sequence,
                             const Parts&... parts) const {
  options_.on_wrong(absl::StrCat("the draft over what the target computes of ",
                                 "request ", sequence.session->request->index,
                                 " ", parts...));
}

absl::StatusOr<std::unique_ptr<model::FeatureSequence>>
SimulatedDrafter::NewSequence(int max_length, int num_slots) {
  SessionOnWorker* const session = options_.next_session();
  session->own.look = {};
  if (random_.Percent(options_.kind.percent_full)) {
    ++options_.counts->drafter_refusals;
    return absl::ResourceExhaustedError("the draft has no room");
  }
  return std::make_unique<Sequence>(session, max_length, num_slots);
}

absl::Status SimulatedDrafter::Fail(absl::Span<const FeatureRows> batch) {
  const bool has_logits = batch[0].num_logits > 0;
  const bool is_root = has_logits && batch[0].nodes.empty();
  if (++num_calls_ == options_.kind.fails_at) {
    ++options_.counts->drafter_failures;
    return absl::InternalError("the draft fails");
  }
  if ((has_logits && !is_root) ||
      !random_.Percent(options_.kind.percent_full)) {
    return absl::OkStatus();
  }
  ++(is_root ? options_.counts->drafter_full_roots
             : options_.counts->drafter_full_texts);
  for (const FeatureRows& rows : batch) {
    auto& sequence = static_cast<Sequence&>(*rows.sequence);
    sequence.lacked_room = true;
    const int first = options_.kind.reads_kv
                          ? rows.first_position + sequence.length()
                          : ReadTap(rows.features).position;
    sequence.kept_row = first + static_cast<int>(rows.token_ids.size());
  }
  return absl::ResourceExhaustedError("the draft has no room");
}

absl::StatusOr<absl::Span<const float>> SimulatedDrafter::Forward(
    absl::Span<const FeatureRows> batch) {
  size_t num_rows = 0;
  for (const FeatureRows& rows : batch) num_rows += rows.token_ids.size();
  absl::Status status = options_.on_forward(static_cast<int>(num_rows));
  if (status.ok()) status = Fail(batch);
  if (!status.ok()) return status;
  logits_.clear();
  for (const FeatureRows& rows : batch) {
    auto& sequence = static_cast<Sequence&>(*rows.sequence);
    const size_t num_text = rows.token_ids.size() - rows.nodes.size();
    if (num_text > 0) {
      CountText(rows, static_cast<int>(num_text));
      sequence.slots.assign(sequence.slots.size(), absl::nullopt);
    }
    for (size_t i = 0; i < rows.token_ids.size(); ++i) {
      const End* end = nullptr;
      if (i < num_text) {
        FeedText(rows, i);
        end = &sequence.ends.back();
      } else {
        end = FeedNode(rows, i);
        if (end == nullptr) return absl::InternalError("a node of no tree");
      }
      if (i + static_cast<size_t>(rows.num_logits) < rows.token_ids.size()) {
        continue;
      }
      const auto said = SaidByDrafter(*options_.table, end->cell, end->before,
                                      sequence.first);
      logits_.insert(logits_.end(), said.begin(), said.end());
    }
    if (num_text == 0 || rows.num_logits == 0) continue;
    ++options_.counts->drafter_looks;
    const int beyond = options_.kind.reads_kv ? 0 : 1;
    sequence.session->own.look = {.length = sequence.next() + beyond,
                                  .hash = sequence.ends.back().cell.hash,
                                  .first = sequence.first};
  }
  return absl::MakeConstSpan(logits_);
}

void SimulatedDrafter::CountText(const FeatureRows& rows, int num_rows) const {
  Counts& counts = *options_.counts;
  if (rows.num_logits == 0) counts.drafter_texts += num_rows;
  if (num_rows == FeatureDrafts::kMostGiven) {
    ++counts.drafter_parts;
  }
}

Cell SimulatedDrafter::EndOfFeatures(const FeatureRows& rows, size_t index,
                                     int* position) const {
  const auto& sequence = static_cast<const Sequence&>(*rows.sequence);
  const size_t size = static_cast<size_t>(feature_size());
  if (rows.features.size() < (index + 1) * size) {
    Wrong(sequence, "is fed a token without features");
    return {};
  }
  const auto row = rows.features.subspan(index * size, size);
  const Tapped first = ReadTap(row.first(SimulatedModel::kTapSize));
  for (size_t tap = 0; tap < taps_.size(); ++tap) {
    const Tapped other = ReadTap(
        row.subspan(tap * SimulatedModel::kTapSize, SimulatedModel::kTapSize));
    if (other.tap != static_cast<int>(tap) ||
        other.cell.hash != first.cell.hash) {
      Wrong(sequence, "is given features of other taps or rows");
    }
  }
  *position = first.position;
  return first.cell;
}

Cell SimulatedDrafter::EndOfKv(const FeatureRows& rows, int position) const {
  const auto& sequence = static_cast<const Sequence&>(*rows.sequence);
  const SimulatedSequence* const target = sequence.session->sequence;
  if (target == nullptr || rows.target.length != target->length() ||
      rows.target.table != target->block_table() ||
      rows.target.length < position) {
    Wrong(sequence, "looks at ", rows.target.length,
          " positions of its target, which are not those of its session, or "
          "too few for position ",
          position);
    return {};
  }
  if (position == 0) return {-1, kEmptyHash};
  return options_.model->CellAt(rows.target.table, position - 1);
}

// A sequence that knows nothing is given its first row.
void SimulatedDrafter::Begin(const Sequence& sequence, int position) const {
  const int opened_length = sequence.session->opened_length;
  const int gap_end = sequence.session->own.fed_from;
  const bool forgets_given =
      options_.kind.reads_kv ? sequence.known_end + 1 < opened_length
                             : position < opened_length && position != gap_end;
  Counts& counts = *options_.counts;
  if (position == 0 && sequence.known_end == 0) return;
  // The last row that it was to be fed is kept, and is not the next one.
  if (position <= sequence.known_end) {
    Wrong(sequence, "forgets in vain what it knew before ", position);
  }
  // (It may have waited for more than one call feeds, until too many waited, or
  // come to a gap.)
  if (sequence.lacked_room && position != sequence.kept_row &&
      position != gap_end &&
      position - sequence.kept_row < FeatureDrafts::kMostPending - 1 &&
      sequence.kept_row - sequence.known_end < FeatureDrafts::kMostGiven) {
    Wrong(sequence, "forgets row ", sequence.kept_row,
          ", which it need not, and begins with ", position);
  }
  if (sequence.lacked_room) {
    ++counts.drafter_forgets_full;
  } else if (forgets_given) {
    Wrong(sequence, "forgets the text that it is given from ",
          sequence.known_end, " to ", position);
  } else if (position >= opened_length) {
    ++counts.drafter_forgets_unpaid;
  } else {
    ++counts.drafter_gaps;  // it took over what others have shared
  }
}

void SimulatedDrafter::FeedText(const FeatureRows& rows, size_t index) {
  auto& sequence = static_cast<Sequence&>(*rows.sequence);
  const RequestState& request = *sequence.session->request;
  const bool reads_kv = options_.kind.reads_kv;
  int position = rows.first_position + sequence.length();
  const Cell before = reads_kv ? EndOfKv(rows, position)
                               : EndOfFeatures(rows, index, &position);
  const int32_t token_id = rows.token_ids[index];
  if (sequence.ends.empty()) {
    Begin(sequence, position);
    sequence.first = position;
    sequence.lacked_room = false;
    uint64_t hash = kEmptyHash;
    const int length = reads_kv ? position : position + 1;
    for (int i = 0; i < length; ++i) hash = ExtendHash(hash, request.token(i));
    if (hash != before.hash) {
      Wrong(sequence, "begins with the row of another text at ", position);
    }
  } else if (position != sequence.next() ||
             before.hash != sequence.ends.back().cell.hash) {
    Wrong(sequence, "is fed position ", position, " after ",
          sequence.next() - 1, ", or of another text");
  }
  if (token_id != request.token(reads_kv ? position : position + 1)) {
    Wrong(sequence, "is fed token ", token_id, " with position ", position);
  }
  if (sequence.length() == sequence.max_length) {
    Wrong(sequence, "is fed more than ", sequence.max_length, " rows");
  }
  sequence.ends.push_back(
      {{token_id, ExtendHash(before.hash, token_id)}, before.token_id});
}

const SimulatedDrafter::End* SimulatedDrafter::FeedNode(const FeatureRows& rows,
                                                        size_t index) {
  auto& sequence = static_cast<Sequence&>(*rows.sequence);
  const size_t num_text = rows.token_ids.size() - rows.nodes.size();
  const model::TreeNode& node = rows.nodes[index - num_text];
  const auto at = [&](int32_t slot) -> absl::optional<End>* {
    return slot >= 0 && slot < static_cast<int>(sequence.slots.size())
               ? &sequence.slots[static_cast<size_t>(slot)]
               : nullptr;
  };
  absl::optional<End>* const own = at(node.slot);
  if (own == nullptr || own->has_value() || sequence.ends.empty()) {
    Wrong(sequence, "is fed a node in slot ", node.slot,
          ", which there is not or another one has");
    return nullptr;
  }
  const absl::optional<End>* const parent = at(node.parent);
  if (node.parent != kNoSlot && (parent == nullptr || !parent->has_value())) {
    Wrong(sequence, "is fed a node below slot ", node.parent,
          ", which is empty");
    return nullptr;
  }
  const End& before = node.parent == kNoSlot ? sequence.ends.back() : **parent;
  if (options_.kind.reads_kv) EndOfKv(rows, sequence.next() - 1);
  const int depth = node.parent == kNoSlot ? 0 : before.depth;
  // What it says stands below the node.
  if (depth + 2 > max_depth()) {
    Wrong(sequence, "is to say a token ", depth + 2, " behind the text");
  }
  if (node.position != sequence.length() + depth) {
    Wrong(sequence, "is fed a node at ", node.position, " below ", depth,
          " others after ", sequence.length(), " rows");
  }
  const int32_t token_id = rows.token_ids[index];
  *own = End{{token_id, ExtendHash(before.cell.hash, token_id)},
             before.cell.token_id,
             depth + 1};
  return &**own;
}

}  // namespace nacre::protocol
