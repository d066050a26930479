// An EAGLE draft on a worker of its own: the target's features come to it
// between real processes, and no token depends on whether they do.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/proxied_pair.h"

namespace nacre::integration {
namespace {

constexpr v1::Method kMethods[] = {v1::METHOD_SD, v1::METHOD_PEARL,
                                   v1::METHOD_ASYNC};
const std::vector<std::string> kDraft = {"--model", NACRE_MODELS "/eagle",
                                         "--target-tokenizer",
                                         NACRE_MODELS "/target"};
const std::vector<std::string> kTarget = {"--publish-features",
                                          NACRE_MODELS "/eagle"};

class EagleRemoteTest : public ProxiedPairTest {
 protected:
  static v1::GenerateRequest Drafted(int kind, v1::Method method,
                                     int max_tokens) {
    v1::GenerateRequest request = StreamRequest(kind, method, max_tokens);
    request.mutable_speculation()->set_suffixes(false);
    return request;
  }
  // In each method, of each kind of request; returns how many were accepted.
  uint64_t ExpectWhatArSays() {
    uint64_t accepted = 0;
    for (const int kind : {0, 1, 2}) {
      const Tokens expected = Expected(kind, 60);
      for (const v1::Method method : kMethods) {
        for (const std::string tree : {"chain", "best"}) {
          if (tree == "best" && method != v1::METHOD_ASYNC) continue;
          v1::GenerateRequest request = Drafted(kind, method, 60);
          request.mutable_speculation()->set_tree(tree);
          const v1::Complete complete = Generate(request);
          EXPECT_EQ(Ids(complete), expected) << method << tree;
          accepted += complete.speculation().accepted();
        }
      }
    }
    return accepted;
  }
};

TEST_F(EagleRemoteTest, EveryMethodReadsFeaturesAndSaysWhatArSays) {
  Start(kDraft, kTarget);
  EXPECT_GT(ExpectWhatArSays(), 0u);
  EXPECT_GT(Metric("nacre_draft_target_rows_total", "draft"), 0);
  EXPECT_GT(Metric("nacre_draft_target_row_commits_total", "draft"), 0);
  EXPECT_EQ(Metric("nacre_draft_tensors_dropped_total", "draft", "malformed"),
            0);
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 0);
  // Rows of 256 numbers in bf16; some came when their session was closed.
  const double bytes =
      Metric("nacre_draft_tensor_bytes_received_total", "draft");
  const double rows = Metric("nacre_draft_target_rows_total", "draft");
  EXPECT_GE(bytes, 512 * rows);
  EXPECT_LT(bytes, 1.5 * 512 * rows);
  processes_->Stop();
}

// Of what the target takes over there are no features: the draft begins after
// it.
TEST_F(EagleRemoteTest, DraftsAfterWhatThePrefixCacheBrought) {
  Start(kDraft, kTarget);
  v1::GenerateRequest request = Drafted(1, v1::METHOD_ASYNC, 60);
  const v1::Complete first = Generate(request);
  const v1::Complete again = Generate(request);
  EXPECT_EQ(Ids(again), Ids(first));
  EXPECT_GT(first.speculation().accepted(), 0u);
  EXPECT_GT(again.speculation().accepted(), 0u);
  processes_->Stop();
}

TEST_F(EagleRemoteTest, ALostChannelCostsNoToken) {
  constexpr int kTokens = 200;
  Start(kDraft, kTarget);
  Generate(Drafted(1, v1::METHOD_ASYNC, 20));  // the draft dials the target
  for (const v1::Method method : kMethods) {
    const Tokens expected = Expected(1, kTokens);
    bool cut = false;
    const v1::Complete complete =
        Generate(Drafted(1, method, kTokens), [&](const v1::Chunk& chunk) {
          if (chunk.first_index() < 60 || std::exchange(cut, true)) return;
          to_target_.SetLimit(1);
        });
    EXPECT_TRUE(cut);
    EXPECT_EQ(Ids(complete), expected) << method;
    EXPECT_GT(complete.speculation().accepted(), 0u) << method;
    // It cannot be opened anew yet: without features it has nothing to say.
    const v1::Complete without = Generate(Drafted(1, method, kTokens));
    EXPECT_EQ(Ids(without), expected) << method;
    EXPECT_EQ(without.speculation().accepted(), 0u) << method;
    to_target_.SetLimit(2);
    const v1::Complete with = Generate(Drafted(1, method, kTokens));
    EXPECT_EQ(Ids(with), expected) << method;
    EXPECT_GT(with.speculation().accepted(), 0u) << method;
  }
  processes_->Stop();
}

// Rows of half a prompt and an answer have room.
TEST_F(EagleRemoteTest, LostFeaturesCostNoToken) {
  std::vector<std::string> target = kTarget;
  target.insert(target.end(), {"--feature-cache", "64K"});
  Start(kDraft, target);
  EXPECT_GT(ExpectWhatArSays(), 0u);
  // No request has room for all of its rows beside another: with a prompt and
  // 200 tokens most are dropped.
  const Tokens expected = Expected(1, 200);
  EXPECT_EQ(Ids(Generate(Drafted(1, v1::METHOD_ASYNC, 200))), expected);
  processes_->Stop();
}

TEST_F(EagleRemoteTest, ATargetWithoutFeaturesAnswersAlone) {
  Start(kDraft);
  EXPECT_EQ(ExpectWhatArSays(), 0u);
  EXPECT_GT(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 0);
  processes_->Stop();
}

TEST_F(EagleRemoteTest, RefusesToStartWithoutWhatItNeeds) {
  const std::string eagle = NACRE_MODELS "/eagle";
  const std::string target = NACRE_MODELS "/target";
  ExpectRefused("target", {"--model", eagle}, "is an EAGLE draft, no target");
  ExpectRefused("draft", {"--model", eagle},
                "--target-tokenizer DIR, the target's model, is required");
  ExpectRefused("draft",
                {"--model", eagle, "--target-tokenizer", target,
                 "--tensor-parallel", "2"},
                "an EAGLE draft is not split");
  ExpectRefused("draft",
                {"--model", NACRE_MODELS "/draft", "--publish-features", eagle},
                "--publish-features is for target workers");
  ExpectRefused(
      "target",
      {"--model", target, "--publish-features", eagle, "--eagle", eagle},
      "--publish-features and --eagle exclude each other");
  ExpectRefused("target",
                {"--model", target, "--publish-features", "/no/such/folder"},
                "/no/such/folder");
  ExpectRefused("target", {"--model", target, "--feature-cache", "63K"},
                "not a number of bytes of 64K or more");
}

}  // namespace
}  // namespace nacre::integration
