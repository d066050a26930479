#include "speculation/tree_shape.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace nacre::speculation {
namespace {

absl::Status Refuse(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tree best ", why, "; use tree chain, or name none"));
}

}  // namespace

absl::string_view TreeShapeName(TreeShape shape) {
  return shape == TreeShape::kBest ? "best" : "chain";
}

absl::StatusOr<TreeShape> ParseTreeShape(absl::string_view name) {
  for (const TreeShape shape : {TreeShape::kChain, TreeShape::kBest}) {
    if (name == TreeShapeName(shape)) return shape;
  }
  // What others name so, cape, eagle2:... and static:FILE, is not built.
  return absl::InvalidArgumentError(
      absl::StrCat("tree \"", absl::CHexEscape(name.substr(0, 64)),
                   "\" is unknown; there are chain and best"));
}

absl::StatusOr<TreeShape> ResolveTreeShape(absl::optional<TreeShape> named,
                                           const ShapeChoice& choice) {
  const bool is_exact = choice.verification == Verification::kExact;
  if (!named.has_value()) {
    return choice.method == Method::kAsync && is_exact &&
                   !choice.has_policy_rule
               ? TreeShape::kBest
               : TreeShape::kChain;
  }
  if (*named == TreeShape::kChain || choice.method == Method::kAr) {
    return TreeShape::kChain;
  }
  if (choice.method != Method::kAsync) {
    return Refuse(absl::StrCat("is of method async, the request's is ",
                               MethodName(choice.method)));
  }
  if (!is_exact) return Refuse("cannot be with verification ratio");
  if (choice.has_policy_rule) return Refuse("cannot be with a length policy");
  return TreeShape::kBest;
}

}  // namespace nacre::speculation
