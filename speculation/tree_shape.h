// The shapes of token trees, by name: what a draft expands and what a target
// verifies.
//
// Pure functions.

#ifndef SPECULATION_TREE_SHAPE_H_
#define SPECULATION_TREE_SHAPE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

enum class TreeShape {
  kChain,  // one token behind the other
  kBest,   // the draft expands the likeliest nodes, the target verifies them
};

absl::string_view TreeShapeName(TreeShape shape);
// INVALID_ARGUMENT, with the value and the names there are.
absl::StatusOr<TreeShape> ParseTreeShape(absl::string_view name);

// What decides which shapes a request may have.
struct ShapeChoice {
  Method method = Method::kAsync;
  Verification verification = Verification::kExact;
  bool has_policy_rule = false;  // a length policy ends its chunks
};
// The shape of a request that named this one, or none: then kBest where that
// may be, else kChain. INVALID_ARGUMENT: kBest with the ratio test or a length
// policy, which are of chains, or with sd or pearl, whose plans are. (ar drafts
// nothing and takes any.)
absl::StatusOr<TreeShape> ResolveTreeShape(absl::optional<TreeShape> named,
                                           const ShapeChoice& choice);

}  // namespace nacre::speculation

#endif  // SPECULATION_TREE_SHAPE_H_
