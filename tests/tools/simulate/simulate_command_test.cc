#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tools/cluster/temporary_folder.h"
#include "tools/commands.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

Outcome Simulate(std::vector<std::string> args) {
  args.insert(args.begin(), "simulate");
  std::ostringstream out;
  std::ostringstream err;
  Outcome outcome;
  outcome.code = RunNacre(args, Terminal{out, err});
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(SimulateCommandTest, PrintsATableBesideTheLaw) {
  const Outcome outcome =
      Simulate({"--alpha=0.8", "--cost-ratio=5", "--known-alpha", "--methods",
                "ar,sd:4,pearl,async,pearl:8"});
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 8);
  EXPECT_THAT(lines[0], HasSubstr("alpha 0.8, c 5, target step 10 ms"));
  EXPECT_THAT(lines[3], MatchesRegex("ar +- +100.0 +1.00 +- .* 1.00 +.0.0%"));
  EXPECT_THAT(lines[4], MatchesRegex("sd:4 +4 .* 1.87 +.0\\.[0-9]%"));
  EXPECT_THAT(lines[5], MatchesRegex("pearl +5 .* 2.28 +.0\\.[0-9]%"));
  EXPECT_THAT(lines[6], MatchesRegex("async +64 .* 2.32 +.0\\.[0-9]%"));
  EXPECT_THAT(lines[7], MatchesRegex("pearl:8 +8 .* - +-"));
}

TEST(SimulateCommandTest, SaysNoLawWhereThereIsNone) {
  const Outcome outcome = Simulate(
      {"--alpha=0.8", "--cost-ratio=5", "--latency-us=100", "--tokens=1000"});
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 7);
  EXPECT_THAT(lines[0], HasSubstr("hops 100 to 100 us"));
  for (size_t i = 4; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], MatchesRegex(".*% +- +-"));
  }
}

TEST(SimulateCommandTest, WritesEverythingAsJson) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out.json";
  const Outcome outcome = Simulate(
      {"--alpha=0.8", "--step-times=1:10,8:12,16:20", "--cost-ratio=5",
       "--methods=async,sd:3", "--streams=4", "--drafts=2", "--targets=2",
       "--requests=2", "--tokens=200", "--prompt-tokens=100", "--latency-us=50",
       "--jitter-us=20", "--draft-latency-us=500", "--failures=draft:0@0.5+1",
       "--seed=3", "--json", path});
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["alpha"], 0.8);
  EXPECT_EQ(json["cost_ratio"], 5.0);
  EXPECT_EQ(json["target_step"].size(), 3);
  EXPECT_EQ(json["target_hop_us"], nlohmann::json({50.0, 70.0}));
  EXPECT_EQ(json["draft_hop_us"], nlohmann::json({500.0, 520.0}));
  EXPECT_EQ(json["streams"], 4);
  EXPECT_EQ(json["seed"], 3);
  ASSERT_EQ(json["methods"].size(), 2);
  const auto& async = json["methods"][0];
  EXPECT_EQ(async["name"], "async");
  EXPECT_EQ(async["requests"], 8);
  EXPECT_EQ(async["output_tokens"], 8 * 200);
  EXPECT_TRUE(async["law_speedup"].is_null());
  EXPECT_GT(async["speedup"], 1.0);
  EXPECT_GT(async["lost_drafts"], 0);
  EXPECT_GT(async["draft"]["down_s"], 0.9);
  EXPECT_NEAR(async["target"]["busy_s"].get<double>() +
                  async["target"]["wait_s"].get<double>() +
                  async["target"]["no_work_s"].get<double>(),
              2 * async["seconds"].get<double>(), 1e-6);
}

TEST(SimulateCommandTest, SaysHowManyCoordinatorsThereAreIfSeveral) {
  const std::vector<std::string> args = {"--alpha=0.8", "--cost-ratio=5",
                                         "--methods=async", "--tokens=100",
                                         "--streams=4"};
  EXPECT_THAT(Simulate(args).out, HasSubstr("targets 1.\n"));
  std::vector<std::string> several = args;
  several.emplace_back("--coordinators=2");
  const TemporaryFolder folder;
  several.push_back("--json=" + folder.path() + "/out.json");
  const Outcome outcome = Simulate(several);
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("targets 1, coordinators 2.\n"));
  std::ifstream file(folder.path() + "/out.json");
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["coordinators"], 2);
  EXPECT_EQ(json["methods"][0]["output_tokens"], 400);
}

