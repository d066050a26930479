#include "speculation/policies/policy_spec.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {
namespace {

using ::testing::HasSubstr;

PolicySpec Parse(const std::string& text) {
  const auto spec = ParsePolicySpec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status();
  return spec.ok() ? *spec : PolicySpec();
}

std::string Refusal(const std::string& text) {
  const auto spec = ParsePolicySpec(text);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(spec.status().message());
}

TEST(PolicySpec, EveryPolicyIsKnownByItsName) {
  std::set<std::string> names;
  for (const PolicyInfo& info : AllPolicies()) {
    EXPECT_EQ(&InfoOf(info.kind), &info);
    const PolicySpec spec = Parse(info.name);
    EXPECT_EQ(spec.kind(), info.kind);
    EXPECT_STREQ(spec.name(), info.name);
    EXPECT_EQ(spec.text(), info.name);
    names.insert(info.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"constant", "heuristic", "confidence",
                                          "svip", "beta-ts", "cali-ts", "disco",
                                          "specdec++", "optimal-static",
                                          "oracle", "load"}));
  EXPECT_EQ(Parse("").kind(), PolicyKind::kConstant);
}

TEST(PolicySpec, HasThePublishedDefaults) {
  EXPECT_EQ(Parse("heuristic").Value("start"), 5.0);
  EXPECT_EQ(Parse("confidence").Value("threshold"), 0.4);
  EXPECT_EQ(Parse("svip").Value("h"), 0.3);
  EXPECT_EQ(Parse("svip").Value("c"), 0.15);
  EXPECT_EQ(Parse("svip").Value("max"), 40.0);
  EXPECT_EQ(Parse("specdec++").Value("threshold"), 0.7);
  EXPECT_EQ(Parse("specdec++").Value("min"), 2.0);
  EXPECT_EQ(Parse("specdec++").Value("max"), 20.0);
  EXPECT_EQ(Parse("beta-ts").Value("update"), 0.0);
}

TEST(PolicySpec, TakesParametersInAnyOrder) {
  const PolicySpec spec = Parse("svip:max=12,h=0.4");
  EXPECT_EQ(spec.Value("h"), 0.4);
  EXPECT_EQ(spec.Value("c"), 0.15);
  EXPECT_EQ(spec.Value("max"), 12.0);
  EXPECT_EQ(spec.Given("c"), absl::nullopt);
  EXPECT_EQ(spec.Given("nothing"), absl::nullopt);
  EXPECT_EQ(spec.text(), "svip:h=0.4,max=12");
  EXPECT_EQ(Parse(spec.text()), spec);
  // The text travels to the draft: no digit may be lost.
  for (const char* text :
       {"svip:h=0.123456789012345", "beta-ts:alpha0=999999.125,beta0=1e-6"}) {
    EXPECT_EQ(Parse(Parse(text).text()), Parse(text)) << text;
  }
  const PolicySpec beta = Parse("beta-ts:update=bernoulli,alpha0=1");
  EXPECT_EQ(beta.Value("update"), 1.0);
  EXPECT_EQ(beta.text(), "beta-ts:update=bernoulli,alpha0=1");
}

TEST(PolicySpec, AFilesDefaultsStandBetweenRequestAndTable) {
  const PolicySpec file = Parse("disco:threshold=0.3");
  EXPECT_EQ(Parse("disco").Value("threshold", &file), 0.3);
  EXPECT_EQ(Parse("disco:threshold=0.9").Value("threshold", &file), 0.9);
  EXPECT_EQ(Parse("disco").Value("max", &file), 40.0);
}

TEST(PolicySpec, TheLongestChunkIsKnownWhereThePolicyDecides) {
  EXPECT_EQ(Parse("constant").max_length(), absl::nullopt);
  EXPECT_EQ(Parse("load").max_length(), absl::nullopt);
  EXPECT_EQ(Parse("constant:n=6").max_length(), 6);
  EXPECT_EQ(Parse("optimal-static:gamma=9").max_length(), 9);
  EXPECT_EQ(Parse("optimal-static").max_length(), kMaxWindow);
  EXPECT_EQ(Parse("beta-ts").max_length(), 40);
  EXPECT_EQ(Parse("svip:max=7").max_length(), 7);
  // A file's own max may be over the table's 40 and 20.
  EXPECT_EQ(Parse("disco").max_length(), kMaxWindow);
  EXPECT_EQ(Parse("specdec++").max_length(), kMaxWindow);
  EXPECT_EQ(Parse("cali-ts").max_length(), kMaxWindow);
  EXPECT_EQ(Parse("svip").max_length(), kMaxWindow);
  EXPECT_EQ(Parse("specdec++:max=5").max_length(), 5);
  EXPECT_FALSE(Parse("constant").has_own_rule());
  EXPECT_FALSE(Parse("load").has_own_rule());
  EXPECT_TRUE(Parse("constant:n=6").has_own_rule());
  EXPECT_TRUE(Parse("oracle").has_own_rule());
}

