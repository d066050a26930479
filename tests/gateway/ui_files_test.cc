#include "gateway/ui_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "gateway/ui_content.h"

namespace nacre::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string HeaderOf(const UiFile& file, const std::string& name) {
  for (const auto& [key, value] : UiHeaders(file)) {
    if (key == name) return value;
  }
  return "";
}

TEST(UiFilesTest, AllFilesAreInTheProgramAsTheyAre) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("gateway/ui")) {
    const std::string name = entry.path().filename();
    const UiFile* const file = FindUiFile("/ui/" + name);
    ASSERT_NE(file, nullptr) << name;
    EXPECT_TRUE(std::string(file->content.data(), file->content.size()) ==
                *ReadFile(entry.path()))
        << name;
    ++count;
  }
  EXPECT_EQ(UiContent().size(), count);
  EXPECT_EQ(FindUiFile("/"), FindUiFile("/ui/index.html"));
}

TEST(UiFilesTest, NothingElseIsThere) {
  for (const char* path :
       {"", "/ui", "/ui/", "/ui/none.js", "/ui/../app.js", "/ui//app.js",
        "/index.html", "ui/app.js", "/ui/app.js/"}) {
    EXPECT_EQ(FindUiFile(path), nullptr) << path;
  }
}

TEST(UiFilesTest, EachHasItsTypeAndThePolicy) {
  EXPECT_EQ(HeaderOf(*FindUiFile("/"), "Content-Type"),
            "text/html; charset=utf-8");
  EXPECT_EQ(HeaderOf(*FindUiFile("/ui/app.js"), "Content-Type"),
            "text/javascript; charset=utf-8");
  EXPECT_EQ(HeaderOf(*FindUiFile("/ui/style.css"), "Content-Type"),
            "text/css; charset=utf-8");
  EXPECT_EQ(HeaderOf(*FindUiFile("/ui/icon.svg"), "Content-Type"),
            "image/svg+xml");
  for (const UiFile& file : UiContent()) {
    const std::string policy = HeaderOf(file, "Content-Security-Policy");
    EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'self'; "));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(policy, Not(HasSubstr("http")));
    EXPECT_EQ(HeaderOf(file, "X-Frame-Options"), "DENY");
  }
}

// What the policy would stop, and what would make texts to markup.
TEST(UiFilesTest, NoFileTakesFromElsewhereOrWritesMarkup) {
  const std::regex inline_code(R"(<script(?![^>]* src=)|\son\w+=|\sstyle=)");
  for (const UiFile& file : UiContent()) {
    const std::string text(file.content.data(), file.content.size());
    if (file.name == "index.html") {
      EXPECT_FALSE(std::regex_search(text, inline_code));
    }
    if (file.name != "icon.svg") {  // it names its namespace
      EXPECT_FALSE(absl::StrContains(text, "://")) << file.name;
    }
    for (const char* word :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
          "eval(", "new Function", "DOMParser", "srcdoc", "import("}) {
      EXPECT_FALSE(absl::StrContains(text, word)) << file.name << " " << word;
    }
  }
}

}  // namespace
}  // namespace nacre::gateway