TEST(SimulateCommandTest, ReplaysAMatchTrace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/trace.jsonl";
  ASSERT_TRUE(WriteFile(path, "{\"matches\": [1, 1, 1, 0]}\n").ok());
  const Outcome outcome = Simulate({"--match-trace", path, "--cost-ratio=5",
                                    "--methods=pearl", "--tokens=2000"});
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 recorded sequences, c 5"));
  EXPECT_THAT(outcome.out, HasSubstr(" 75.0% "));
  EXPECT_THAT(Simulate({"--match-trace", "/nowhere", "--cost-ratio=5"}).err,
              HasSubstr("cannot read /nowhere"));
  ASSERT_TRUE(WriteFile(path, "{\"matches\": [2]}\n").ok());
  EXPECT_THAT(Simulate({"--match-trace", path, "--cost-ratio=5"}).err,
              HasSubstr("trace.jsonl:1: \"matches\": entry 1 is 2"));
}

double TokensPerSecond(std::vector<std::string> args) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out.json";
  args.insert(args.end(), {"--methods=async", "--tokens=2000", "--json", path});
  const Outcome outcome = Simulate(std::move(args));
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  std::ifstream file(path);
  return nlohmann::json::parse(file)["methods"][0]["tokens_per_second"];
}

TEST(SimulateCommandTest, HasTreesAsTheServiceUnlessToldOtherwise) {
  const std::vector<std::string> base = {"--alpha=0.7", "--cost-ratio=10"};
  const auto with = [&base](const char* flag) {
    std::vector<std::string> args = base;
    args.emplace_back(flag);
    return TokensPerSecond(args);
  };
  const double chain = with("--tree=chain");
  EXPECT_EQ(with("--draft-rows=1"), chain);
  EXPECT_GT(TokensPerSecond(base), 1.2 * chain);
  EXPECT_EQ(with("--draft-rows=8"), TokensPerSecond(base));
  EXPECT_GT(TokensPerSecond(base), 1.05 * with("--tree-rows=0"));
  // No mismatch is ever of a rank.
  EXPECT_LT(with("--ranks=0"), 1.02 * chain);
  EXPECT_GT(with("--ranks=1"), TokensPerSecond(base));
}

TEST(SimulateCommandTest, ReplaysRanks) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/trace.jsonl";
  const auto replayed = [&path](const std::string& line) {
    EXPECT_TRUE(WriteFile(path, line).ok());
    return TokensPerSecond({"--match-trace", path, "--cost-ratio=10"});
  };
  const double matches = replayed("{\"matches\": [1, 1, 1, 0]}");
  const double ranks = replayed("{\"ranks\": [1, 1, 1, 2]}");
  EXPECT_GT(ranks, 1.2 * matches);
  // Where a draft is sure, it spends no rows on others: nothing is hidden.
  const double scores = replayed(
      "{\"ranks\": [1, 1, 1, 2], "
      "\"scores\": [[0, -9], [0, -9], [0, -9], [0, -0.1]]}");
  EXPECT_GT(scores, ranks);
}

TEST(SimulateCommandTest, SaysWhenNoTargetIsLeft) {
  const Outcome outcome =
      Simulate({"--alpha=0.8", "--cost-ratio=5", "--methods=async",
                "--requests=3", "--tokens=100", "--failures=target@1.5"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err,
              HasSubstr("UNAVAILABLE: ar: all targets died for good when 1 of "
                        "3 requests had ended"));
}

TEST(SimulateCommandTest, ShowsItsFlags) {
  const Outcome outcome = Simulate({"--help"});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.out, HasSubstr("--cost-ratio C"));
  EXPECT_THAT(outcome.out, HasSubstr("--match-trace FILE"));
}

