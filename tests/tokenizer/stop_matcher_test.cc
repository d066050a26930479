#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace nacre::tokenizer {
namespace {

struct Expected {
  std::string text;
  std::optional<std::string> matched;
};

// Tries every end, the longest stop string first.
Expected BruteForce(const std::string& text,
                    const std::vector<std::string>& stops, bool include_stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (stop.empty() || stop.size() > end) continue;
      if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (best == nullptr || stop.size() > best->size()) best = &stop;
    }
    if (best == nullptr) continue;
    return {text.substr(0, include_stop ? end : end - best->size()), *best};
  }
  return {text, std::nullopt};
}

// Whether a longer text may turn the end of `shown` into a stop string.
bool EndsInPrefix(const std::string& shown,
                  const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    for (size_t size = 1; size < stop.size() && size <= shown.size(); ++size) {
      if (shown.compare(shown.size() - size, size, stop, 0, size) == 0) {
        return true;
      }
    }
  }
  return false;
}

TEST(StopMatcherTest, EqualsBruteForceOnRandomTexts) {
  std::mt19937 random(3);
  const auto random_string = [&](size_t longest) {
    std::string text(random() % (longest + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = random_string(6);
    const std::string text = random_string(24);
    const bool include_stop = random() % 2 == 0;
    const Expected expected = BruteForce(text, stops, include_stop);

    StopMatcher matcher(stops, include_stop);
    std::string shown;
    std::optional<std::string> matched;
    for (size_t i = 0; i < text.size();) {
      const size_t size = 1 + random() % 4;
      const StopMatcher::Result result = matcher.Push(text.substr(i, size));
      shown += result.emit;
      i += size;
      if (result.matched) {
        ASSERT_FALSE(matched.has_value());
        matched = result.matched;
      } else if (!matched) {
        // As little as possible is held back, and never too little.
        ASSERT_EQ(text.compare(0, shown.size(), shown), 0);
        const std::string held =
            text.substr(shown.size(), std::min(i, text.size()) - shown.size());
        if (!held.empty()) {
          ASSERT_TRUE(EndsInPrefix(held, stops));
        }
      }
    }
    shown += matcher.Flush();
    ASSERT_EQ(shown, expected.text) << text;
    ASSERT_EQ(matched, expected.matched) << text;
    matches += matched.has_value();
  }
  EXPECT_GT(matches, 2'000);
}

TEST(StopMatcherTest, HoldsBackTheBeginningOfAStopString) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.Push("text </").emit, "text ");
  EXPECT_EQ(matcher.Push("en").emit, "");
  EXPECT_EQ(matcher.Push("try></e").emit, "</entry>");
  const StopMatcher::Result result = matcher.Push("nd> more");
  EXPECT_EQ(result.emit, "");
  EXPECT_EQ(result.matched, "</end>");
  EXPECT_EQ(matcher.Push("ignored").emit, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, FirstToCompleteWinsThenTheLongest) {
  StopMatcher first({"abcd", "bc"});
  StopMatcher::Result result = first.Push("xabcd");
  EXPECT_EQ(result.emit, "xa");
  EXPECT_EQ(result.matched, "bc");

  StopMatcher longest({"bc", "abc"});
  result = longest.Push("xabcd");
  EXPECT_EQ(result.emit, "x");
  EXPECT_EQ(result.matched, "abc");
}

TEST(StopMatcherTest, IncludesTheStopStringOnRequest) {
  StopMatcher matcher({"\n\n"}, /*include_stop=*/true);
  EXPECT_EQ(matcher.Push("a\n").emit, "a");
  const StopMatcher::Result result = matcher.Push("\nb");
  EXPECT_EQ(result.emit, "\n\n");
  EXPECT_EQ(result.matched, "\n\n");
}

TEST(StopMatcherTest, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.Push("abc").emit, "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace nacre::tokenizer
