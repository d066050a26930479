#include "speculation/suffix_index.h"

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using ::testing::ElementsAre;

constexpr TextOwner kAlice = {1, 2};
constexpr TextOwner kBob = {1, 3};

struct Found {
  std::vector<int32_t> next;
  int match = 0;
  bool operator==(const Found&) const = default;
};

std::vector<Found> Find(const SuffixIndex& index, const TextOwner& owner,
                        const std::vector<int32_t>& context, int max_next) {
  std::vector<SuffixIndex::Occurrence> occurrences;
  index.Find(owner, context, max_next, &occurrences);
  std::vector<Found> found;
  for (const auto& one : occurrences) {
    found.push_back({{one.next.begin(), one.next.end()}, one.match});
  }
  return found;
}

// All texts in a list, newest last; looked through from the newest position.
struct Reference {
  struct Text {
    TextOwner owner;
    std::vector<int32_t> ids;
  };
  std::deque<Text> texts;

  static int Match(const Text& text, size_t end,
                   const std::vector<int32_t>& context) {
    int match = 0;
    while (match < SuffixIndex::kMaxMatch && end > static_cast<size_t>(match) &&
           context.size() > static_cast<size_t>(match) &&
           text.ids[end - 1 - static_cast<size_t>(match)] ==
               context[context.size() - 1 - static_cast<size_t>(match)]) {
      ++match;
    }
    return match;
  }

  std::vector<Found> Find(const TextOwner& owner,
                          const std::vector<int32_t>& context,
                          size_t max_next) const {
    for (const int least : {8, 4, 2}) {
      std::vector<Found> all;
      for (auto text = texts.rbegin(); text != texts.rend(); ++text) {
        if (text->owner != owner) continue;
        for (size_t end = text->ids.size() - 1; end > 0; --end) {
          const int match = Match(*text, end, context);
          if (match < least) continue;
          const auto next = text->ids.begin() + static_cast<long>(end);
          const size_t count = std::min(max_next, text->ids.size() - end);
          all.push_back({{next, next + static_cast<long>(count)}, match});
        }
      }
      if (all.empty()) continue;
      if (all.size() > SuffixIndex::kMaxOccurrences) {
        all.resize(SuffixIndex::kMaxOccurrences);
      }
      int longest = 0;
      for (const Found& one : all) longest = std::max(longest, one.match);
      std::erase_if(all, [&](const Found& f) { return f.match < longest; });
      return all;
    }
    return {};
  }
};

TEST(SuffixIndexTest, FindsTheLongestMatchNewestFirst) {
  SuffixIndex index(64);
  index.Add(kAlice, std::vector<int32_t>{1, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3, 6});
  EXPECT_THAT(Find(index, kAlice, {7, 2, 3}, 2),
              ElementsAre(Found{{6}, 2}, Found{{5, 8}, 2}, Found{{4, 9}, 2}));
  EXPECT_THAT(Find(index, kAlice, {8, 2, 3}, 2), ElementsAre(Found{{6}, 3}));
  EXPECT_THAT(Find(index, kAlice, {3, 6}, 2), ElementsAre()) << "at its end";
  EXPECT_THAT(Find(index, kAlice, {7, 3}, 2), ElementsAre());
  EXPECT_THAT(Find(index, kAlice, {3}, 2), ElementsAre()) << "too short";
  EXPECT_THAT(Find(index, kAlice, {}, 2), ElementsAre());
  EXPECT_THAT(Find(index, kAlice, {2, 3}, 0), ElementsAre());
}

TEST(SuffixIndexTest, TextsOfOthersAreNotFound) {
  SuffixIndex index(64);
  index.Add(kAlice, std::vector<int32_t>{1, 2, 3, 4});
  index.Add(kBob, std::vector<int32_t>{1, 2, 3, 5});
  EXPECT_THAT(Find(index, kAlice, {1, 2, 3}, 1), ElementsAre(Found{{4}, 3}));
  EXPECT_THAT(Find(index, kBob, {1, 2, 3}, 1), ElementsAre(Found{{5}, 3}));
  EXPECT_THAT(Find(index, {1, 4}, {1, 2, 3}, 1), ElementsAre());
}

