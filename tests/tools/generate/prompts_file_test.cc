#include "tools/generate/prompts_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view content) {
  const auto prompts = ParsePrompts("p.jsonl", content);
  EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(prompts.status().message());
}

TEST(ParsePromptsTest, ReadsIdsAndLimits) {
  const auto prompts = ParsePrompts(
      "p.jsonl",
      "{\"id\": \"a\", \"prompt\": \"one\\n\", \"max_tokens\": 5}\n"
      "\n"
      "{\"prompt\": \"\", \"other\": [1]}\r\n"
      "{\"id\": 17, \"prompt\": \"\\u00e9\"}");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 3);
  EXPECT_EQ((*prompts)[0].id, "a");
  EXPECT_EQ((*prompts)[0].text, "one\n");
  EXPECT_EQ((*prompts)[0].max_tokens, 5);
  EXPECT_EQ((*prompts)[1].id, "3");
  EXPECT_EQ((*prompts)[1].text, "");
  EXPECT_FALSE((*prompts)[1].max_tokens.has_value());
  EXPECT_EQ((*prompts)[2].id, "17");
  EXPECT_EQ((*prompts)[2].text, "\xc3\xa9");
}

TEST(ParsePromptsTest, NamesTheLineThatIsWrong) {
  EXPECT_EQ(ErrorOf("{\"prompt\": \"a\"}\n{\"prompt\": \"b\""),
            "p.jsonl:2: not a JSON object");
  EXPECT_EQ(ErrorOf("[]"), "p.jsonl:1: not a JSON object");
  EXPECT_EQ(ErrorOf("\n{\"prompts\": \"a\"}"),
            "p.jsonl:2: \"prompt\" is missing or not a string");
  EXPECT_EQ(ErrorOf("{\"prompt\": 3}"),
            "p.jsonl:1: \"prompt\" is missing or not a string");
  EXPECT_EQ(ErrorOf("{\"prompt\": \"a\", \"id\": {}}"),
            "p.jsonl:1: \"id\" is neither a string nor a whole number");
  EXPECT_THAT(ErrorOf("{\"prompt\": \"a\xff\"}"), HasSubstr("p.jsonl:1"));
}

TEST(ParsePromptsTest, RefusesBadLimits) {
  for (const char* value : {"0", "-1", "1.5", "\"5\"", "4294967296", "null"}) {
    EXPECT_THAT(ErrorOf(std::string("{\"prompt\": \"a\", \"max_tokens\": ") +
                        value + "}"),
                HasSubstr("not a whole number > 0"))
        << value;
  }
}

TEST(ParsePromptsTest, RefusesAFileWithoutPrompts) {
  EXPECT_EQ(ErrorOf(""), "p.jsonl has no prompt");
  EXPECT_EQ(ErrorOf("\n  \n"), "p.jsonl has no prompt");
}

TEST(TemporaryFolderTest, IsGoneAtTheEnd) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    std::ofstream(path + "/file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace nacre::tools
