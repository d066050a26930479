// Drafts that read rows of their target, while one of two equal targets is
// killed in the middle of several answers: no token changes, and the draft goes
// on with the rows of the target that is left.

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/processes.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

constexpr int kTokens = 600;
constexpr int kStreams = 6;
// When it has so many of them, a stream kills its target.
constexpr uint32_t kEarlier = 40;
// That a target may have committed, and sent rows of, before its coordinator
// hears of it (TargetSession::Options).
constexpr int kAhead = 64;

struct Reading {
  std::string name;
  std::vector<std::string> draft;
  std::vector<std::string> target;
  // Of a text that comes from the prefix cache there are no features.
  bool has_all_rows = false;
};

// A stream as its client sees it.
struct Seen {
  Tokens tokens;
  int prompt_tokens = 0;
  std::string target;      // that serves it, host:port
  int moved_at = 0;        // tokens that it has when it hears of the next one
  int drafted_before = 0;  // tokens of the draft's, until then
  int drafted_after = 0;
};

void OnChunk(const v1::Chunk& chunk, Seen* seen) {
  for (const v1::TraceLane& lane : chunk.trace().lanes()) {
    if (lane.role() != v1::WORKER_ROLE_TARGET) continue;
    if (!seen->target.empty() && lane.address() != seen->target) {
      EXPECT_EQ(seen->moved_at, 0) << "only one target was killed";
      seen->moved_at = static_cast<int>(chunk.first_index()) + 1;
    }
    seen->target = lane.address();
  }
  for (const int origin : chunk.trace().origins()) {
    if (origin != v1::TOKEN_ORIGIN_DRAFT && origin != v1::TOKEN_ORIGIN_BRANCH) {
      continue;
    }
    ++(seen->moved_at > 0 ? seen->drafted_after : seen->drafted_before);
  }
}

v1::GenerateRequest RequestOf(int stream) {
  constexpr v1::Method kMethods[] = {v1::METHOD_ASYNC, v1::METHOD_SD,
                                     v1::METHOD_PEARL};
  v1::GenerateRequest request =
      StreamRequest(stream % 3, kMethods[(stream + stream / 3) % 3], kTokens);
  request.mutable_speculation()->set_suffixes(false);
  request.mutable_output()->set_trace_chunks(true);
  return request;
}

class RowFailoverTest : public ::testing::TestWithParam<Reading> {
 protected:
  RowFailoverTest() : processes_(OptionsOf(GetParam())) {
    for (const std::string name : {"one", "other"}) {
      processes_.StartWorker(name, "target");
    }
    processes_.StartWorker("draft", "draft");
    processes_.AwaitReady(3);
  }

  static Processes::Options OptionsOf(const Reading& reading) {
    Processes::Options options;
    options.by_role["target"] = reading.target;
    options.by_role["target"].insert(options.by_role["target"].end(),
                                     {"--step-time", "1:5"});
    options.by_role["draft"] = reading.draft;
    return options;
  }

  v1::Complete Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::Chunk&)>& on_chunk) {
    const auto complete = client_.Generate(request, kCallTimeout, on_chunk);
    EXPECT_TRUE(complete.ok()) << complete.status();
    return complete.value_or(v1::Complete());
  }
  Tokens Expected(int kind) {
    return Ids(Generate(StreamRequest(kind, v1::METHOD_AR, kTokens),
                        [](const v1::Chunk&) {}));
  }
  double rows() const {
    return telemetry::Sum(processes_.Scrape("draft"),
                          "nacre_draft_target_rows_total");
  }

  // All of them at once. The first one's target is killed.
  std::vector<Seen> RunStreams() {
    const std::map<std::string, std::string> targets = {
        {processes_.WorkerAddress("one"), "one"},
        {processes_.WorkerAddress("other"), "other"}};
    std::vector<Seen> seen(kStreams);
    bool was_killed = false;  // of the first one's thread
    std::vector<std::thread> threads;
    for (int i = 0; i < kStreams; ++i) {
      threads.emplace_back([&, i] {
        Seen& own = seen[static_cast<size_t>(i)];
        const v1::Complete complete =
            Generate(RequestOf(i), [&](const v1::Chunk& chunk) {
              OnChunk(chunk, &own);
              if (i > 0 || was_killed || chunk.first_index() < kEarlier ||
                  rows() == 0) {
                return;
              }
              was_killed = true;
              processes_.Signal(targets.at(own.target), SIGKILL);
            });
        own.tokens = Ids(complete);
        own.prompt_tokens = static_cast<int>(complete.usage().prompt_tokens());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(was_killed);
    return seen;
  }

  Processes processes_;
  tools::GenerationClient client_{processes_.address()};
};

TEST_P(RowFailoverTest, TheDraftGoesOnWithTheOtherTargetsRows) {
  const std::vector<Tokens> expected = {Expected(0), Expected(1), Expected(2)};
  const std::vector<Seen> seen = RunStreams();
  // Rows that there can be at most, if the other target gives none to the
  // streams that were moved to it: one for each position before the move.
  int most = 0;
  int drafted_before = 0, drafted_after = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const Seen& stream = seen[i];
    EXPECT_EQ(stream.tokens, expected[i % 3]) << i;
    most += stream.prompt_tokens +
            (stream.moved_at > 0 ? stream.moved_at + kAhead : kTokens);
    drafted_before += stream.drafted_before;
    drafted_after += stream.drafted_after;
  }
  EXPECT_GT(seen[0].moved_at, 0);
  EXPECT_GT(drafted_before, 0);
  EXPECT_GT(drafted_after, 0) << "of streams that have another target";
  if (GetParam().has_all_rows) {
    EXPECT_GT(rows(), most);
  }
}

const std::vector<std::string> kEagle = {"--model", NACRE_MODELS "/eagle",
                                         "--target-tokenizer",
                                         NACRE_MODELS "/target"};

INSTANTIATE_TEST_SUITE_P(
    All, RowFailoverTest,
    ::testing::Values(
        Reading{"Eagle", kEagle, {"--publish-features", NACRE_MODELS "/eagle"}},
        Reading{"EagleWithoutAPrefixCache",
                kEagle,
                {"--publish-features", NACRE_MODELS "/eagle", "--prefix-cache",
                 "off"},
                true},
        Reading{"Glide", {"--model", NACRE_MODELS "/glide"}, {}, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nacre::integration
