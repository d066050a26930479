#include "worker/process/own_draft_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/process/options.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

TEST(OwnDraftKindsTest, EachHasItsFlag) {
  EXPECT_GE(OwnDraftKinds().size(), 3u);
  for (const OwnDraftKind& kind : OwnDraftKinds()) {
    OwnDraftFlags own;
    FlagSet flags("nacre-x", "does x");
    own.Register(&flags);
    EXPECT_EQ(own.kind(), nullptr);
    ASSERT_TRUE(
        flags.Parse({absl::StrCat("--", kind.flag, "=d")}, nullptr).ok());
    EXPECT_EQ(own.kind(), &kind);
    EXPECT_EQ(own.path(), "d");
    EXPECT_TRUE(own.Validate().ok()) << own.Validate();
  }
}

TEST(OwnDraftKindsTest, AnyTwoExcludeEachOther) {
  for (size_t i = 0; i < OwnDraftKinds().size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      OwnDraftFlags own;
      own.paths[i] = own.paths[k] = "d";
      EXPECT_THAT(std::string(own.Validate().message()),
                  HasSubstr(absl::StrCat("--", OwnDraftKinds()[i].flag)));
    }
  }
}

}  // namespace
}  // namespace nacre::worker
