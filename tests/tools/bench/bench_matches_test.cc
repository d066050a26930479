#include "tools/bench/bench_matches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/tools/fake_coordinator.h"

namespace nacre::tools {
namespace {

using simulation::MatchTrace;
using ::testing::HasSubstr;

constexpr int kPrompt = 5;

// A pair of models of which it is known where the draft is right. The last
// token of `truth` ends the answer.
struct KnownPair {
  MatchTrace truth;
  bool has_draft = true;

  // As a target verifies in sd.
  v1::Complete Generate(int max_tokens, int window) const {
    const int end = std::min<int>(max_tokens, truth.size());
    v1::Complete complete;
    complete.mutable_usage()->set_prompt_tokens(kPrompt);
    for (int i = 0; i < end; ++i) complete.add_token_ids(100 + i);
    v1::TraceLane* lane = complete.add_trace();
    lane->set_role(v1::WORKER_ROLE_TARGET);
    for (int base = 0; base < end;) {
      const int tail = has_draft ? std::min(window, max_tokens - base - 1) : 0;
      int matched = 0;
      while (matched < tail && base + matched < end &&
             truth[base + matched].matches()) {
        ++matched;
      }
      base = std::min(base + matched + 1, end);
      v1::Span* span = lane->add_spans();
      span->set_kind(v1::Span::KIND_VERIFY);
      span->set_rows(tail + 1);
      span->set_matched(matched);
      span->set_length(kPrompt + base);
    }
    return complete;
  }
};

class RecordMatchesTest : public ::testing::Test {
 protected:
  // The recording, after the benchmark had `max_tokens`.
  absl::StatusOr<std::vector<MatchTrace>> Record(const KnownPair& pair,
                                                 int max_tokens,
                                                 uint32_t context_length) {
    FakeCoordinator server([&](const v1::GenerateRequest& request,
                               grpc::ServerContext*,
                               FakeCoordinator::Writer* writer) {
      v1::Complete complete =
          pair.Generate(static_cast<int>(request.stop().max_tokens()),
                        static_cast<int>(request.speculation().window()));
      if (spoil_) spoil_(&complete);
      FakeCoordinator::SendComplete(writer, complete);
      return grpc::Status::OK;
    });
    GenerationClient client(server.address());
    BenchPlan plan;
    plan.prompts = {{"p0", "a", std::nullopt}};
    plan.request.mutable_stop()->set_max_tokens(max_tokens);
    BenchResult result;
    BenchAnswer& answer = result.answers.emplace_back();
    answer.complete = pair.Generate(max_tokens, 1);
    auto matches = RecordMatches(plan, result, context_length, &client,
                                 [](const std::string&) {});
    requests_ = server.requests();
    return matches;
  }

