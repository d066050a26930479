#include "tools/simulate/simulate_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre::tools {
namespace {

using simulation::Role;
using speculation::Ablation;
using speculation::Method;
using ::testing::HasSubstr;

TEST(ParseSimulatedMethodsTest, ReadsMethodsWindowsAndAblations) {
  const auto methods =
      ParseSimulatedMethods("ar,sd:4,pearl,pearl-no-pre-verify:7", 5);
  ASSERT_TRUE(methods.ok()) << methods.status();
  ASSERT_EQ(methods->size(), 4);
  EXPECT_EQ((*methods)[0].method.method, Method::kAr);
  EXPECT_FALSE((*methods)[0].method.window.has_value());
  EXPECT_EQ((*methods)[1].name, "sd:4");
  EXPECT_EQ((*methods)[1].method.window, 4);
  EXPECT_EQ((*methods)[2].method.window, 5);
  EXPECT_EQ((*methods)[2].method.ablation, Ablation::kNone);
  EXPECT_EQ((*methods)[3].method.method, Method::kPearl);
  EXPECT_EQ((*methods)[3].method.ablation, Ablation::kNoPreVerify);
  EXPECT_EQ((*methods)[3].method.window, 7);
  const auto other = ParseSimulatedMethods("pearl-no-post-verify", {});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)[0].method.ablation, Ablation::kNoPostVerify);
  EXPECT_FALSE((*other)[0].method.window.has_value());
}

TEST(ParseSimulatedMethodsTest, RefusesBadLists) {
  const auto error = [](const char* text) {
    return std::string(ParseSimulatedMethods(text, {}).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("method \"\" is not one of"));
  EXPECT_THAT(error("ar,fast"), HasSubstr("method \"fast\" is not one of"));
  EXPECT_THAT(error("sd-no-pre-verify"), HasSubstr("is not one of"));
  EXPECT_THAT(error("ar:1"), HasSubstr("ar has no window"));
  EXPECT_THAT(error("sd:0"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("sd:65"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("pearl:x"), HasSubstr("not in 1..64"));
  EXPECT_THAT(error("sd:4,sd:4"), HasSubstr("given twice"));
}

TEST(ParseFailuresTest, ReadsFailures) {
  const auto failures =
      ParseFailures("draft@2.5+1,target:1/60+0.5,hung-draft:0@0", 1, 2);
  ASSERT_TRUE(failures.ok()) << failures.status();
  ASSERT_EQ(failures->size(), 3);
  const simulation::Failure& once = (*failures)[0];
  EXPECT_EQ(once.role, Role::kDraft);
  EXPECT_FALSE(once.worker.has_value());
  EXPECT_EQ(once.after_ns, 2'500'000'000);
  EXPECT_FALSE(once.repeats);
  EXPECT_EQ(once.back_after_ns, 1'000'000'000);
  const simulation::Failure& often = (*failures)[1];
  EXPECT_EQ(often.role, Role::kTarget);
  EXPECT_EQ(often.worker, 1);
  EXPECT_TRUE(often.repeats);
  EXPECT_EQ(often.back_after_ns, 500'000'000);
  const simulation::Failure& hangs = (*failures)[2];
  EXPECT_TRUE(hangs.hangs);
  EXPECT_EQ(hangs.worker, 0);
  EXPECT_EQ(hangs.after_ns, 0);
  EXPECT_FALSE(hangs.back_after_ns.has_value());
}

TEST(ParseFailuresTest, RefusesBadFailures) {
  const auto error = [](const char* text) {
    return std::string(ParseFailures(text, 1, 2).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("no @SECONDS or /SECONDS"));
  EXPECT_THAT(error("draft"), HasSubstr("\"draft\": it has no @SECONDS"));
  EXPECT_THAT(error("client@1"), HasSubstr("not one of draft, target"));
  EXPECT_THAT(error("hung-target@1"), HasSubstr("not one of draft, target"));
  EXPECT_THAT(error("draft:1@1"), HasSubstr("\"1\" is not one of the 1"));
  EXPECT_THAT(error("target:2@1"), HasSubstr("\"2\" is not one of the 2"));
  EXPECT_THAT(error("target:@1"), HasSubstr("\"\" is not one of the 2"));
  EXPECT_THAT(error("draft@x"), HasSubstr("seconds in 0..1000000"));
  EXPECT_THAT(error("draft@-1"), HasSubstr("\"-1\" is not a number"));
  EXPECT_THAT(error("draft@1000001"), HasSubstr("seconds in 0..1000000"));
  EXPECT_THAT(error("draft@nan"), HasSubstr("seconds in 0..1000000"));
  EXPECT_THAT(error("draft/0+1"), HasSubstr("seconds > 0 and <= 1000000"));
  EXPECT_THAT(error("draft/5"), HasSubstr("needs +SECONDS"));
  EXPECT_THAT(error("draft@5+0"), HasSubstr("seconds > 0 and <= 1000000"));
  EXPECT_THAT(error("draft@5+1+1"), HasSubstr("\"+1\" is too much"));
}

}  // namespace
}  // namespace nacre::tools
