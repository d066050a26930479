// How the rows of a step are divided. Rows of running sessions (decoding) go
// first. Prompts get what is left, less of it while sessions decode, so that a
// long prompt does not hold up all other next tokens. And always some of it, so
// that a full house does not hold up prompts for ever. Far into a long text a
// row costs more, for it attends to all before: there prompts get fewer.
//
// Pure functions of values.

#ifndef WORKER_ENGINE_STEP_BUDGET_H_
#define WORKER_ENGINE_STEP_BUDGET_H_

#include <vector>

#include "absl/types/span.h"

namespace nacre::worker {

// What prompts may have of a step.
struct PrefillRoom {
  int rows = 0;            // at the beginning of a text
  int even_positions = 0;  // as of StepBudget
  int least_rows = 1;      // that a share does not shrink below

  // Rows at the beginning of a text that one row after `length` positions
  // costs.
  double PriceAfter(int length) const;
  // A share of the rows, for one that has `length` positions.
  int SharedRows(int share, int length) const;
};

struct StepBudget {
  int max_rows = 512;       // of a step, >= 1
  int prefill_chunk = 128;  // of prompts in a step beside decoding, >= 1
  // Positions before a row that make it cost twice as much as one without any
  // (model::ModelInfo); 0: they cost nothing.
  int even_positions = 0;

  // For decoding rows; `prefilling`: whether a prompt waits.
  int DecodeRows(bool prefilling) const;
  // For prompts, when decoding has taken `used_rows`; `decoding`: whether any
  // session does.
  int PrefillRows(bool decoding, int used_rows) const;
  // The same, with the price of a long text.
  PrefillRoom RoomForPrompts(bool decoding, int used_rows) const;

 private:
  // What no decoding takes from waiting prompts.
  int reserved_rows() const;
};

// Divides `rows` among prompts that have unfed_rows[i] rows left, in the order
// their sessions were opened. Half goes to the oldest, so that each gets its
// turn. The rest goes to the shortest, so that none waits for a long one to
// end. Returns the rows of each.
std::vector<int> SharePrefill(absl::Span<const int> unfed_rows, int rows);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_STEP_BUDGET_H_
