#include "tools/bench/bench_methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/files.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseBenchMethodsTest, ReadsMethodsAndWindows) {
  const auto methods = ParseBenchMethods("ar,sd:4,pearl,async:64", 6);
  ASSERT_TRUE(methods.ok()) << methods.status();
  ASSERT_EQ(methods->size(), 4);
  EXPECT_EQ((*methods)[0].method, v1::METHOD_AR);
  EXPECT_FALSE((*methods)[0].window.has_value());
  EXPECT_EQ((*methods)[1].name, "sd:4");
  EXPECT_EQ((*methods)[1].method, v1::METHOD_SD);
  EXPECT_EQ((*methods)[1].window, 4);
  EXPECT_EQ((*methods)[2].window, 6);
  EXPECT_EQ((*methods)[3].method, v1::METHOD_ASYNC);
  EXPECT_EQ((*methods)[3].window, 64);
}

TEST(ParseBenchMethodsTest, LeavesTheWindowToTheServer) {
  const auto methods = ParseBenchMethods("sd", std::nullopt);
  ASSERT_TRUE(methods.ok());
  EXPECT_FALSE((*methods)[0].window.has_value());
}

TEST(ParseBenchMethodsTest, ReadsAblationsOfPearl) {
  const auto methods = ParseBenchMethods(
      "pearl:4,pearl-no-pre-verify:4,pearl-no-post-verify", std::nullopt);
  ASSERT_TRUE(methods.ok()) << methods.status();
  EXPECT_EQ((*methods)[0].ablation, "");
  EXPECT_EQ((*methods)[1].name, "pearl-no-pre-verify:4");
  EXPECT_EQ((*methods)[1].method, v1::METHOD_PEARL);
  EXPECT_EQ((*methods)[1].window, 4);
  EXPECT_EQ((*methods)[1].ablation, "no-pre-verify");
  EXPECT_EQ((*methods)[2].ablation, "no-post-verify");
  for (const char* bad : {"pearl-", "pearl-pre-verify", "sd-no-pre-verify"}) {
    EXPECT_FALSE(ParseBenchMethods(bad, std::nullopt).ok()) << bad;
  }
}

TEST(ParseBenchMethodsTest, AllowsOneMethodAtSeveralWindows) {
  EXPECT_TRUE(ParseBenchMethods("sd:1,sd:2,sd", std::nullopt).ok());
}

TEST(ParseBenchPoliciesTest, ReadsPoliciesWithSeveralParameters) {
  const auto policies =
      ParseBenchPolicies("constant,svip:c=0.2,h=0.4,oracle,beta-ts");
  ASSERT_TRUE(policies.ok()) << policies.status();
  EXPECT_THAT(*policies,
              ElementsAre("constant", "svip:h=0.4,c=0.2", "oracle", "beta-ts"));
}

