#include "tools/terminal.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace nacre::tools {
namespace {

std::string Shown(const std::string& text, bool is_tty) {
  std::ostringstream out;
  std::ostringstream err;
  Terminal terminal{out, err};
  terminal.out_is_tty = is_tty;
  terminal.Show(text);
  EXPECT_EQ(err.str(), "");
  return out.str();
}

TEST(TerminalTest, AModelCannotCommandTheTerminal) {
  constexpr char kSign[] = "\xEF\xBF\xBD";
  const std::string text = "a\tb\n\xC3\xA4\xE2\x82\xAC";
  EXPECT_EQ(Shown(text, /*is_tty=*/true), text);
  // To the screen, to its title, and as one character of C1.
  EXPECT_EQ(Shown("\x1b[2Ja", true), std::string(kSign) + "[2Ja");
  EXPECT_EQ(Shown("\x1b]0;x\x07", true), std::string(kSign) + "]0;x" + kSign);
  EXPECT_EQ(Shown("\xC2\x9B"
                  "2J",
                  true),
            std::string(kSign) + "2J");
  EXPECT_EQ(Shown("a\r\nb", true), "a\r\nb");
  EXPECT_EQ(Shown("\r\x7f\b", true), std::string(kSign) + kSign + kSign);
  EXPECT_EQ(Shown(std::string(1, '\0'), true), kSign);
  EXPECT_EQ(Shown("\xC2\xA0", true), "\xC2\xA0");
}

TEST(TerminalTest, AFileHasTheTextAsItIs) {
  EXPECT_EQ(Shown("\x1b[2J\xC2\x9B", /*is_tty=*/false), "\x1b[2J\xC2\x9B");
}

}  // namespace
}  // namespace nacre::tools
