#include "tools/simulate/match_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace nacre::tools {
namespace {

using simulation::MatchTrace;
using speculation::kBeyond;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseMatchTracesTest, ReadsMatchesAndLengths) {
  const auto traces = ParseMatchTraces("t.jsonl", R"({"matches": [1, 0, true]}

{"id": 7, "accepted_lengths": [2, 0, 1]}
)");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  EXPECT_THAT(*(*traces)[0], ElementsAre(true, false, true));
  EXPECT_THAT(*(*traces)[1],
              ElementsAre(true, true, false, false, true, false));
}

TEST(MatchTraceLineTest, IsReadBack) {
  const MatchTrace trace = {
      {1, {0, -0.5f, -1.25f}}, {kBeyond, {0}}, {3, {0, -0.062f, -0.062f, -9}}};
  const std::string line = MatchTraceLine("p\n0", trace);
  EXPECT_EQ(line,
            R"({"id":"p\n0","version":2,"ranks":[1,0,3],)"
            R"("scores":[[0.0,-0.5,-1.25],[0.0],[0.0,-0.062,-0.062,-9.0]]})");
  const auto traces = ParseMatchTraces("t.jsonl", line + "\n" + line + "\n");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  EXPECT_EQ(*(*traces)[1], trace);
}

// A draft that draws on its device shows no candidates.
TEST(MatchTraceLineTest, HasScoresOnlyWhereAllPositionsDo) {
  EXPECT_EQ(MatchTraceLine("a", {true, false}),
            R"({"id":"a","version":2,"ranks":[1,0]})");
  EXPECT_EQ(MatchTraceLine("a", {{1, {0, -1}}, false}),
            R"({"id":"a","version":2,"ranks":[1,0]})");
}

// Their probabilities are those of the ranks.
TEST(ParseMatchTracesTest, RanksWithoutScoresGetThoseOfTheirFrequencies) {
  const auto traces =
      ParseMatchTraces("t.jsonl", R"({"ranks": [1, 1, 1, 2, 2, 1, 3, 0]})");
  ASSERT_TRUE(traces.ok()) << traces.status();
  const MatchTrace& trace = *(*traces)[0];
  std::vector<int> ranks;
  for (const simulation::Guess& guess : trace) {
    ranks.push_back(guess.rank);
    EXPECT_EQ(guess.scores, trace[0].scores);
  }
  EXPECT_THAT(ranks, ElementsAre(1, 1, 1, 2, 2, 1, 3, kBeyond));
  const auto probability = [&trace](int rank) {
    return std::exp(trace[0].scores[rank - 1] /
                    speculation::ScoreCalibration::kPriorTau);
  };
  EXPECT_NEAR(probability(2), 2.0 / 4, 1e-6);
  EXPECT_NEAR(probability(3), 1.0 / 4, 1e-6);
  EXPECT_LT(probability(4), 1e-4);
}

TEST(ParseMatchTracesTest, TracesOfMatchesKnowNoScores) {
  const auto traces = ParseMatchTraces("t.jsonl", R"({"matches": [1, 0]})");
  ASSERT_TRUE(traces.ok()) << traces.status();
  EXPECT_EQ((*traces)[0]->at(0), simulation::Guess(1, {}));
  EXPECT_EQ((*traces)[0]->at(1), simulation::Guess(kBeyond, {}));
}

TEST(ParseMatchTracesTest, RefusesBadRanks) {
  const auto error = [](const char* text) {
    return std::string(ParseMatchTraces("t.jsonl", text).status().message());
  };
  EXPECT_THAT(error(R"({"ranks": [9]})"),
              HasSubstr("\"ranks\": entry 1 is 9, not in 0..8"));
  EXPECT_THAT(error(R"({"ranks": [1], "matches": [1]})"),
              HasSubstr("needs one of \"ranks\", \"matches\""));
  EXPECT_THAT(error(R"({"ranks": [1], "version": 3})"),
              HasSubstr("version 3 is not 2"));
  EXPECT_THAT(error(R"({"ranks": [1], "scores": [[0], [0]]})"),
              HasSubstr("\"scores\" is not an array of 1 entries"));
  EXPECT_THAT(error(R"({"ranks": [1], "scores": [[]]})"),
              HasSubstr("entry 1 is not an array of 1..8 scores"));
  EXPECT_THAT(error(R"({"ranks": [1], "scores": [[0,0,0,0,0,0,0,0,0]]})"),
              HasSubstr("entry 1 is not an array of 1..8 scores"));
  for (const char* scores :
       {"[1]", "[-1]", "[0,-1,-0.5]", "[0,-2e6]", "[\"x\"]", "[0,null]"}) {
    const std::string text =
        std::string(R"({"ranks": [1], "scores": [)") + scores + "]}";
    EXPECT_THAT(error(text.c_str()), HasSubstr("scores fall from 0 to -1e+06"))
        << scores;
  }
  EXPECT_THAT(error(R"({"ranks": [3], "scores": [[0, -1]]})"),
              HasSubstr("\"ranks\": entry 1 is 3, and it has 2 scores"));
}

TEST(ParseMatchTracesTest, RefusesBadLines) {
  const auto error = [](const char* text) {
    return std::string(ParseMatchTraces("t.jsonl", text).status().message());
  };
  EXPECT_THAT(error("\n"), HasSubstr("t.jsonl has no line"));
  EXPECT_THAT(error("{\"matches\": [1]}\n[1]"),
              HasSubstr("t.jsonl:2: not a JSON object"));
  EXPECT_THAT(error("{\"prompt\": \"x\"}"), HasSubstr("needs one of"));
  EXPECT_THAT(error(R"({"matches": [1], "accepted_lengths": [1]})"),
              HasSubstr("needs one of"));
  EXPECT_THAT(error(R"({"matches": []})"), HasSubstr("not an array"));
  EXPECT_THAT(error(R"({"matches": 1})"), HasSubstr("not an array"));
  EXPECT_THAT(error(R"({"matches": [1, 2]})"),
              HasSubstr("\"matches\": entry 2 is 2, not in 0..1"));
  EXPECT_THAT(error(R"({"matches": [0.5]})"), HasSubstr("is 0.5, not in 0..1"));
  EXPECT_THAT(error(R"({"accepted_lengths": [-1]})"),
              HasSubstr("entry 1 is -1, not in 0..1000000"));
  EXPECT_THAT(error(R"({"accepted_lengths": [1000001]})"),
              HasSubstr("is 1000001, not in 0..1000000"));
  std::string many = "{\"accepted_lengths\": [";
  for (int i = 0; i < 10; ++i) many += "1000000,";
  EXPECT_THAT(error((many + "1]}").c_str()),
              HasSubstr("more than 10000000 tokens"));
}

}  // namespace
}  // namespace nacre::tools
