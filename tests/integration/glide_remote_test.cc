// A GliDe draft on a worker of its own: the target's keys and values come to it
// between real processes, and no token depends on whether they do.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/integration/proxied_pair.h"

namespace nacre::integration {
namespace {

constexpr v1::Method kMethods[] = {v1::METHOD_SD, v1::METHOD_PEARL,
                                   v1::METHOD_ASYNC};

class GlideRemoteTest : public ProxiedPairTest {
 protected:
  GlideRemoteTest() { Start({"--model", NACRE_MODELS "/glide"}); }

  static v1::GenerateRequest Drafted(int kind, v1::Method method,
                                     int max_tokens) {
    v1::GenerateRequest request = StreamRequest(kind, method, max_tokens);
    request.mutable_speculation()->set_suffixes(false);
    return request;
  }
};

TEST_F(GlideRemoteTest, EveryMethodReadsKeysAndSaysWhatArSays) {
  uint64_t accepted = 0;
  for (const int kind : {0, 1, 2}) {
    const Tokens expected = Expected(kind, 60);
    for (const v1::Method method : kMethods) {
      for (const char* tree : {"chain", "best"}) {
        if (tree != std::string("chain") && method != v1::METHOD_ASYNC) {
          continue;
        }
        v1::GenerateRequest request = Drafted(kind, method, 60);
        request.mutable_speculation()->set_tree(tree);
        const v1::Complete complete = Generate(request);
        EXPECT_EQ(Ids(complete), expected) << method << tree;
        accepted += complete.speculation().accepted();
      }
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(Metric("nacre_draft_tensors_received_total", "draft"), 0);
  EXPECT_EQ(Metric("nacre_draft_tensors_dropped_total", "draft", "malformed"),
            0);
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 0);
  EXPECT_GE(Metric("nacre_target_tensors_sent_total", "target"),
            Metric("nacre_draft_tensors_received_total", "draft"));
  // The coordinator's connection and the draft's.
  EXPECT_EQ(to_target_.connections(), 2);
  processes_->Stop();
}

TEST_F(GlideRemoteTest, ALostChannelCostsNoToken) {
  constexpr int kTokens = 200;
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
    // It cannot be opened anew yet: without any rows from the start.
    const v1::Complete without = Generate(Drafted(1, method, kTokens));
    EXPECT_EQ(Ids(without), expected) << method;
    EXPECT_GT(without.speculation().accepted(), 0u) << "it drafts without them";
    to_target_.SetLimit(2);
    EXPECT_EQ(Ids(Generate(Drafted(1, method, kTokens))), expected) << method;
  }
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 6);
  processes_->Stop();
}

TEST_F(GlideRemoteTest, IsNoTarget) {
  ExpectRefused("target", {"--model", NACRE_MODELS "/glide"},
                "a GliDe draft is no target");
  processes_->Stop();
}

}  // namespace
}  // namespace nacre::integration
