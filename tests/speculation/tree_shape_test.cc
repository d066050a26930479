#include "speculation/tree_shape.h"

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

TEST(TreeShape, NotNamedIsBestWhereThatMayBe) {
  EXPECT_EQ(*ResolveTreeShape(absl::nullopt, {}), TreeShape::kBest);
  for (const ShapeChoice& choice :
       {ShapeChoice{.method = Method::kSd}, ShapeChoice{.method = Method::kAr},
        ShapeChoice{.method = Method::kPearl},
        ShapeChoice{.verification = Verification::kRatio},
        ShapeChoice{.has_policy_rule = true}}) {
    EXPECT_EQ(*ResolveTreeShape(absl::nullopt, choice), TreeShape::kChain);
    EXPECT_EQ(*ResolveTreeShape(TreeShape::kChain, choice), TreeShape::kChain);
  }
}

TEST(TreeShape, IsRefusedWhereItCannotBe) {
  for (const char* name : {"best", "cape", "eagle2:k=4", "static:[[1]]"}) {
    EXPECT_EQ(*ResolveTreeShape(*ParseTreeSpec(name), {}),
              *ParseTreeSpec(name));
  }
  EXPECT_EQ(ResolveTreeShape(*ParseTreeSpec("static:[[1]]"),
                             {.has_policy_rule = true})
                .status(),
            absl::InvalidArgumentError(
                "tree static cannot be with a length policy (cape and eagle2 "
                "can); use tree chain, or name none"));
  EXPECT_EQ(*ResolveTreeShape(TreeShape::kBest, {.method = Method::kAr}),
            TreeShape::kChain);
  for (const Method method : {Method::kSd, Method::kPearl}) {
    EXPECT_EQ(*ResolveTreeShape(TreeShape::kBest, {.method = method}),
              TreeShape::kBest);
  }
  EXPECT_EQ(
      ResolveTreeShape(TreeShape::kBest, {.verification = Verification::kRatio})
          .status(),
      absl::InvalidArgumentError("tree best cannot be with verification "
                                 "ratio; use tree chain, or name none"));
  EXPECT_EQ(
      ResolveTreeShape(TreeShape::kBest, {.has_policy_rule = true}).status(),
      absl::InvalidArgumentError(
          "tree best cannot be with a length policy (cape and eagle2 can); "
          "use tree chain, or name none"));
  for (const char* name : {"cape", "eagle2:k=4"}) {
    EXPECT_EQ(
        *ResolveTreeShape(*ParseTreeSpec(name),
                          {.method = Method::kSd, .has_policy_rule = true}),
        *ParseTreeSpec(name));
  }
}

}  // namespace
}  // namespace nacre::speculation
