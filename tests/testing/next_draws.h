// The next_draws that a test's model is given (model::SequenceRows): checks
// them, and counts those that the step after them kept.
//
// Thread-compatible.

#ifndef TESTS_TESTING_NEXT_DRAWS_H_
#define TESTS_TESTING_NEXT_DRAWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/token_draw.h"
#include "model/language_model.h"

namespace nacre::testing {

class NextDraws {
 public:
  // The tokens that a sequence holds.
  using TokensOf = absl::FunctionRef<const std::vector<int32_t>&(
      const model::Sequence* sequence)>;

  // Fatal: what no model could keep. `room`: positions left for the rows.
  static void Check(const model::SequenceRows& rows, int room) {
    if (!rows.next_draw.has_value()) return;
    NACRE_CHECK(!rows.draws.empty() && rows.draws.back().has_value(),
                "a next draw behind a row that is not drawn");
    NACRE_CHECK(rows.nodes.empty(), "a next draw behind a node");
    NACRE_CHECK(rows.next_draw->position == rows.draws.back()->position + 1,
                "a next draw for another position");
    NACRE_CHECK(static_cast<int>(rows.token_ids.size()) < room,
                "a next draw without room for its row");
  }

  // A step begins: whether it is the one that the step before spoke of.
  void Count(absl::Span<const model::SequenceRows> batch, TokensOf tokens_of) {
    if (rows_.empty()) return;
    const auto is_kept = [&](const Row& next, const model::SequenceRows& rows) {
      if (rows.sequence != next.sequence || rows.token_ids.size() != 1 ||
          !rows.nodes.empty()) {
        return false;
      }
      std::vector<int32_t> tokens = tokens_of(rows.sequence);
      tokens.push_back(rows.token_ids[0]);
      return tokens == next.tokens && rows.num_logits == 1 &&
             rows.draws.size() == 1 && rows.draws[0] == next.draw;
    };
    const bool kept = std::equal(rows_.begin(), rows_.end(), batch.begin(),
                                 batch.end(), is_kept);
    ++(kept ? counts_.used : counts_.dropped);
    rows_.clear();
  }

  // Rows have been run. `tokens`: of their sequence; `drawn`: of the step up to
  // theirs.
  void Note(const model::SequenceRows& rows, const std::vector<int32_t>& tokens,
            absl::Span<const int32_t> drawn) {
    if (!rows.next_draw.has_value()) return;
    rows_.push_back({rows.sequence, tokens, *rows.next_draw});
    rows_.back().tokens.push_back(drawn.back());
  }

  bool empty() const { return rows_.empty(); }
  const model::QueuedSteps& counts() const { return counts_; }

 private:
  struct Row {
    const model::Sequence* sequence;
    std::vector<int32_t> tokens;
    TokenDraw draw;
  };

  std::vector<Row> rows_;
  model::QueuedSteps counts_;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_NEXT_DRAWS_H_
