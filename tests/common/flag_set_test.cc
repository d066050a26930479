#include "common/flag_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>

namespace nacre {
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
    const absl::Status status = flags_.Parse(args, Surroundings());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  // An environment of these variables.
  FlagSet::Environment Surroundings() {
    return [this](const char* name) -> const char* {
      const auto it = variables_.find(name);
      return it == variables_.end() ? nullptr : it->second.c_str();
    };
  }

  Values values_;
  std::map<std::string, std::string> variables_;
  FlagSet flags_;
};

TEST_F(FlagSetTest, KeepsDefaultsWithoutFlags) {
  ASSERT_TRUE(flags_.Parse({}, nullptr).ok());
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

TEST_F(FlagSetTest, HelpHasAShortForm) {
  ASSERT_TRUE(flags_.Parse({"-h"}).ok());
  EXPECT_TRUE(flags_.help_requested());
}

TEST_F(FlagSetTest, HelpComesBeforeABadVariable) {
  variables_["NACRE_MAX_COUNT"] = "x";
  ASSERT_TRUE(flags_.Parse({"--help"}, Surroundings()).ok());
  EXPECT_TRUE(flags_.help_requested());
  EXPECT_FALSE(flags_.version_requested());
}

TEST_F(FlagSetTest, TheVersionIsAskedFor) {
  ASSERT_TRUE(flags_.Parse({"--json", "--version"}, nullptr).ok());
  EXPECT_TRUE(flags_.version_requested());
  EXPECT_FALSE(flags_.help_requested());
}

TEST_F(FlagSetTest, WhatIsNotGivenStandsInTheEnvironment) {
  variables_ = {{"NACRE_MAX_COUNT", "8"},
                {"NACRE_TEXT", "around"},
                {"NACRE_JSON", "true"},
                {"NACRE_STOP", "a,b"},
                {"NACRE_UNKNOWN", "x"}};
  ASSERT_TRUE(
      flags_.Parse({"--text", "given", "--stop=c"}, Surroundings()).ok());
  EXPECT_EQ(values_.count, 8);
  EXPECT_EQ(values_.text, "given");
  EXPECT_TRUE(values_.json);
  EXPECT_THAT(values_.stop, ElementsAre("c"));
}

TEST_F(FlagSetTest, ABadVariableIsNamed) {
  variables_["NACRE_MAX_COUNT"] = "3x";
  EXPECT_THAT(ErrorOf({}), HasSubstr("NACRE_MAX_COUNT: \"3x\" is not N"));
  variables_["NACRE_MAX_COUNT"] = "";
  EXPECT_THAT(ErrorOf({}), HasSubstr("NACRE_MAX_COUNT: \"\" is not N"));
}

TEST_F(FlagSetTest, ASetterSaysWhatIsWrong) {
  bool on = true;
  flags_.AddSwitch("cache", &on, "a switch with words");
  std::string seen;
  flags_.AddParsed(
      "even", "N", "2",
      [&](const std::string& text) -> absl::Status {
        if (text == "odd") return absl::InvalidArgumentError("that is odd");
        seen = text;
        return absl::OkStatus();
      },
      "an even number");
  ASSERT_TRUE(flags_.Parse({"--cache=off", "--even", "4"}, nullptr).ok());
  EXPECT_FALSE(on);
  EXPECT_EQ(seen, "4");
  EXPECT_THAT(ErrorOf({"--cache=maybe"}),
              HasSubstr("flag --cache: \"maybe\" is not on or off"));
  EXPECT_THAT(ErrorOf({"--even=odd"}),
              HasSubstr("flag --even: \"odd\": that is odd"));
  EXPECT_THAT(flags_.Help(), HasSubstr("an even number (default 2)"));
  EXPECT_THAT(flags_.Help(), HasSubstr("a switch with words (default on)"));
}

// For a program that starts another with the same group of flags.
TEST_F(FlagSetTest, AGroupKnowsWhatWasGivenOfIt) {
  int queue = 1;
  std::string level = "info";
  std::vector<std::string> names;
  flags_.BeginGroup("shared");
  flags_.Add("queue", "N", &queue, "waits");
  flags_.Add("level", "LEVEL", &level, "of the log");
  flags_.AddRepeated("name", "TEXT", &names, "several");
  flags_.BeginGroup("");
  int own = 0;
  flags_.Add("own", "N", &own, "not shared");
  variables_["NACRE_LEVEL"] = "--queue";
  ASSERT_TRUE(flags_
                  .Parse({"--own=1", "--name=a", "--json", "--name", ""},
                         Surroundings())
                  .ok());
  EXPECT_THAT(flags_.Given("shared"),
              ElementsAre("--level=--queue", "--name=a", "--name="));
}

// The same flags once more, for another program of the same kind.
TEST_F(FlagSetTest, APrefixTellsTheFlagsOfOneGroupFromThoseOfAnother) {
  struct Speed {
    int steps = 7;
    void Register(FlagSet* flags) {
      flags->Add("steps", "N", &steps, "how many");
    }
  } all, fast;
  flags_.BeginGroup("all");
  all.Register(&flags_);
  flags_.BeginGroup("fast", "fast-", "of the fast");
  fast.Register(&flags_);
  flags_.BeginGroup("");
  int own = 0;
  flags_.Add("own", "N", &own, "neither");
  EXPECT_THAT(flags_.Help(), HasSubstr("  --steps N                     how "
                                       "many (default 7)\n"));
  EXPECT_THAT(flags_.Help(), HasSubstr("  --fast-steps N                of the "
                                       "fast: how many\n"));
  variables_["NACRE_FAST_STEPS"] = "3";
  ASSERT_TRUE(flags_.Parse({"--own=1"}, Surroundings()).ok());
  EXPECT_EQ(all.steps, 7);
  EXPECT_EQ(fast.steps, 3);
  EXPECT_THAT(flags_.Given("all"), ElementsAre());
  EXPECT_THAT(flags_.Given("fast"), ElementsAre("--steps=3"));
}

}  // namespace
}  // namespace nacre
