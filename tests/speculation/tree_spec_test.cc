#include "speculation/tree_spec.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using testing::HasSubstr;

// Refused, with these words.
void ExpectRefused(const std::string& name, const std::string& words) {
  const auto spec = ParseTreeSpec(name);
  ASSERT_FALSE(spec.ok()) << name;
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(words)) << name;
}

TEST(TreeSpec, HasNames) {
  for (const char* name :
       {"chain", "best", "cape", "eagle2:k=10,depth=7,total=60",
        "eagle2:k=16,depth=64,total=64", "eagle2:k=1,depth=1,total=1",
        "static:[[0]]", "static:[[0],[15],[0,0],[0,3],[15,1],[0,3,2]]"}) {
    ASSERT_TRUE(ParseTreeSpec(name).ok()) << name;
    EXPECT_EQ(TreeSpecName(*ParseTreeSpec(name)), name);
  }
  EXPECT_EQ(*ParseTreeSpec("eagle2"),
            *ParseTreeSpec("eagle2:total=60,k=10,depth=7"));
  for (const char* name : {"", "Best", "best:", "chain:x", "cape:3", "static",
                           "eagle3", "eagle2 "}) {
    ExpectRefused(name, "is unknown; there are chain, best, cape");
  }
}

TEST(TreeSpec, RefusesParametersOfEagle2ByName) {
  ExpectRefused("eagle2:k=17", "k \"17\" is no number from 1 to 16");
  ExpectRefused("eagle2:k=0", "k \"0\" is no number from 1 to 16");
  ExpectRefused("eagle2:k=-1", "is no number from 1 to 16");
  ExpectRefused("eagle2:depth=65", "depth \"65\" is no number from 1 to 64");
  ExpectRefused("eagle2:total=99999999999", "is no number from 1 to 64");
  for (const char* text :
       {"+3", " 3", "3 ", "0x3", "03", "3.0", "\t3", "3e0"}) {
    for (const char* name : {"k", "depth", "total"}) {
      ExpectRefused(absl::StrCat("eagle2:", name, "=", text),
                    absl::StrCat(name, " \"", absl::CHexEscape(text),
                                 "\" is no number from 1 to "));
    }
  }
  ExpectRefused("eagle2: k=3", "\" k=3\" is no parameter");
  ExpectRefused("eagle2:k=2,k=3", "k is given twice");
  ExpectRefused("eagle2:", "is no parameter");
  ExpectRefused("eagle2:k=2,", "is no parameter");
  ExpectRefused("eagle2:k", "k \"\" is no number");
  ExpectRefused("eagle2:width=2", "\"width=2\" is no parameter");
}

TEST(TreeSpec, ReadsPathsInAnyOrderAndSpacing) {
  EXPECT_EQ(*ParseTreeSpec("static: [ [1 ,0], [1],\n\t[0],[1,0,2] ]\r\n"),
            *ParseTreeSpec("static:[[0],[1],[1,0],[1,0,2]]"));
}

TEST(TreeSpec, RefusesListsThatAreNoTree) {
  ExpectRefused("static:", "byte 0: '[' is missing");
  ExpectRefused("static:[]", "'[' is missing");
  ExpectRefused("static:[[]]", "rank \"\" is no number from 0 to 15");
  ExpectRefused("static:[[0],]", "'[' is missing");
  ExpectRefused("static:[[0,]]", "rank \"\"");
  ExpectRefused("static:[[0]", "']' is missing");
  ExpectRefused("static:[[0]] 1", "something follows the list");
  ExpectRefused("static:[[16]]", "rank \"16\" is no number from 0 to 15");
  ExpectRefused("static:[[-1]]", "rank \"\"");
  ExpectRefused("static:[[+1]]", "rank \"\"");
  ExpectRefused("static:[[01]]", "rank \"01\" is no number from 0 to 15");
  ExpectRefused("static:[[0x1]]", "']' is missing");
  ExpectRefused("static:[[99999999999999999999]]", "is no number");
  ExpectRefused("static:[[0],[0]]", "path [0] is given twice");
  ExpectRefused("static:[[0],[1,2]]",
                "path [1,2] goes on from one that the list does not have");
  std::string many = "static:[[0]";
  for (int i = 1; i < 16; ++i) many += ",[" + std::to_string(i) + "]";
  for (int i = 0; i < 16; ++i) many += ",[0," + std::to_string(i) + "]";
  for (int i = 0; i < 16; ++i) many += ",[1," + std::to_string(i) + "]";
  for (int i = 0; i < 16; ++i) many += ",[2," + std::to_string(i) + "]";
  EXPECT_EQ(ParseTreeSpec(many + "]")->nodes.size(), 64u);
  ExpectRefused(many + ",[3,0]]", "there are more than 64 paths");
  std::string deep = "static:[[0";
  for (int i = 0; i < 64; ++i) deep += ",0";
  ExpectRefused(deep + "]]", "a path has more than 64 ranks");
  ExpectRefused("static:" + std::string(16384, ' '),
                "tree of 16391 bytes, over 16384");
}

TEST(TreeSpec, KnowsThePlacesOfAList) {
  const TreeSpec spec = *ParseTreeSpec("static:[[0],[2],[2,1]]");
  const absl::optional<int> node = FindStaticNode(spec, {2});
  ASSERT_TRUE(node.has_value());
  EXPECT_TRUE(HasStaticChild(spec, *node, 1));
  EXPECT_FALSE(HasStaticChild(spec, *node, 0));
  EXPECT_EQ(FindStaticNode(spec, {}), -1);
  EXPECT_EQ(FindStaticNode(spec, {1}), absl::nullopt);
  EXPECT_FALSE(HasStaticChild(spec, *FindStaticNode(spec, {0})));
  EXPECT_EQ(ShapeDepth(spec), 2);
  EXPECT_EQ(ShapeDepth(*ParseTreeSpec("eagle2:depth=3")), 3);
  EXPECT_EQ(ShapeDepth(*ParseTreeSpec("cape")), kMaxShapeDepth);
}

TEST(TreeSpec, CapeHasTheMoreCandidatesTheLessLikelyTheFirstIs) {
  EXPECT_EQ(CapeWidth(0.05), 8);
  EXPECT_EQ(CapeWidth(0.29), 8);
  EXPECT_EQ(CapeWidth(0.31), 6);
  EXPECT_EQ(CapeWidth(0.59), 6);
  EXPECT_EQ(CapeWidth(0.61), 4);
  EXPECT_EQ(CapeWidth(0.81), 2);
  EXPECT_EQ(CapeWidth(1.0), 2);
  EXPECT_EQ(CapeWidth(0.0), 8);
  EXPECT_EQ(CapeWidth(std::numeric_limits<double>::quiet_NaN()), 8);
}

TEST(TreeSpecTest, TheLikeliestPathIsThatOfRanksZero) {
  const auto depth = [](absl::string_view text) {
    return LikeliestDepth(*ParseTreeSpec(text));
  };
  EXPECT_EQ(depth("static:[[0],[0,0],[0,1]]"), 2);
  EXPECT_EQ(depth("static:[[0],[2],[2,1],[2,1,0]]"), 1);
  EXPECT_EQ(depth("static:[[1],[1,0]]"), 0);
  EXPECT_EQ(depth("eagle2:depth=5"), 5);
  EXPECT_EQ(depth("cape"), kMaxShapeDepth);
}

}  // namespace
}  // namespace nacre::speculation
