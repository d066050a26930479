#include "model/ranks/follower_model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/model/rank_sessions.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

// A follower of a model that is whole, which needs no other node.
class FollowerModelTest : public ::testing::Test {
 protected:
  FollowerModelTest() {
    const std::string dir = nacre::testing::TestFolder("follower");
    nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                          dir);
    backend_ = *kernels::CreateBackend(Backend("cpu", "auto"));
    model_ = *LoadModel(dir, backend_.get(), Options());
    follower_ = std::make_unique<FollowerModel>(model_.get());
    capacity_ = model_->kv_free_tokens();
  }

  // With what is then right here.
  absl::Status Do(uint64_t sequence, decltype(RankCommand::what) what,
                  int length, int64_t reserved) {
    return follower_->Do(
        {sequence, std::move(what), length, capacity_ - reserved});
  }
  void Begin() {
    ASSERT_EQ(Do(1, NewSequenceCommand{32, 0, {}}, 0, 32), absl::OkStatus());
    ASSERT_EQ(Do(1, RowsCommand{Tokens(20, 1), 1, {}, true}, 0, 32),
              absl::OkStatus());
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<FollowerModel> follower_;
  int64_t capacity_ = 0;
};

TEST_F(FollowerModelTest, DoesWhatItIsTold) {
  Begin();
  EXPECT_EQ(Do(1, ShareCommand{Tokens(16, 1)}, 20, 32), absl::OkStatus());
  EXPECT_EQ(Do(1, TruncateCommand{18}, 18, 32), absl::OkStatus());
  EXPECT_EQ(Do(2, NewSequenceCommand{32, 0, Tokens(18, 1)}, 16, 48),
            absl::OkStatus());
  EXPECT_EQ(Do(2, FreeCommand(), 0, 32), absl::OkStatus());
  EXPECT_EQ(Do(1, FreeCommand(), 0, 0), absl::OkStatus());
  EXPECT_EQ(model_->kv_free_tokens(), capacity_);
}

TEST_F(FollowerModelTest, SaysWhatDiffers) {
  Begin();
  const std::vector<std::pair<RankCommand, std::string>> cases = {
      {{1, TruncateCommand{18}, 17, capacity_ - 32},
       "of sequence 1 positions are 18 here, 17 at the leader"},
      {{1, ShareCommand{}, 18, capacity_ - 33},
       "of sequence 1 then free in the KV cache are"},
      {{1, TakeOverCommand{Tokens(18, 1), 4, {16, 16, false, 1}}, 18, 0},
       "of sequence 1 taken over are 0 positions, 0 brought in 0 blocks, and "
       "no more here, 16 positions, 16 brought in 1 blocks"},
      {{1, KeepPathCommand{18, {3}}, 19, 0},
       "a path of sequence 1, which the leader keeps: "},
      {{7, TruncateCommand{18}, 17, 0}, "there is no sequence 7"},
      {{1, NewSequenceCommand{32, 0, {}}, 0, 0}, "sequence 1 is there already"},
      {{2, NewSequenceCommand{kContext + 1, 0, {}}, 0, 0},
       "sequence 2, for which the leader has room: "},
      {{1, RowsCommand{{1}, 1, {}, true}, 5, capacity_ - 32},
       "positions are 18 here, 5 at the leader"}};
  for (const auto& [command, said] : cases) {
    const absl::Status status = follower_->Do(command);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.ToString(), HasSubstr(said));
  }
}

TEST_F(FollowerModelTest, RowsOfABatchComeTogether) {
  Begin();
  EXPECT_EQ(Do(1, RowsCommand{{1}, 1, {}, false}, 20, 32), absl::OkStatus());
  EXPECT_THAT(Do(1, FreeCommand(), 0, 0).ToString(),
              HasSubstr("a batch of rows that does not end"));
}

// The leader was refused it, too, or says so with its next command.
TEST_F(FollowerModelTest, ARefusedStepIsNoFailure) {
  Begin();
  EXPECT_EQ(Do(1, RowsCommand{{kVocab}, 1, {}, true}, 20, 32),
            absl::OkStatus());
  EXPECT_EQ(Do(1, RowsCommand{{1}, 1, {}, true}, 20, 32), absl::OkStatus());
  EXPECT_THAT(Do(1, RowsCommand{{1}, 1, {}, true}, 20, 32).ToString(),
              HasSubstr("positions are 21 here, 20 at the leader"));
}

}  // namespace
}  // namespace nacre::model
