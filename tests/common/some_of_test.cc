#include "common/some_of.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace nacre {
namespace {

TEST(SomeOfTest, SaysHowManyItLeavesOut) {
  EXPECT_EQ(SomeOf({}, ", "), "");
  EXPECT_EQ(SomeOf({"b", "a"}, ", "), "a, b");
  std::set<std::string> names = {"a", "b", "c", "d", "e", "f", "g", "h"};
  EXPECT_EQ(SomeOf(names, " "), "a b c d e f g h");
  names.insert({"i", "j"});
  EXPECT_EQ(SomeOf(names, " "), "a b c d e f g h and 2 more");
}

}  // namespace
}  // namespace nacre