TEST(SuffixIndexTest, NoMatchRunsAcrossTexts) {
  SuffixIndex index(64);
  index.Add(kAlice, std::vector<int32_t>{1, 2});
  index.Add(kAlice, std::vector<int32_t>{3, 4, 5});
  EXPECT_THAT(Find(index, kAlice, {2, 3}, 4), ElementsAre());
  EXPECT_THAT(Find(index, kAlice, {2, 3, 4}, 4), ElementsAre(Found{{5}, 2}));
}

TEST(SuffixIndexTest, TheOldestTextsMakeRoom) {
  SuffixIndex index(8);
  index.Add(kAlice, std::vector<int32_t>{1, 1, 1});
  index.Add(kAlice, std::vector<int32_t>{2, 2, 2});
  index.Add(kAlice, std::vector<int32_t>{3, 3, 3});  // not in the last 2
  EXPECT_EQ(index.num_texts(), 2);
  EXPECT_THAT(Find(index, kAlice, {1, 1}, 1), ElementsAre());
  EXPECT_THAT(Find(index, kAlice, {2, 2}, 1), ElementsAre(Found{{2}, 2}));
  EXPECT_THAT(Find(index, kAlice, {3, 3}, 1), ElementsAre(Found{{3}, 2}));
  index.Add(kBob, std::vector<int32_t>{4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  EXPECT_EQ(index.num_texts(), 1);
  EXPECT_THAT(Find(index, kAlice, {2, 2}, 1), ElementsAre());
  EXPECT_THAT(Find(index, kBob, {5, 6, 7}, 1), ElementsAre(Found{{8}, 2}))
      << "of a longer text the end";
}

TEST(SuffixIndexTest, ATextMayGrow) {
  SuffixIndex index(6);
  index.Begin(kAlice, 6);
  index.Append(std::vector<int32_t>{1, 2, 3});
  EXPECT_THAT(Find(index, kAlice, {1, 2}, 4), ElementsAre(Found{{3}, 2}));
  index.Append(std::vector<int32_t>{1, 2});
  EXPECT_THAT(Find(index, kAlice, {1, 2, 3, 1, 2}, 4),
              ElementsAre(Found{{3, 1, 2}, 2}));
}

// Any order of texts that begin, grow and fall out: the same as the reference.
TEST(SuffixIndexTest, EqualsTheReference) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) {
      return static_cast<int>(random() % n);
    };
    const int vocab = 2 + below(6);
    SuffixIndex index(20 + below(200));
    Reference reference;
    for (int turn = 0; turn < 60; ++turn) {
      const TextOwner owner = below(2) == 0 ? kAlice : kBob;
      std::vector<int32_t> ids(1 + static_cast<size_t>(below(20)));
      for (int32_t& id : ids) id = below(static_cast<uint32_t>(vocab));
      if (!reference.texts.empty() && below(3) == 0) {  // a copy
        ids = reference.texts.back().ids;
        ids.push_back(below(static_cast<uint32_t>(vocab)));
        ids.resize(std::min<size_t>(ids.size(), 20));
      }
      index.Begin(owner, static_cast<int64_t>(ids.size()));
      reference.texts.push_back({owner, {}});
      for (const int32_t id : ids) {
        index.Append({&id, 1});
        std::vector<int32_t>& grown = reference.texts.back().ids;
        grown.push_back(id);
        while (static_cast<int64_t>(reference.texts.size()) >
               index.num_texts()) {
          reference.texts.pop_front();
        }
        const size_t max_next = 1 + static_cast<size_t>(below(4));
        ASSERT_EQ(Find(index, owner, grown, static_cast<int>(max_next)),
                  reference.Find(owner, grown, max_next));
        ASSERT_EQ(Find(index, kBob, grown, 2), reference.Find(kBob, grown, 2));
      }
    }
    // What the last texts fill stays: only what was in the way has gone.
    int64_t kept = 0;
    for (const auto& text : reference.texts) {
      kept += static_cast<int64_t>(text.ids.size());
    }
    EXPECT_GE(kept, index.capacity() - 2 * 20);
    EXPECT_LE(kept, index.capacity());
  }
}

}  // namespace
}  // namespace nacre::speculation
