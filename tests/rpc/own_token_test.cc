#include "common/rpc/own_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/testing/certificates.h"

namespace nacre::rpc {
namespace {

using ::testing::HasSubstr;
using testing::WriteFileAtomically;

class OwnTokenTest : public ::testing::Test {
 protected:
  OwnTokenTest() {
    std::filesystem::create_directories(folder_);
    WriteFileAtomically(
        path_, "gateway:gateway-secret-0123456789\nb-secret-0123456789\n");
  }
  ~OwnTokenTest() override { std::filesystem::remove_all(folder_); }

  static bool Becomes(const OwnToken& own, const std::string& token) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (own.token() != token) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_own_token_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/token";
};

TEST_F(OwnTokenTest, IsTheFirstOfItsFileAndFollowsIt) {
  const auto own = OwnToken::Load(path_, absl::Milliseconds(1));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)->token(), "gateway-secret-0123456789");
  WriteFileAtomically(path_, "next-secret-0123456789\n");
  EXPECT_TRUE(Becomes(**own, "next-secret-0123456789"));
  std::filesystem::remove(path_);
  WriteFileAtomically(path_, "short\n");
  WriteFileAtomically(path_, "last-secret-0123456789\n");
  EXPECT_TRUE(Becomes(**own, "last-secret-0123456789"));
}

TEST_F(OwnTokenTest, ABadFileIsAnErrorAtTheStart) {
  WriteFileAtomically(path_, "short\n");
  EXPECT_THAT(std::string(OwnToken::Load(path_).status().message()),
              HasSubstr(path_ + ": line 1"));
  EXPECT_TRUE(absl::IsNotFound(OwnToken::Load(folder_ + "/none").status()));
}

}  // namespace
}  // namespace nacre::rpc
