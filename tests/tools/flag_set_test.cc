#include "tools/flag_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string text = "before";
  int count = 3;
  std::optional<float> temperature;
  std::optional<std::string> prompt;
  bool json = false;
  std::vector<std::string> stop;
};

class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() : flags_("nacre test", "Tests.") {
    flags_.Add("text", "TEXT", &values_.text, "some text");
    flags_.Add("max-count", "N", &values_.count, "a count");
    flags_.Add("temperature", "T", &values_.temperature, "a number");
    flags_.Add("prompt", "TEXT", &values_.prompt, "a prompt");
    flags_.Add("json", "", &values_.json, "a switch");
    flags_.AddRepeated("stop", "TEXT", &values_.stop, "several");
  }

  std::string ErrorOf(const std::vector<std::string>& args) {
    const absl::Status status = flags_.Parse(args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  Values values_;
  FlagSet flags_;
};

TEST_F(FlagSetTest, KeepsDefaultsWithoutFlags) {
  ASSERT_TRUE(flags_.Parse({}).ok());
  EXPECT_EQ(values_.text, "before");
  EXPECT_EQ(values_.count, 3);
  EXPECT_FALSE(values_.temperature.has_value());
  EXPECT_FALSE(values_.json);
}

TEST_F(FlagSetTest, TakesValuesAfterSpaceAndEquals) {
  ASSERT_TRUE(flags_
                  .Parse({"--text", "a=b", "--max-count=-7", "--temperature",
                          "0.5", "--json"})
                  .ok());
  EXPECT_EQ(values_.text, "a=b");
  EXPECT_EQ(values_.count, -7);
  EXPECT_EQ(values_.temperature, 0.5F);
  EXPECT_TRUE(values_.json);
}

TEST_F(FlagSetTest, TakesAnythingAsTheValue) {
  ASSERT_TRUE(flags_.Parse({"--text", "--json"}).ok());
  EXPECT_EQ(values_.text, "--json");
  EXPECT_FALSE(values_.json);
  ASSERT_TRUE(flags_.Parse({"--text="}).ok());
  EXPECT_EQ(values_.text, "");
}

TEST_F(FlagSetTest, AnEmptyValueIsGiven) {
  ASSERT_TRUE(flags_.Parse({"--prompt", ""}).ok());
  EXPECT_EQ(values_.prompt, "");
  EXPECT_THAT(ErrorOf({"--temperature="}), HasSubstr("\"\" is not T"));
}

TEST_F(FlagSetTest, SwitchesTakeAValueOnlyAfterEquals) {
  values_.json = true;
  ASSERT_TRUE(flags_.Parse({"--json=false"}).ok());
  EXPECT_FALSE(values_.json);
  EXPECT_THAT(ErrorOf({"--json", "true"}),
              HasSubstr("unexpected argument \"true\""));
  EXPECT_THAT(ErrorOf({"--json=maybe"}),
              HasSubstr("\"maybe\" is not true or false"));
}

TEST_F(FlagSetTest, CollectsRepeatedFlags) {
  ASSERT_TRUE(flags_.Parse({"--stop", "a,b", "--stop=c"}).ok());
  EXPECT_THAT(values_.stop, ElementsAre("a,b", "c"));
}

TEST_F(FlagSetTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(ErrorOf({"--html", "x"}),
              HasSubstr("unknown flag --html of \"nacre test\""));
  EXPECT_THAT(ErrorOf({"--max_count=1"}), HasSubstr("unknown flag"));
  EXPECT_THAT(ErrorOf({"word"}), HasSubstr("unexpected argument \"word\""));
  EXPECT_THAT(ErrorOf({"--"}), HasSubstr("unexpected argument \"--\""));
  EXPECT_THAT(ErrorOf({"-t"}), HasSubstr("see \"nacre test --help\""));
}

TEST_F(FlagSetTest, RefusesMissingAndBadValues) {
  EXPECT_THAT(ErrorOf({"--max-count"}), HasSubstr("has no value"));
  EXPECT_THAT(ErrorOf({"--max-count", "3x"}),
              HasSubstr("flag --max-count: \"3x\" is not N"));
  EXPECT_THAT(ErrorOf({"--max-count=99999999999"}), HasSubstr("is not N"));
  EXPECT_THAT(ErrorOf({"--temperature=warm"}), HasSubstr("\"warm\" is not T"));
}

TEST_F(FlagSetTest, HelpListsFlagsWithDefaults) {
  ASSERT_TRUE(flags_.Parse({"--help", "--html"}).ok());
  EXPECT_TRUE(flags_.help_requested());
  EXPECT_THAT(flags_.Help(), HasSubstr("--max-count N"));
  EXPECT_THAT(flags_.Help(), HasSubstr("a count (default 3)"));
  EXPECT_THAT(flags_.Help(), ::testing::Not(HasSubstr("a number (default")));
}

}  // namespace
}  // namespace nacre::tools
