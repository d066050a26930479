#include "speculation/tree_shape.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nacre::speculation {

absl::StatusOr<TreeSpec> ResolveTreeShape(absl::optional<TreeSpec> named,
                                          const ShapeChoice& choice) {
  const bool is_exact = choice.verification == Verification::kExact;
  if (!named.has_value()) {
    return TreeSpec(choice.method == Method::kAsync && is_exact &&
                            !choice.has_policy_rule
                        ? TreeShape::kBest
                        : TreeShape::kChain);
  }
  if (named->shape == TreeShape::kChain || choice.method == Method::kAr) {
    return TreeSpec(TreeShape::kChain);
  }
  const auto refuse = [&named](absl::string_view why) {
    const std::string name = TreeSpecName(*named);
    return absl::InvalidArgumentError(
        absl::StrCat("tree ", name.substr(0, name.find(':')), " ", why,
                     "; use tree chain, or name none"));
  };
  if (!is_exact) return refuse("cannot be with verification ratio");
  if (choice.has_policy_rule && !named->may_have_policy()) {
    return refuse("cannot be with a length policy (cape and eagle2 can)");
  }
  return *std::move(named);
}

}  // namespace nacre::speculation
