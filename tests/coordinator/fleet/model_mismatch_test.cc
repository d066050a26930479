#include "coordinator/fleet/model_mismatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using ModelMismatchTest = DispatcherTest;

TEST_F(ModelMismatchTest, SaysWhatDiffers) {
  const WorkerInfo other = Info(WorkerRole::kTarget, "old:1");
  WorkerInfo target = Info(WorkerRole::kTarget, "new:2");
  EXPECT_TRUE(CheckSameModel(target, other).ok());
  target.eos_token_ids = {2, 7};
  const absl::Status ends = CheckSameModel(target, other);
  EXPECT_EQ(ends.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ends.message()),
              AllOf(HasSubstr("MODEL_MISMATCH: the end tokens of target new:2"),
                    HasSubstr("old:1"), HasSubstr("[2, 7]"),
                    HasSubstr("generation_config.json")));
  target.fingerprint = "bigger";
  const absl::Status weights = CheckSameModel(target, other);
  EXPECT_EQ(weights.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(weights.message()),
              AllOf(HasSubstr("MODEL_MISMATCH: the config.json or the weights"),
                    HasSubstr("bigger"), HasSubstr(other.fingerprint)));
}

TEST_F(ModelMismatchTest, ADraftThatLacksIdsIsWarnedOf) {
  WorkerInfo draft = Info(WorkerRole::kDraft, "draft:1");
  draft.model_vocab_size = 32000;
  EXPECT_EQ(LackedIdsWarning(draft, 32000), "");
  EXPECT_EQ(LackedIdsWarning(draft, 31999), "");
  EXPECT_THAT(LackedIdsWarning(draft, 32002),
              AllOf(HasSubstr("draft draft:1 has 32000 token ids, the "
                              "tokenizer 32002: "),
                    HasSubstr("--target-tokenizer")));
}

TEST_F(ModelMismatchTest, ADraftOfAShorterContextIsWarnedOf) {
  WorkerInfo draft = Info(WorkerRole::kDraft, "draft:1");
  const WorkerInfo target = Info(WorkerRole::kTarget, "target:1");
  EXPECT_EQ(ShortContextWarning(draft, target), "");
  draft.context_length = 1023;
  EXPECT_EQ(ShortContextWarning(draft, target),
            "draft draft:1 has a context of 1023 tokens, target target:1 of "
            "1024: behind the first it drafts nothing");
}

TEST_F(ModelMismatchTest, ATargetThatGoesOnBehindTheTokenizersEndIsWarnedOf) {
  WorkerInfo target = Info(WorkerRole::kTarget, "target:1");
  EXPECT_EQ(EndTokenWarning(target, 257, "</s>"), "");
  target.eos_token_ids = {2, 9};
  EXPECT_THAT(
      EndTokenWarning(target, 257, "</s>"),
      AllOf(HasSubstr("\"</s>\", id 257, ends no answer of target target:1"),
            HasSubstr("[2, 9]")));
  EXPECT_EQ(EndTokenWarning(target, std::nullopt, ""), "");
}

TEST_F(ModelMismatchTest, ATargetOfOtherEndTokensIsRefused) {
  const Worker target = AddTarget("t0");
  WorkerInfo other = Info(WorkerRole::kTarget, "t1");
  other.eos_token_ids.push_back(7);
  EXPECT_EQ(AddWorker(&dispatcher_, other, std::make_shared<RecordingClient>())
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
}

// The last of its kind is gone: others may come, but its sessions wait for one
// that ends answers as it did.
TEST_F(ModelMismatchTest, ASessionDoesNotGoOnUnderOtherEndTokens) {
  const Worker target = AddTarget("t0");
  const auto sink = Start();
  dispatcher_.RemoveWorker(target.id);
  WorkerInfo other = Info(WorkerRole::kTarget, "t1");
  other.eos_token_ids.push_back(7);
  const auto client = std::make_shared<RecordingClient>();
  const auto id = AddWorker(&dispatcher_, other, client);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_THAT(client->Take(), IsEmpty());
  dispatcher_.RemoveWorker(*id);
  const Worker equal = AddTarget("t2");
  EXPECT_THAT(equal.client->Take(), Not(IsEmpty()));
}

}  // namespace
}  // namespace nacre::coordinator
