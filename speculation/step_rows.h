// Which nodes of their trees the sessions of one target step verify.
//
// Of all sessions' nodes those of largest pi, the probability that the text
// goes through them (the product along the path): as many as make
//
//   (sessions + sum of pi) / T(rows)
//
// largest, the tokens that the step commits on average over the time that it
// takes. (A tree whose tokens are worth less has so much smaller pi.) T is the
// target's own, as measured. A node's parent is likelier than the node, so it
// is a row, too. One price for all sessions. A likely node of one is worth more
// than an unlikely one of another. Where the rows of many sessions fill the
// step, no node is worth its row.
//
// Where a node comes from does not matter, nor whether it has a number.
//
// Pure.

#ifndef SPECULATION_STEP_ROWS_H_
#define SPECULATION_STEP_ROWS_H_

#include <vector>

#include "absl/types/span.h"
#include "speculation/estimators.h"
#include "speculation/token_tree.h"

namespace nacre::speculation {

// What a session has for the step.
struct StepTree {
  const TokenTree* tree = nullptr;
  int max_depth = 0;       // no deeper node is a row
  int most = 0;            // rows, of nodes
  bool takes_all = false;  // as many as there are, whatever they cost
  bool is_local = false;   // its nodes are the target's own
  double worth = 1;        // of its tokens, of those of the others, > 0
  // After these its best path goes on, as a chain would: most + max_depth rows
  // at most, and kMaxWindow.
  bool path_goes_on = false;
  bool operator==(const StepTree&) const = default;

  // Its `count` likeliest nodes that may be rows, or all of them, by index
  // (TokenTree::Best). Each number of nodes has all of those of fewer.
  void Likeliest(int count, std::vector<int>* nodes) const;
};

// The step without any of these nodes.
struct StepLoad {
  int sessions = 0;  // each commits a token at least
  int rows = 0;      // a row each, and those of chains
  int max_rows = 0;  // of the step
};

// Of each tree how many of its likeliest nodes are rows (StepTree::Likeliest).
// Trees that take all come first, in their order. Looks at every number of rows
// that the load allows, since step times have steps. But it looks at no more
// than twice as many as were ever measured: rows that were never tried cost
// what the curve guesses. An empty curve gives no node. Of numbers of rows that
// are about equally good, the lowest.
std::vector<int> ChooseStepRows(absl::Span<const StepTree> trees,
                                const StepLoad& given,
                                const StepTimeCurve& times);

// What the last `count` of a step's `rows` cost its sessions together, in steps
// without them.
double CostOfRows(int sessions, int rows, int count,
                  const StepTimeCurve& times);

}  // namespace nacre::speculation

#endif  // SPECULATION_STEP_ROWS_H_