TEST(PolicySpec, SaysWhatNeedsAFile) {
  EXPECT_TRUE(Parse("disco").needs_file());
  EXPECT_TRUE(Parse("specdec++").needs_file());
  EXPECT_TRUE(Parse("optimal-static").needs_file());
  EXPECT_FALSE(Parse("optimal-static:gamma=4").needs_file());
  EXPECT_FALSE(Parse("cali-ts").needs_file());
  EXPECT_FALSE(Parse("svip").needs_file());
}

TEST(PolicySpec, UnknownNamesAndKeysAreRefused) {
  EXPECT_THAT(Refusal("sivp"), HasSubstr("unknown length policy \"sivp\""));
  EXPECT_THAT(Refusal("sivp"), HasSubstr("beta-ts cali-ts disco specdec++"));
  EXPECT_THAT(Refusal("Svip"), HasSubstr("unknown"));
  EXPECT_THAT(Refusal(":h=1"), HasSubstr("unknown"));
  EXPECT_THAT(Refusal("svip:threshold=0.4"),
              HasSubstr("policy svip has no parameter \"threshold\"; it has: "
                        "h c max"));
  EXPECT_THAT(Refusal("load:n=4"), HasSubstr("it has none"));
  EXPECT_THAT(Refusal("disco:file=/etc/passwd"),
              HasSubstr("no parameter \"file\""));
  EXPECT_THAT(Refusal("svip:"), HasSubstr("no parameter \"\""));
  EXPECT_THAT(Refusal("svip:h=0.4,"), HasSubstr("no parameter \"\""));
  EXPECT_THAT(Refusal("svip:h=0.4,h=0.5"), HasSubstr("h is given twice"));
}

TEST(PolicySpec, ARefusalIsShortHoweverLongTheText) {
  const std::string large(20480, 'x');
  for (const std::string& text :
       {large, "svip:" + large, "svip:h=" + large, "beta-ts:update=" + large}) {
    const std::string message = Refusal(text);
    EXPECT_LT(message.size(), 300u) << message;
    EXPECT_THAT(message, HasSubstr("xxx...\" of 20480 bytes"));
  }
}

TEST(PolicySpec, BadValuesAreRefusedWithTheirLimits) {
  EXPECT_THAT(Refusal("confidence:threshold=1.5"),
              HasSubstr("threshold is \"1.5\", must be a number in [0, 1]"));
  for (const char* value : {"nan", "NaN", "-nan", "inf", "-inf", "-0.1", "",
                            "x", "0.4x", "0x1p-2x"}) {
    EXPECT_THAT(Refusal(std::string("svip:h=") + value),
                HasSubstr("must be a number in [0, 100]"));
  }
  EXPECT_THAT(Refusal("svip:h"), HasSubstr("h is \"\""));
  for (const char* value : {"0", "65", "2.5", "-1", "nan", "1e9"}) {
    EXPECT_THAT(Refusal(std::string("constant:n=") + value),
                HasSubstr("must be a whole number in [1, 64]"));
  }
  EXPECT_THAT(Refusal("beta-ts:alpha0=0"), HasSubstr("alpha0 is \"0\""));
  EXPECT_THAT(Refusal("beta-ts:update=literal"),
              HasSubstr("must be paper or bernoulli"));
  EXPECT_THAT(Refusal("cali-ts:sigma-model=0"), HasSubstr("sigma-model"));
  EXPECT_THAT(Refusal("specdec++:min=9,max=4"),
              HasSubstr("min is 9, over max of 4"));
  EXPECT_THAT(Refusal("heuristic:start=50"),
              HasSubstr("start is 50, over max of 40"));
}

}  // namespace
}  // namespace nacre::speculation
