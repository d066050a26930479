// The rows of one session in a step of its target. Row 0 is the last committed
// token, row i + 1 the drafted token i. Each stands below an earlier row.
//
// Copies: the draft's tree grows, and is dropped when another draft is
// attached, while the step runs.
//
// Pure: no I/O, no clock, no threads. Owned by TargetSession.

#ifndef SPECULATION_TARGET_STEP_H_
#define SPECULATION_TARGET_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/draft_buffer.h"
#include "speculation/pipeline.h"
#include "speculation/step_rows.h"

namespace nacre::speculation {

class TargetStep {
 public:
  // A step begins, with row 0 alone. `degraded`: as if there were no draft.
  void Begin(bool degraded);
  void End() { running_ = false; }
  // The first `count` nodes of the buffer's best path.
  void TakeChain(const DraftBuffer& buffer, int count);
  // The likeliest `count` nodes of `limits`, whose tree is the buffer's: those
  // on the best path first.
  void TakeTree(const DraftBuffer& buffer, const StepTree& limits, int count);
  // The draft that the rows are of was replaced: numbers say nothing to the new
  // one.
  void ForgetNumbers() { numbers_.clear(); }
  // Rows 1 and on are committed: row 0 is the last of them now. Returns their
  // tokens. Whose they were is still counted.
  std::vector<int32_t> TakeTokens();

  bool running() const { return running_; }
  bool degraded() const { return degraded_; }
  absl::Span<const int32_t> token_ids() const { return token_ids_; }
  int size() const { return static_cast<int>(token_ids_.size()); }
  // Of each token the row that it stands below. A chain: 0, 1, 2, ...
  absl::Span<const int> parents() const { return parents_; }
  // So many of the first tokens are a chain.
  int path_length() const { return path_length_; }
  // The row below `row` with this token, if any.
  absl::optional<int> RowBehind(int row, int32_t token_id) const;
  // Whether rows of the draft stand below `row`.
  bool HasDraftRow(int row) const;
  // Whether the target itself proposed the token of `row`, >= 1.
  bool IsOwn(int row) const { return is_own_[static_cast<size_t>(row - 1)]; }
  int num_own() const;
  // The draft's numbers of the tokens, or empty: of a chain without numbers.
  absl::Span<const int32_t> numbers() const { return numbers_; }
  // Under the ratio test: what the token of `row`, >= 1, was drawn from.
  const DraftDistribution& distribution(int row) const {
    return distributions_[static_cast<size_t>(row - 1)];
  }
  // How many of the tokens the buffer's best path begins with.
  int SharedWith(const DraftBuffer& buffer) const;

 private:
  void Add(const DraftBuffer& buffer, int node, int parent_row);

  bool running_ = false;
  bool degraded_ = false;
  std::vector<int32_t> token_ids_;
  std::vector<int> parents_;
  int path_length_ = 0;
  std::vector<bool> is_own_;
  std::vector<int32_t> numbers_;
  std::vector<DraftDistribution> distributions_;  // ratio test
  std::vector<int> nodes_;                        // scratch of TakeTree
  std::vector<int> rows_of_;                      // likewise: of each node
};

}  // namespace nacre::speculation

#endif  // SPECULATION_TARGET_STEP_H_
