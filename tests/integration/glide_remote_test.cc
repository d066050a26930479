// A GliDe draft on a worker of its own: the target's keys and values come to it
// between real processes, and no token depends on whether they do.

#include <gtest/gtest.h>

#include "tests/integration/proxied_pair.h"

namespace nacre::integration {
namespace {

class GlideRemoteTest : public ProxiedPairTest {
 protected:
  GlideRemoteTest() { Start({"--model", NACRE_MODELS "/glide"}); }
};

TEST_F(GlideRemoteTest, EveryMethodReadsKeysAndSaysWhatArSays) {
  EXPECT_GT(ExpectWhatArSays(), 0u);
  EXPECT_GT(Metric("nacre_draft_tensors_used_total", "draft"), 0);
  EXPECT_GE(Metric("nacre_draft_tensors_received_total", "draft"),
            Metric("nacre_draft_tensors_used_total", "draft"));
  EXPECT_EQ(Metric("nacre_draft_tensors_dropped_total", "draft", "malformed"),
            0);
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 0);
  ExpectSent(Metric("nacre_draft_tensors_received_total", "draft"));
  // The coordinator's connection and the draft's.
  EXPECT_EQ(to_target_.connections(), 2);
  processes_->Stop();
}

TEST_F(GlideRemoteTest, ALostChannelCostsNoToken) {
  for (const v1::Method method : kDraftingMethods) {
    EXPECT_GT(CutTheChannel(method).without, 0u) << "it drafts without them";
  }
  // Two of each method. A draft that lags on a busy machine gives rows up.
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"),
            6 + CountInLog("draft", "rows of its target that it has"));
  processes_->Stop();
}

TEST_F(GlideRemoteTest, IsNoTarget) {
  ExpectRefused("target", {"--model", NACRE_MODELS "/glide"},
                "/glide is a GliDe draft, no target");
  processes_->Stop();
}

}  // namespace
}  // namespace nacre::integration
