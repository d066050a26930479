#include "tests/simulation/protocol/tree_writer.h"

#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {
namespace {

// Beyond this depth a draft tells only its chain: its nodes stay far below what
// a target holds.
constexpr int kDeepest = 12;

}  // namespace

int32_t TreeWriter::AnyToken() { return random_.Below(kVocabSize); }

int TreeWriter::Add(int parent, int32_t token_id, speculation::Tail* tail) {
  tail->token_ids.push_back(token_id);
  tail->parents.push_back(parent);
  tail->scores.push_back(-static_cast<float>(random_.Unit()));
  return next_number_++;
}

void TreeWriter::MakeUp(const Text& parent, int32_t not_token,
                        speculation::Tail* tail,
                        std::vector<std::pair<uint64_t, int32_t>>* made) {
  const int32_t token_id = AnyToken();
  if (token_id == not_token) return;
  const int number = Add(parent.number, token_id, tail);
  made->emplace_back(parent.hash, token_id);
  if (!random_.Percent(40)) return;
  const uint64_t hash = ExtendHash(parent.hash, token_id);
  const int32_t child = AnyToken();
  Add(number, child, tail);
  made->emplace_back(hash, child);
}

void TreeWriter::Write(uint64_t prefix, speculation::Tail* tail,
                       std::vector<std::pair<uint64_t, int32_t>>* made) {
  const int position = tail->first_position;
  const int32_t token_id = tail->token_ids[0];
  const Text parent = {
      position == tail->base_length ? 0 : numbers_[position - 1], prefix};
  const bool grows = position - tail->base_length < kDeepest;
  // Numbers rise, and some are left out.
  next_number_ += random_.Percent(20) ? 1 + random_.Below(5) : 0;
  tail->first_node = next_number_;
  tail->first_position = tail->base_length;
  tail->token_ids.clear();
  const int32_t reserved = is_right_ ? token_id : -1;
  if (grows && !is_right_ && late_.number != 0 && random_.Percent(50)) {
    MakeUp(late_, -1, tail, made);
  }
  if (grows && !is_right_ && random_.Percent(40)) {
    MakeUp(parent, reserved, tail, made);
  }
  int number = Add(parent.number, token_id, tail);
  if (grows && random_.Percent(40)) MakeUp(parent, reserved, tail, made);
  // The same text once more, under another number.
  if (grows && random_.Percent(15)) {
    const int again = Add(parent.number, token_id, tail);
    if (random_.Percent(50)) number = again;
  }
  numbers_[position] = number;
  late_ = {number, ExtendHash(prefix, token_id)};
  if (grows && !is_right_ && random_.Percent(20)) {
    MakeUp(late_, -1, tail, made);
  }
}

}  // namespace nacre::protocol