  std::function<void(v1::Complete* complete)> spoil_;
  std::vector<v1::GenerateRequest> requests_;
};

TEST_F(RecordMatchesTest, KnowsEveryToken) {
  std::mt19937 random(7);
  for (const double alpha : {0.0, 0.3, 0.7, 0.9, 0.99, 1.0}) {
    std::bernoulli_distribution match(alpha);
    KnownPair pair;
    for (int i = 0; i < 1500; ++i) pair.truth.push_back(match(random));
    const auto matches = Record(pair, 1000, 0);
    ASSERT_TRUE(matches.ok()) << matches.status() << " alpha " << alpha;
    ASSERT_EQ(matches->size(), 1);
    EXPECT_EQ((*matches)[0],
              MatchTrace(pair.truth.begin(), pair.truth.begin() + 1000))
        << "alpha " << alpha;
  }
}

TEST_F(RecordMatchesTest, KnowsTheTokenThatEndsAnAnswer) {
  for (int length = 1; length <= 40; ++length) {
    KnownPair pair;
    pair.truth.assign(length, true);
    for (const int max_tokens : {length, length + 7}) {
      const auto matches = Record(pair, max_tokens, 0);
      ASSERT_TRUE(matches.ok()) << matches.status() << " length " << length;
      EXPECT_EQ((*matches)[0], pair.truth) << length;
    }
  }
}

TEST_F(RecordMatchesTest, AsksForOneTokenMoreAndNoMoreRunsThanItNeeds) {
  const auto matches = Record({.truth = MatchTrace(50, false)}, 20, 0);
  ASSERT_TRUE(matches.ok()) << matches.status();
  ASSERT_EQ(requests_.size(), 1);
  EXPECT_EQ(requests_[0].text(), "a");
  EXPECT_EQ(requests_[0].speculation().method(), v1::METHOD_SD);
  EXPECT_EQ(requests_[0].stop().max_tokens(), 21);
  EXPECT_TRUE(requests_[0].output().trace());
}

TEST_F(RecordMatchesTest, LeavesOutTheLastTokenOfAFullContext) {
  const KnownPair pair = {.truth = MatchTrace(20, true)};
  auto matches = Record(pair, 20, kPrompt + 20);
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_EQ(requests_[0].stop().max_tokens(), 20);
  EXPECT_EQ((*matches)[0], MatchTrace(19, true));
  matches = Record({.truth = MatchTrace(21, true)}, 20, kPrompt + 21);
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_EQ(requests_[0].stop().max_tokens(), 21);
  EXPECT_EQ((*matches)[0], MatchTrace(20, true));
  // One token, and no room for a second: nothing is ever drafted.
  matches = Record({.truth = {true}}, 1, kPrompt + 1);
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_TRUE((*matches)[0].empty());
}

TEST_F(RecordMatchesTest, NeedsADraft) {
  const auto matches =
      Record({.truth = MatchTrace(9, true), .has_draft = false}, 9, 0);
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(matches.status().message()),
              HasSubstr("prompt \"p0\": token 0 of 9 was compared with no "
                        "draft token in any of 6 runs"));
}

TEST_F(RecordMatchesTest, AsksAgainWhereTheDraftWasHeldUp) {
  // A run decides at most three tokens more.
  int runs = 0;
  spoil_ = [&runs](v1::Complete* complete) {
    ++runs;
    auto* spans = complete->mutable_trace(0)->mutable_spans();
    int decided = 0;
    for (v1::Span& span : *spans) {
      decided += 1;
      if (decided <= 3 * runs - 3 || decided > 3 * runs) span.set_rows(1);
    }
  };
  const KnownPair pair = {.truth = MatchTrace(50, false)};
  const auto matches = Record(pair, 40, 0);
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_EQ((*matches)[0], MatchTrace(40, false));
  EXPECT_EQ(requests_.size(), 14);
}

TEST_F(RecordMatchesTest, GivesUpOnNoDraftThatABusyMachineHoldsUp) {
  // Two turns of all windows in which nothing is decided, though it tried.
  int runs = 0;
  bool speaks = true;
  spoil_ = [&](v1::Complete* complete) {
    if (++runs > 12) return;
    for (v1::Span& span : *complete->mutable_trace(0)->mutable_spans()) {
      span.set_rows(1);
    }
    complete->mutable_speculation()->set_degraded_rounds(9);
    complete->mutable_speculation()->set_verified(speaks ? 1 : 0);
  };
  const KnownPair pair = {.truth = MatchTrace(50, false)};
  const auto matches = Record(pair, 40, 0);
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_EQ((*matches)[0], MatchTrace(40, false));
  EXPECT_EQ(requests_.size(), 13);
  // One that says nothing at all is none.
  runs = 0;
  speaks = false;
  EXPECT_EQ(Record(pair, 40, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(requests_.size(), 6);
}

TEST_F(RecordMatchesTest, EndsThoughTheDraftIsHeldUpForEver) {
  spoil_ = [](v1::Complete* complete) {
    for (v1::Span& span : *complete->mutable_trace(0)->mutable_spans()) {
      span.set_rows(1);
    }
    complete->mutable_speculation()->set_degraded_rounds(9);
    complete->mutable_speculation()->set_verified(1);
  };
  const auto matches = Record({.truth = MatchTrace(9, false)}, 9, 0);
  EXPECT_THAT(std::string(matches.status().message()),
              HasSubstr("no draft token in any of 300 runs"));
}

TEST_F(RecordMatchesTest, RefusesAnotherAnswer) {
  const KnownPair pair = {.truth = MatchTrace(9, true)};
  spoil_ = [](v1::Complete* complete) { complete->set_token_ids(3, 77); };
  auto matches = Record(pair, 9, 0);
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(matches.status().message()),
              HasSubstr("prompt \"p0\", method sd:8: recording the matches: "
                        "token 3 is id 77, it was id 103"));
  spoil_ = [](v1::Complete* complete) { complete->clear_token_ids(); };
  matches = Record(pair, 9, 0);
  EXPECT_THAT(std::string(matches.status().message()),
              HasSubstr("token 0 is missing, it was id 100"));
}

TEST_F(RecordMatchesTest, ReportsADraftThatChangesItsMind) {
  int runs = 0;
  spoil_ = [&runs](v1::Complete* complete) {
    if (++runs < 2) return;
    complete->mutable_trace(0)->mutable_spans(0)->set_matched(0);
    complete->mutable_trace(0)->mutable_spans(0)->set_length(kPrompt + 1);
  };
  const auto matches = Record({.truth = MatchTrace(30, true)}, 20, 0);
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(matches.status().message()),
              HasSubstr("method sd:7: the draft's token 0 matched in one run"));
}

}  // namespace
}  // namespace nacre::tools
