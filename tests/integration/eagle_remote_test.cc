// An EAGLE draft on a worker of its own: the target's features come to it
// between real processes, and no token depends on whether they do.

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/proxied_pair.h"

namespace nacre::integration {
namespace {

const std::vector<std::string> kDraft = {"--model", NACRE_MODELS "/eagle",
                                         "--target-tokenizer",
                                         NACRE_MODELS "/target"};
// Steps of which a draft has the features before an answer is over, also on a
// fast machine.
const std::vector<std::string> kTarget = {
    "--publish-features", NACRE_MODELS "/eagle", "--step-time", "1:2,64:4"};

class EagleRemoteTest : public ProxiedPairTest {};

TEST_F(EagleRemoteTest, EveryMethodReadsFeaturesAndSaysWhatArSays) {
  Start(kDraft, kTarget);
  EXPECT_GT(ExpectWhatArSays(), 0u);
  EXPECT_GT(Metric("nacre_draft_target_rows_total", "draft"), 0);
  EXPECT_GT(Metric("nacre_draft_tensors_used_total", "draft"), 0);
  EXPECT_GE(Metric("nacre_draft_tensors_received_total", "draft"),
            Metric("nacre_draft_tensors_used_total", "draft"));
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
  Start(kDraft, kTarget);
  for (const v1::Method method : kDraftingMethods) {
    const AroundACut accepted = CutTheChannel(method);
    EXPECT_GT(accepted.cut, 0u) << method;
    EXPECT_EQ(accepted.without, 0u) << "without features it knows nothing";
    EXPECT_GT(accepted.with, 0u) << method;
  }
  processes_->Stop();
}

// A draft that is killed in the middle of an answer: the other one is given
// what the target has kept since its beginning.
TEST_F(EagleRemoteTest, AnotherDraftTakesOverInTheMiddle) {
  std::vector<std::string> target = kTarget;
  target.back() = "1:5";
  Start(kDraft, target);
  processes_->StartWorker("other", "draft");
  processes_->AwaitReady(3);
  const auto rows_of = [this](const std::string& name) {
    return Metric("nacre_draft_target_rows_total", name);
  };
  const Tokens expected = Expected(1, 200);
  std::string killed, left;
  const v1::Complete complete =
      Generate(Drafted(1, v1::METHOD_ASYNC, 200), [&](const v1::Chunk& chunk) {
        if (chunk.first_index() < 60 || !killed.empty()) return;
        killed = rows_of("draft") > 0 ? "draft" : "other";
        left = killed == "draft" ? "other" : "draft";
        EXPECT_GT(rows_of(killed), 0);
        EXPECT_EQ(rows_of(left), 0);
        processes_->Signal(killed, SIGKILL);
      });
  EXPECT_EQ(Ids(complete), expected);
  ASSERT_FALSE(left.empty());
  EXPECT_GT(rows_of(left), 60) << "those of before, too";
  EXPECT_GT(complete.speculation().accepted(), 0u);
}

// Of a prompt of which more is taken over than a draft asks for at first.
TEST_F(EagleRemoteTest, DraftsAfterALongPromptThatWasTakenOver) {
  Start(kDraft, kTarget);
  v1::GenerateRequest request = Drafted(1, v1::METHOD_ASYNC, 64);
  std::string prompt;
  for (int i = 0; i < 180; ++i) prompt += absl::StrCat("and ", i, " is next, ");
  request.set_text(prompt);
  const v1::Complete first = Generate(request);
  const v1::Complete again = Generate(request);
  EXPECT_EQ(Ids(again), Ids(first));
  EXPECT_GT(again.usage().cached_tokens(), 1100u);
  EXPECT_GT(first.speculation().accepted(), 0u);
  EXPECT_GT(again.speculation().accepted(), 0u);
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
