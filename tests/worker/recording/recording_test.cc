// What a draft records of an answer, with messages in any order and gates that
// would have opened by time: the same lines, however late each of them is.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/json.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/table_model.h"
#include "tests/testing/tiny_checkpoint.h"
#include "worker/recording/feature_file.h"

namespace nacre::worker {
namespace {

using nacre::testing::InProcessPair;
using nacre::testing::PairRequest;
using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

constexpr int kAnswerTokens = 60;

// Of one answer with `sd` and chunks of `window`.
std::string Record(uint64_t seed, int window, bool gate_timeouts) {
  TableModelOptions options;
  TableModel target(options);
  options.disturbance = 0.1f;
  TableModel draft(options);
  const std::string path = nacre::testing::TestFolder("rows") + "/rows.jsonl";
  auto features = *FeatureFile::Open(path);
  {
    // So slow that gates would open at any moment.
    InProcessPair pair(&target, &draft, seed,
                       {gate_timeouts, features.get(), 50'000'000});
    PairRequest request;
    request.prompt = {3, 7, 1};
    request.max_tokens = kAnswerTokens;
    request.method = speculation::Method::kSd;
    request.window = window;
    EXPECT_EQ(pair.Generate(request),
              nacre::testing::GenerateAlone(target, request));
  }
  features = nullptr;
  return nacre::testing::ReadFile(path);
}

TEST(RecordingTest, ItsLinesDoNotDependOnTime) {
  for (const int window : {1, 4, 7}) {
    const std::string lines = Record(/*seed=*/1, window, false);
    EXPECT_FALSE(lines.empty());
    for (uint64_t seed = 2; seed < 30; ++seed) {
      EXPECT_EQ(Record(seed, window, false), lines) << seed;
    }
  }
}

TEST(RecordingTest, WithGateTimeoutsTheyDo) {
  std::set<std::string> recordings;
  for (uint64_t seed = 1; seed < 30; ++seed) {
    recordings.insert(Record(seed, 4, true));
  }
  EXPECT_GT(recordings.size(), 1u);
}

// So chunks of a few lengths leave no position out, on any machine.
TEST(RecordingTest, ChunksOfAFewLengthsLeaveNothingOut) {
  std::set<int> positions;
  for (const int window : {7, 6, 5, 4, 3, 2}) {
    const std::string lines = Record(/*seed=*/9, window, false);
    for (size_t at = 0; at < lines.size();) {
      const size_t end = lines.find('\n', at);
      positions.insert(
          nlohmann::json::parse(lines.substr(at, end - at))["position"]
              .get<int>());
      at = end + 1;
    }
  }
  // The last token is the target's own.
  EXPECT_EQ(positions.size(), static_cast<size_t>(kAnswerTokens - 1));
}

}  // namespace
}  // namespace nacre::worker
