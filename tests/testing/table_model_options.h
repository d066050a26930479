// What a TableModel (tests/testing/table_model.h) is to be like.

#ifndef TESTS_TESTING_TABLE_MODEL_OPTIONS_H_
#define TESTS_TESTING_TABLE_MODEL_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/language_model.h"

namespace nacre::testing {

struct TableModelOptions {
  int vocab_size = 16;
  uint64_t seed = 1;
  // Logits are uniform in [-scale, scale].
  float scale = 2.0f;
  // A second table, drawn from `disturbance_seed`, is added with this factor.
  float disturbance = 0.0f;
  uint64_t disturbance_seed = 99;
  // Turns all logits around: what the target likes most is liked least.
  bool adversarial = false;
  int context_length = 1024;
  int64_t kv_capacity_tokens = 1 << 20;
  std::vector<int32_t> eos_token_ids;  // empty: sequences never end
  bool shows_hidden = false;           // its logits, as hidden states
  bool draws_tokens = false;           // as a device that draws would
  // Called in every Forward, with its number of rows, before anything else; an
  // error is returned and nothing changes. For step times, gates and failures.
  std::function<absl::Status(int num_rows)> on_forward;
  // Called for each row with logits, `tokens` fed so far: what a damaged weight
  // or a sick device makes of it. Logits() does not know of it.
  std::function<void(absl::Span<const int32_t> tokens,
                     std::vector<float>* logits)>
      on_row;
  // Called in every Forward, for each of its sequences.
  std::function<void(const model::SequenceRows& rows)> on_sequence;
  // It takes rows of a target, and keeps them. No logits depend on them.
  absl::optional<model::TargetRowShape> reads_target;
  int max_lag = 4;  // of features
  // Asks, after that, whether to end early.
  bool is_interruptible = false;
  // Called when a sequence looks for what others have computed. It finds none,
  // but is told to ask again where this says so.
  std::function<bool()> on_take_over;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_TABLE_MODEL_OPTIONS_H_
