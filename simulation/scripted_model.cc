#include "simulation/scripted_model.h"

#include <algorithm>

#include "common/check.h"
#include "simulation/script.h"

namespace nacre::simulation {
namespace {

// Slots hold nothing: what is in them is for the engines to know.
class ScriptedSequence final : public model::Sequence {
 public:
  explicit ScriptedSequence(int num_slots) : num_slots_(num_slots) {}

  int length() const override { return length_; }
  void Truncate(int length) override { length_ = std::min(length_, length); }
  int num_slots() const override { return num_slots_; }
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override {
    NACRE_CHECK(length <= length_, "a path goes on past the positions");
    if (length == length_) Append(static_cast<int>(slots.size()));
    return absl::OkStatus();
  }
  void Append(int count) { length_ += count; }

 private:
  const int num_slots_;
  int length_ = 0;
};

}  // namespace

ScriptedModel::ScriptedModel(Options options) : options_(std::move(options)) {
  info_.vocab_size = Script::kVocabulary;
  info_.context_length = 1 << 30;
  info_.kv_capacity_tokens = int64_t{1} << 50;
}

absl::StatusOr<std::unique_ptr<model::Sequence>> ScriptedModel::NewSequence(
    int /*max_length*/) {
  return std::make_unique<ScriptedSequence>(/*num_slots=*/0);
}

absl::StatusOr<std::unique_ptr<model::Sequence>> ScriptedModel::NewTreeSequence(
    int /*max_length*/, int num_slots, absl::Span<const int32_t>) {
  return std::make_unique<ScriptedSequence>(num_slots);
}

absl::StatusOr<absl::Span<const float>> ScriptedModel::Forward(
    absl::Span<const model::SequenceRows> batch) {
  int num_rows = 0;
  for (const model::SequenceRows& rows : batch) {
    num_rows += static_cast<int>(rows.token_ids.size());
  }
  const absl::Status passed =
      options_.pass(num_rows, options_.is_interruptible ? interrupt_ : nullptr);
  if (!passed.ok()) return passed;
  drawn_.clear();
  for (const model::SequenceRows& rows : batch) {
    static_cast<ScriptedSequence*>(rows.sequence)
        ->Append(static_cast<int>(rows.token_ids.size() - rows.nodes.size()));
    NACRE_CHECK(rows.draws.size() == static_cast<size_t>(rows.num_logits),
                "a script has no logits");
    for (const absl::optional<TokenDraw>& draw : rows.draws) {
      NACRE_CHECK(draw.has_value(), "a script has no logits");
      drawn_.push_back(options_.draw(*draw));
    }
  }
  return absl::Span<const float>();
}

}  // namespace nacre::simulation