TEST(SimulateCommandTest, RefusesBadFlags) {
  const auto error = [](std::vector<std::string> args) {
    const Outcome outcome = Simulate(std::move(args));
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const auto with = [&error](const char* flag) {
    return error({"--alpha=0.8", "--cost-ratio=5", flag});
  };
  EXPECT_THAT(error({}),
              HasSubstr("flag --alpha, or --match-trace, is needed"));
  EXPECT_THAT(error({"--alpha=0.8"}),
              HasSubstr("flag --cost-ratio, or --draft-step-times, is needed"));
  EXPECT_THAT(with("--match-trace=x"),
              HasSubstr("--alpha and --match-trace: give one of them"));
  EXPECT_THAT(with("--draft-step-times=1:2"),
              HasSubstr("--cost-ratio and --draft-step-times: give one"));
  EXPECT_THAT(error({"--alpha=0.8", "--cost-ratio=5", "--target-ms=5",
                     "--step-times=1:2"}),
              HasSubstr("--target-ms and --step-times: give one of them"));
  EXPECT_THAT(error({"--match-trace=x", "--cost-ratio=5", "--known-alpha"}),
              HasSubstr("flag --known-alpha needs --alpha"));
  EXPECT_THAT(error({"--alpha=1.5", "--cost-ratio=5"}),
              HasSubstr("flag --alpha: 1.5 is not in 0..1"));
  EXPECT_THAT(error({"--alpha=nan", "--cost-ratio=5"}),
              HasSubstr("flag --alpha: nan is not in 0..1"));
  EXPECT_THAT(error({"--alpha=0.8", "--cost-ratio=0"}),
              HasSubstr("flag --cost-ratio: 0 is not in 0.01..1000"));
  EXPECT_THAT(error({"--alpha=x", "--cost-ratio=5"}),
              HasSubstr("flag --alpha: \"x\" is not A"));
  EXPECT_THAT(with("--target-ms=0"), HasSubstr("0 is not in 0.01..100000"));
  EXPECT_THAT(with("--window=65"), HasSubstr("65 is not in 1..64"));
  EXPECT_THAT(with("--latency-us=-1"),
              HasSubstr("flag --latency-us: -1 is not in 0..1e+07"));
  EXPECT_THAT(with("--jitter-us=1e8"), HasSubstr("1e+08 is not in 0..1e+07"));
  EXPECT_THAT(with("--draft-latency-us=-2"),
              HasSubstr("flag --draft-latency-us: -2 is not in"));
  EXPECT_THAT(with("--streams=0"), HasSubstr("0 is not in 1..100000"));
  EXPECT_THAT(with("--drafts=-1"), HasSubstr("-1 is not in 0..2000"));
  EXPECT_THAT(with("--targets=0"), HasSubstr("0 is not in 1..1000"));
  EXPECT_THAT(with("--coordinators=0"),
              HasSubstr("flag --coordinators: 0 is not in 1..16"));
  EXPECT_THAT(with("--coordinators=17"),
              HasSubstr("flag --coordinators: 17 is not in 1..16"));
  EXPECT_THAT(with("--requests=0"), HasSubstr("0 is not in 1..1000000"));
  EXPECT_THAT(with("--tokens=0"), HasSubstr("0 is not in 1..10000000"));
  EXPECT_THAT(with("--prompt-tokens=0"), HasSubstr("0 is not in 1..1000000"));
  EXPECT_THAT(with("--step-rows=0"), HasSubstr("0 is not in 1..100000"));
  EXPECT_THAT(error({"--alpha=0.8", "--cost-ratio=5", "--streams=1000",
                     "--tokens=100001"}),
              HasSubstr("tokens are more than 100000000"));
  EXPECT_THAT(with("--methods=fast"), HasSubstr("\"fast\" is not one of"));
  EXPECT_THAT(with("--step-times=1"),
              HasSubstr("flag --step-times: \"1\": the milliseconds"));
  EXPECT_THAT(error({"--alpha=0.8", "--draft-step-times=0:1"}),
              HasSubstr("flag --draft-step-times: \"0:1\": the rows"));
  EXPECT_THAT(with("--failures=draft:1@1"),
              HasSubstr("flag --failures: \"draft:1@1\": worker"));
  EXPECT_THAT(with("--tree=eagle2"),
              HasSubstr("flag --tree: \"eagle2\" is not one of best, chain"));
  EXPECT_THAT(with("--draft-rows=0"), HasSubstr("0 is not in 1..64"));
  EXPECT_THAT(with("--draft-rows=65"), HasSubstr("65 is not in 1..64"));
  EXPECT_THAT(with("--tree-rows=-1"), HasSubstr("-1 is not in 0..64"));
  EXPECT_THAT(with("--ranks=0.5,x"),
              HasSubstr("flag --ranks: \"x\" is not in 0..1"));
  EXPECT_THAT(with("--ranks=1.5"), HasSubstr("\"1.5\" is not in 0..1"));
  EXPECT_THAT(with("--ranks=0.6,0.5"),
              HasSubstr("flag --ranks: the shares have the sum 1.1, over 1"));
  EXPECT_THAT(with("--ranks=0,0,0,0,0,0,0,0"),
              HasSubstr("flag --ranks: more than 7 shares"));
  EXPECT_THAT(error({"--match-trace=x", "--cost-ratio=5", "--ranks=1"}),
              HasSubstr("flag --ranks needs --alpha"));
  EXPECT_THAT(with("--policy=x"), HasSubstr("unknown flag --policy"));
  const Outcome unwritable = Simulate(
      {"--alpha=0.8", "--cost-ratio=5", "--tokens=100", "--json=/no/where"});
  EXPECT_EQ(unwritable.code, kExitError);
  EXPECT_THAT(unwritable.err, HasSubstr("/no/where"));
}

}  // namespace
}  // namespace nacre::tools
