#include "common/rpc/bearer_tokens.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/certificates.h"

namespace nacre::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::WriteFileAtomically;

constexpr char kAlice[] = "alice-secret-0123456789";
constexpr char kBob[] = "bob-secret-0123456789";

TEST(ParseTokensTest, NamesTokensAndSkipsTheRest) {
  const auto tokens = ParseTokens(
      "# who may call\n\nalice: alice-secret-0123456789 \r\n"
      "  bob-secret-0123456789");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 2u);
  EXPECT_EQ((*tokens)[0].name, "alice");
  EXPECT_EQ((*tokens)[0].token, kAlice);
  EXPECT_EQ((*tokens)[1].token, kBob);
  // Stable, and nothing of the token.
  EXPECT_THAT((*tokens)[1].name, ::testing::MatchesRegex("token-[0-9a-f]{8}"));
}

TEST(ParseTokensTest, ErrorsNameTheLineAndNotTheToken) {
  const auto error = [](const std::string& text) {
    const absl::Status status = ParseTokens(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
    return std::string(status.message());
  };
  EXPECT_EQ(error("# nothing\n"), "there is no token");
  EXPECT_EQ(error("a:secret"),
            "line 1: the token has 6 bytes, must have at least 16");
  EXPECT_EQ(error("a:secret-90123456"),
            "line 1: the token has 15 bytes, must have at least 16");
  EXPECT_TRUE(ParseTokens("a:secret-901234567").ok());
  EXPECT_EQ(error("\n:bob-secret-0123456789"), "line 2: the name is empty");
  EXPECT_EQ(error("a:bob secret-0123456789"),
            "line 1: the token has characters other than ! to ~");
  EXPECT_EQ(error("a:bob-secret-0123456789\nb:bob-secret-0123456789"),
            "line 2: the token is there twice");
}

// What was logged so far, for any thread.
class MemorySink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string text() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    text_.append(message.payload.data(), message.payload.size());
    text_ += '\n';
  }
  void flush_() override {}

  std::string text_;
};

class BearerTokensTest : public ::testing::Test {
 protected:
  BearerTokensTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log_));
    std::filesystem::create_directories(folder_);
    WriteFileAtomically(path_, "alice:alice-secret-0123456789\n");
  }
  ~BearerTokensTest() override {
    spdlog::set_default_logger(old_logger_);
    std::filesystem::remove_all(folder_);
  }

  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

  bool LogHas(const std::string& text) {
    return Eventually(
        [&] { return log_->text().find(text) != std::string::npos; });
  }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_tokens_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/tokens";
  const std::shared_ptr<MemorySink> log_ = std::make_shared<MemorySink>();
  const std::shared_ptr<spdlog::logger> old_logger_ = spdlog::default_logger();
};

TEST_F(BearerTokensTest, FindsWhoHoldsAToken) {
  const auto tokens = BearerTokens::Load(path_);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ((*tokens)->Find(kAlice), "alice");
  EXPECT_EQ((*tokens)->Find(kBob), absl::nullopt);
  EXPECT_EQ((*tokens)->Find(""), absl::nullopt);
  EXPECT_EQ((*tokens)->Find("alice-secret-012345678"), absl::nullopt);
  EXPECT_EQ((*tokens)->Find("alice:alice-secret-0123456789"), absl::nullopt);
}

TEST_F(BearerTokensTest, AChangedFileCountsFromThenOn) {
  auto tokens = BearerTokens::Load(path_, absl::Milliseconds(1));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  WriteFileAtomically(path_, "bob:bob-secret-0123456789\n");
  EXPECT_TRUE(Eventually([&] { return (*tokens)->Find(kBob) == "bob"; }));
  EXPECT_EQ((*tokens)->Find(kAlice), absl::nullopt);
}

// Times of change differ in their nanoseconds only.
TEST_F(BearerTokensTest, AFileRewrittenWithinASecondCounts) {
  constexpr char kCarol[] = "carol-secret-012345678";
  constexpr char kDavid[] = "david-secret-012345678";
  constexpr char kErin[] = "erin-secret-0123456789";
  const time_t second = absl::ToTimeT(absl::Now());
  const auto set_time = [&](const std::string& path, long nanoseconds) {
    const timespec times[2] = {{second, nanoseconds}, {second, nanoseconds}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  auto tokens = BearerTokens::Load(path_, absl::Milliseconds(1));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  WriteFileAtomically(path_ + ".new", absl::StrCat(kCarol, "\n"));
  set_time(path_ + ".new", 1000);
  std::filesystem::rename(path_ + ".new", path_);
  ASSERT_TRUE(Eventually([&] { return (*tokens)->Find(kCarol).has_value(); }));
  std::fstream(path_, std::ios::in | std::ios::out) << kDavid;
  set_time(path_, 2000);
  EXPECT_TRUE(Eventually([&] { return !(*tokens)->Find(kCarol).has_value(); }));
  EXPECT_TRUE((*tokens)->Find(kDavid).has_value());
  // A copy that kept its time, of the same size.
  WriteFileAtomically(path_ + ".new", absl::StrCat(kErin, "\n"));
  set_time(path_ + ".new", 2000);
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_TRUE(Eventually([&] { return !(*tokens)->Find(kDavid).has_value(); }));
  EXPECT_TRUE((*tokens)->Find(kErin).has_value());
}

TEST_F(BearerTokensTest, ABadFileLeavesTheOldTokensAndNoSecretInTheLog) {
  auto tokens = BearerTokens::Load(path_, absl::Milliseconds(1));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  WriteFileAtomically(path_, "bob:bob secret 0123456789\n");
  EXPECT_TRUE(LogHas("the old tokens stay: " + path_ + ": line 1"));
  EXPECT_EQ((*tokens)->Find(kAlice), "alice");
  std::filesystem::remove(path_);
  EXPECT_TRUE(LogHas("the old tokens stay: cannot read"));
  EXPECT_EQ((*tokens)->Find(kAlice), "alice");
  WriteFileAtomically(path_, "bob:bob-secret-0123456789\n");
  EXPECT_TRUE(Eventually([&] { return (*tokens)->Find(kBob) == "bob"; }));
  EXPECT_TRUE(LogHas("new tokens from " + path_));
  EXPECT_THAT(log_->text(), Not(HasSubstr("secret")));
}

TEST_F(BearerTokensTest, WarnsOfAFileThatOthersMayRead) {
  chmod(path_.c_str(), 0644);
  auto tokens = BearerTokens::Load(path_);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(log_->text(), HasSubstr(path_ + " has mode 0644"));
}

TEST_F(BearerTokensTest, AMissingFileIsAnError) {
  const absl::Status status = BearerTokens::Load(folder_ + "/none").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/none"));
}

}  // namespace
}  // namespace nacre::rpc
