#include "kernels/node_texts.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/node_network.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

// What each node has then.
std::vector<Texts> Exchanged(const Texts& own) {
  NodeNetwork network(static_cast<int>(own.size()));
  std::vector<Texts> all(own.size());
  OnEveryRank(static_cast<int>(own.size()), [&](int number) {
    const auto node = static_cast<size_t>(number);
    auto texts = ExchangeTexts(network.link(number), 1, own[node]);
    ASSERT_TRUE(texts.ok()) << texts.status();
    all[node] = *std::move(texts);
  });
  return all;
}

TEST(NodeTextsTest, EveryNodeGetsThoseOfAll) {
  for (const Texts& own :
       {Texts{"one", ""}, Texts{"", std::string("\0\xff\x7f", 3), "c", "d"},
        Texts{"0", "1", "2", "3", "4", "5", "6", "7"}}) {
    EXPECT_EQ(Exchanged(own), std::vector<Texts>(own.size(), own));
  }
}

TEST(NodeTextsTest, LongOnesAreCut) {
  const std::string fits(kMostTextBytes, 'a');
  EXPECT_EQ(Exchanged({fits + "b", "c"})[1], (Texts{fits, "c"}));
  EXPECT_EQ(Exchanged({fits, "c"})[1], (Texts{fits, "c"}));
}

TEST(NodeTextsTest, ANodeThatIsElsewhereIsNamed) {
  NodeNetwork network(2);
  const std::vector<float> values(8);
  network.Plant(1, 0, {1, NodeCall::Kind::kGather, 8}, values);
  EXPECT_THAT(ExchangeTexts(network.link(0), 2, "").status().ToString(),
              HasSubstr("node 1 is at call 1, a gather of 8 values, expected "
                        "call 2, a text of 256 values"));
}

// One that is out of its mind.
TEST(NodeTextsTest, ALengthThatCannotBeIsNotRead) {
  NodeNetwork network(2);
  std::vector<float> values(256, 1.5f);
  network.Plant(1, 0, {1, NodeCall::Kind::kText, values.size()}, values);
  const auto texts = ExchangeTexts(network.link(0), 1, "");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ((*texts)[1].size(), kMostTextBytes);
}

TEST(NodeTextsTest, ALostNodeIsTheError) {
  NodeNetwork network(2);
  const absl::Status reason = absl::UnavailableError("node 1 is lost");
  network.Lose(reason);
  for (const int node : {0, 1}) {
    EXPECT_EQ(ExchangeTexts(network.link(node), 1, "").status(), reason);
  }
}

}  // namespace
}  // namespace nacre::kernels
