// Which shapes of token trees (tree_spec.h) a request may have.
//
// Pure functions.

#ifndef SPECULATION_TREE_SHAPE_H_
#define SPECULATION_TREE_SHAPE_H_

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "speculation/pipeline.h"
#include "speculation/tree_spec.h"

namespace nacre::speculation {

// What decides which shapes a request may have.
struct ShapeChoice {
  Method method = Method::kAsync;
  Verification verification = Verification::kExact;
  bool has_policy_rule = false;  // a length policy ends its chunks
};
// The shape of a request that named this one, or none: then best where async
// may have it, else chain. INVALID_ARGUMENT: a tree with the ratio test, which
// is of chains, or best or static with a length policy. (ar drafts nothing and
// takes any.)
absl::StatusOr<TreeSpec> ResolveTreeShape(absl::optional<TreeSpec> named,
                                          const ShapeChoice& choice);

}  // namespace nacre::speculation

#endif  // SPECULATION_TREE_SHAPE_H_
