#include "chat/load_chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/files.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::chat {
namespace {

class LoadChatTemplate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/chat_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, text).ok());
  }
  std::string Load(bool tools = false, const std::string& file = "") {
    const auto loaded = LoadChatTemplates({.model_dir = folder_, .file = file},
                                          {.eos_token = "<default>"});
    if (!loaded.ok()) return loaded.status().ToString();
    if (!loaded->has_value()) return "none";
    return *(*loaded)->For(tools).Render(nlohmann::ordered_json::array());
  }

  std::string folder_;
};

TEST_F(LoadChatTemplate, TakesTheFirstSource) {
  EXPECT_EQ(Load(), "none");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Load(), "config");
  Write("chat_template.jinja", "folder");
  EXPECT_EQ(Load(), "folder");
  Write("given.jinja", "given");
  EXPECT_EQ(Load(false, folder_ + "/given.jinja"), "given");
}

TEST_F(LoadChatTemplate, AGivenFileMustBeThere) {
  Write("chat_template.jinja", "folder");
  const std::string missing = folder_ + "/missing.jinja";
  EXPECT_EQ(Load(false, missing),
            "NOT_FOUND: " + missing + ": the chat template cannot be read");
}

TEST_F(LoadChatTemplate, AnotherConfigMayBeNamed) {
  Write("tokenizer_config.json", R"({"chat_template": "folder"})");
  Write("other.json", R"({"chat_template": "other"})");
  const auto loaded = LoadChatTemplates(
      {.model_dir = folder_, .tokenizer_config = folder_ + "/other.json"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->source(), "other");
  EXPECT_EQ(LoadChatTemplates({.model_dir = folder_,
                               .tokenizer_config = folder_ + "/missing"})
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LoadChatTemplate, NamedTemplates) {
  Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(Load(), "plain");
  EXPECT_EQ(Load(true), "tools");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(Load().find("has no template with the name \"default\""),
            std::string::npos);
}

TEST_F(LoadChatTemplate, NamedTokens) {
  Write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ unk_token }}");
  Write("tokenizer_config.json",
        R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}})");
  Write("special_tokens_map.json",
        R"({"bos_token": "not this", "unk_token": {"content": "<u>"}})");
  EXPECT_EQ(Load(), "<b><e><u>");
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Load(), "not this<default><u>");
}

TEST_F(LoadChatTemplate, AGgufFileHasItsOwn) {
  nacre::gguf::GgufWriter writer;
  const auto load = [&](bool tools, const std::string& file = "") {
    folder_ += "/model.gguf";
    std::ofstream(folder_, std::ios::binary) << writer.Bytes();
    const std::string text = Load(tools, file);
    folder_.resize(folder_.size() - 11);
    return text;
  };
  EXPECT_EQ(load(false), "none");
  writer.String("tokenizer.chat_template", "{{ eos_token }}");
  EXPECT_EQ(load(true), "<default>");
  writer.String("tokenizer.chat_template.tool_use", "tools");
  EXPECT_EQ(load(true), "tools");
  EXPECT_EQ(load(false), "<default>");
  Write("given.jinja", "given");
  EXPECT_EQ(load(false, folder_ + "/given.jinja"), "given");
  writer.version = 9;
  EXPECT_NE(load(false).find("model.gguf: GGUF version 9"), std::string::npos);
  writer = {};
  writer.U32("tokenizer.chat_template", 3);
  EXPECT_NE(load(false).find(
                "model.gguf: metadata tokenizer.chat_template is uint32"),
            std::string::npos);
}

TEST_F(LoadChatTemplate, BadFilesAreNamed) {
  Write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_NE(Load().find("tokenizer_config.json: chat_template is number"),
            std::string::npos)
      << Load();
  Write("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_NE(Load().find("tokenizer_config.json: bos_token"), std::string::npos);
  Write("tokenizer_config.json", "{");
  EXPECT_EQ(Load().substr(0, 16), "INVALID_ARGUMENT");
  Write("tokenizer_config.json", "{}");
  Write("chat_template.jinja", "{{ x | urlize }}");
  EXPECT_NE(
      Load().find("chat_template.jinja: chat template: line 1: the filter "
                  "'urlize' is not supported"),
      std::string::npos)
      << Load();
}

}  // namespace
}  // namespace nacre::chat