TEST(ParseBenchPoliciesTest, RefusesBadLists) {
  const auto error = [](const char* text) {
    return std::string(ParseBenchPolicies(text).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("an empty policy"));
  EXPECT_THAT(error("svip,"), HasSubstr("an empty policy"));
  EXPECT_THAT(error("svip,sivp"), HasSubstr("unknown length policy \"sivp\""));
  EXPECT_THAT(error("svip:h=2,c=x"), HasSubstr("c is \"x\""));
  EXPECT_THAT(error("svip,svip"), HasSubstr("given twice"));
  EXPECT_THAT(error("h=0.4,svip"), HasSubstr("unknown"));
}

TEST(WithPoliciesTest, CrossesAllButAr) {
  const auto methods = *ParseBenchMethods("ar,sd:4,async", std::nullopt);
  const auto crossed = WithPolicies(methods, {"constant", "oracle"});
  std::vector<std::string> names;
  for (const BenchMethod& method : crossed) names.push_back(method.name);
  EXPECT_THAT(names, ElementsAre("ar", "sd:4/constant", "sd:4/oracle",
                                 "async/constant", "async/oracle"));
  EXPECT_EQ(crossed[0].policy, "");
  EXPECT_EQ(crossed[2].policy, "oracle");
  EXPECT_EQ(crossed[2].window, 4);
  EXPECT_TRUE(crossed[2].is_oracle());
  EXPECT_TRUE(crossed[2].has_policy_rule());
  EXPECT_FALSE(crossed[1].is_oracle());
  EXPECT_FALSE(crossed[1].has_policy_rule());
  EXPECT_EQ(WithPolicies(methods, {}).size(), 3u);
}

TEST(WithTreesTest, CrossesAsyncAlone) {
  const auto methods = *ParseBenchMethods("ar,sd:4,async", std::nullopt);
  const auto all = WithTrees(methods, "chain,best", "async");
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> names;
  for (const BenchMethod& method : *all) {
    names.push_back(method.name);
    EXPECT_EQ(method.tree.empty(), method.method != v1::METHOD_ASYNC);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"ar", "sd:4", "async@chain",
                                             "async@best"}));
  EXPECT_EQ(WithTrees(methods, "", "async")->size(), 3u);
  for (const char* bad : {"best,best", "medusa", "chain,", ",", "k=4",
                          "eagle2:k=4,k=5", "static:/no/such/file"}) {
    EXPECT_EQ(WithTrees(methods, bad, "async").status().code(),
              absl::StrContains(bad, "/") ? absl::StatusCode::kNotFound
                                          : absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(WithTreesTest, CrossesTheMethodsThatAreListed) {
  const auto methods = *ParseBenchMethods("ar,sd:4,pearl,async", std::nullopt);
  const auto all = WithTrees(methods, "cape,best", "sd,async");
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> names;
  std::vector<std::string> with_trees;
  for (const BenchMethod& method : *all) {
    names.push_back(method.name);
    if (method.has_tree()) with_trees.push_back(method.name);
  }
  EXPECT_THAT(names, ElementsAre("ar", "sd:4@cape", "sd:4@best", "pearl",
                                 "async@cape", "async@best"));
  EXPECT_THAT(with_trees, ElementsAre("sd:4@cape", "sd:4@best", "async@cape",
                                      "async@best"));
  EXPECT_TRUE(methods.back().has_tree()) << "the coordinator's default";
  for (const char* bad : {"ar", "sd,ar", "sd,sd", "beam", ""}) {
    EXPECT_EQ(WithTrees(methods, "cape", bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(WithTreesTest, TakesShapesWithParameters) {
  const auto methods = *ParseBenchMethods("async", std::nullopt);
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/paths";
  ASSERT_TRUE(WriteFile(file, "[[0], [1],\n [0, 2]]").ok());
  const auto all =
      WithTrees(methods, "eagle2:k=4,depth=3,cape,static:" + file, "async");
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> trees;
  for (const BenchMethod& method : *all) trees.push_back(method.tree);
  EXPECT_EQ(trees, (std::vector<std::string>{"eagle2:k=4,depth=3", "cape",
                                             "static:[[0],[1],[0,2]]"}));
  EXPECT_EQ(all->front().name, "async@eagle2:k=4,depth=3");
}

TEST(WithVerificationsTest, CrossesAllButAr) {
  const auto methods = *ParseBenchMethods("ar,sd:4,async", std::nullopt);
  const auto both = ParseBenchVerifications("exact,ratio");
  ASSERT_TRUE(both.ok()) << both.status();
  std::vector<std::string> names;
  for (const BenchMethod& method : WithVerifications(methods, *both)) {
    names.push_back(method.name);
    EXPECT_EQ(method.is_ratio(),
              method.name.find("+ratio") != std::string::npos);
  }
  EXPECT_THAT(names,
              ElementsAre("ar", "sd:4", "sd:4+ratio", "async", "async+ratio"));
  EXPECT_EQ(
      WithVerifications(methods, *ParseBenchVerifications("exact")).size(), 3u);
  for (const char* bad : {"", "exact,exact", "ratio,hope"}) {
    EXPECT_EQ(ParseBenchVerifications(bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(ParseBenchMethodsTest, RefusesBadLists) {
  const auto error = [](const char* text) {
    return std::string(
        ParseBenchMethods(text, std::nullopt).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("method \"\" is not one of"));
  EXPECT_THAT(error("ar,"), HasSubstr("method \"\" is not one of"));
  EXPECT_THAT(error("ar,fast"), HasSubstr("method \"fast\" is not one of"));
  EXPECT_THAT(error("sd:0"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("sd:65"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("sd:"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("sd:4:5"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("ar:1"), HasSubstr("ar has no window"));
  EXPECT_THAT(error("sd:4,ar,sd:4"), HasSubstr("given twice"));
}

}  // namespace
}  // namespace nacre::tools
