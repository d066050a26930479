#include "common/quoted.h"

#include <gtest/gtest.h>

#include <string>

namespace nacre {
namespace {

TEST(QuotedTest, ShowsAllOfAShortText) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted(std::string(64, 'x')), "\"" + std::string(64, 'x') + "\"");
}

TEST(QuotedTest, ShowsTheBeginningAndTheSizeOfALongOne) {
  EXPECT_EQ(Quoted(std::string(20480, 'x')),
            "\"" + std::string(64, 'x') + "...\" of 20480 bytes");
}

TEST(QuotedTest, CutsNoCharacter) {
  const std::string text = std::string(63, 'x') + "\xe2\x96\x81";
  EXPECT_EQ(Quoted(text), "\"" + std::string(63, 'x') + "...\" of 66 bytes");
}

}  // namespace
}  // namespace nacre
