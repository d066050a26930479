// A model on several nodes: the bits of one process, whatever is done, and the
// end of all nodes when one is lost.

#include "model/ranks/leader_model.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/rank_sessions.h"
#include "tests/model/ranks/node_group.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

std::string Checkpoint(const std::string& weights) {
  const std::string dir = nacre::testing::TestFolder("nodes-" + weights);
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", weights),
                                        dir);
  return dir;
}

std::unique_ptr<TensorParallelModel> InOneProcess(
    const std::string& dir, const kernels::BackendOptions& backend, int ranks,
    const ModelOptions& options = Options()) {
  auto model = TensorParallelModel::Load(dir, backend, ranks, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(LeaderModelTest, HasTheBitsOfOneProcessHoweverRanksAreDealtToNodes) {
  for (const std::string weights : {"f32", "int8"}) {
    const std::string dir = Checkpoint(weights);
    const auto backend = Backend("cpu", weights);
    const auto one = InOneProcess(dir, backend, 1);
    const Values expected = RunSessions(one.get());
    for (const auto& [nodes, ranks] : std::vector<std::pair<int, int>>{
             {2, 2}, {2, 4}, {2, 8}, {4, 4}, {4, 8}, {8, 8}}) {
      NodeGroup group(dir, backend, ranks, nodes, Options());
      EXPECT_EQ(RunSessions(group.leader()), expected)
          << weights << ", " << ranks << " ranks of " << nodes << " nodes";
      const ModelInfo& info = group.leader()->info();
      EXPECT_EQ(info.fingerprint, one->info().fingerprint);
      EXPECT_EQ(info.numerics_id, one->info().numerics_id);
      EXPECT_EQ(info.kv_capacity_tokens, one->info().kv_capacity_tokens);
      EXPECT_EQ(group.leader()->kv_free_tokens(), one->kv_free_tokens());
      // Each node has read all of the files.
      EXPECT_EQ(group.model(nodes - 1)->info().fingerprint,
                one->info().fingerprint);
    }
  }
}

TEST(LeaderModelTest, ShowsFeaturesAndHiddenStates) {
  const std::string dir = Checkpoint("f32");
  const auto backend = Backend("cpu", "auto");
  const auto one = InOneProcess(dir, backend, 4);
  NodeGroup group(dir, backend, 4, 2, Options());
  std::vector<Values> seen;
  for (LanguageModel* model : {static_cast<LanguageModel*>(one.get()),
                               static_cast<LanguageModel*>(group.leader())}) {
    ASSERT_TRUE(
        model->SetTaps({{FeatureTap::Kind::kIn, 1}, {FeatureTap::Kind::kFinal}})
            .ok());
    const auto sequence = *model->NewSequence(20);
    const std::vector<int32_t> tokens = Tokens(6, 3);
    Values& values = seen.emplace_back();
    Append(model->Forward({{sequence.get(), tokens, 6}}), &values);
    for (const int tap : {0, 1}) {
      EXPECT_EQ(model->features(tap).size(), 6u * 52);
      values.insert(values.end(), model->features(tap).begin(),
                    model->features(tap).end());
    }
    EXPECT_EQ(model->final_hidden().size(), 6u * 52);
    EXPECT_FALSE(model->vocabulary_head().has_value());
    EXPECT_FALSE(model->kept_kv().has_value());
  }
  EXPECT_EQ(seen[0], seen[1]);
}

// What the KV cache has lost and the store keeps, on all nodes.
TEST(LeaderModelTest, NodesBringBackTheSame) {
  const std::string dir = Checkpoint("f32");
  ModelOptions options = Options();
  options.kv_cache_bytes = 2 * 2 * 8 * 10 * 4 * 96;  // of 96 positions
  options.prefix_store.bytes = options.kv_cache_bytes;
  const auto backend = Backend("cpu", "auto");
  const auto one = InOneProcess(dir, backend, 1, options);
  NodeGroup group(dir, backend, 4, 2, options);
  std::vector<Values> seen;
  for (LanguageModel* model : {static_cast<LanguageModel*>(one.get()),
                               static_cast<LanguageModel*>(group.leader())}) {
    Values& all = seen.emplace_back();
    const std::vector<int32_t> tokens = Tokens(60, 3);
    const auto span = absl::MakeConstSpan(tokens);
    auto a = *model->NewSequence(60);
    Append(model->Forward({{a.get(), span.subspan(0, 50), 1}}), &all);
    a->Share(span.subspan(0, 50));
    a.reset();
    EXPECT_TRUE(
        model->NewSequence(static_cast<int>(model->kv_free_tokens())).ok());
    const auto b = *model->NewSequenceWithPrefix(60, span);
    EXPECT_GT(b->TakeOver(span, 100).brought, 0);
    EXPECT_EQ(b->length(), 48);
    Append(model->Forward({{b.get(), span.subspan(48, 4), 4}}), &all);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(LeaderModelTest, AStepIsOneMessage) {
  NodeGroup group(Checkpoint("f32"), Backend("cpu", "auto"), 2, 2, Options());
  LeaderModel* const model = group.leader();
  const std::vector<int32_t> tokens = {1, 2};
  const auto a = *model->NewSequence(20);
  const auto b = *model->NewSequence(20);
  a->Truncate(0);
  EXPECT_EQ(group.sent(), 0);
  EXPECT_TRUE(
      model->Forward({{a.get(), tokens, 1}, {b.get(), tokens, 1}}).ok());
  EXPECT_EQ(group.sent(), 1);
  // A service without steps keeps few.
  for (int i = 0; i < 300; ++i) a->Truncate(2);
  EXPECT_EQ(group.sent(), 2);
  // Nor is a message large.
  EXPECT_TRUE(model->Forward({{b.get(), tokens, 1}}).ok());
  EXPECT_EQ(group.sent(), 3);
  const auto c = *model->NewSequence(kContext);
  const std::vector<int32_t> text = Tokens(180, 1);
  ASSERT_TRUE(model->Forward({{c.get(), text, 1}}).ok());
  for (int i = 0; i < 200; ++i) c->Share(text);
  EXPECT_EQ(group.sent(), 5);
}

TEST(LeaderModelTest, WhatIsRefusedChangesNothing) {
  NodeGroup group(Checkpoint("f32"), Backend("cpu", "auto"), 2, 2, Options());
  LeaderModel* const model = group.leader();
  const auto sequence = *model->NewSequence(20);
  const std::vector<int32_t> bad = {1, kVocab}, good = {1, 2};
  EXPECT_EQ(model->Forward({{sequence.get(), bad, 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_EQ(model->NewSequence(kContext + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sequence->KeepPath(0, {5}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(model->Forward({{sequence.get(), good, 1}}).ok());
  EXPECT_EQ(sequence->length(), 2);
}

TEST(LeaderModelTest, ALostFollowerEndsTheModelForGood) {
  NodeGroup group(Checkpoint("f32"), Backend("cpu", "auto"), 4, 2, Options());
  LeaderModel* const model = group.leader();
  const auto sequence = *model->NewSequence(kContext);
  const std::vector<int32_t> tokens = Tokens(20, 4);
  const absl::Status reason = absl::UnavailableError("node 1 is lost");
  std::thread loses([&] { group.network().Lose(reason); });
  absl::Status status;
  while (status.ok()) {
    sequence->Truncate(0);
    status = model->Forward({{sequence.get(), tokens, 1}}).status();
  }
  loses.join();
  EXPECT_EQ(status, reason);
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_EQ(model->Forward({{sequence.get(), tokens, 1}}).status(), reason);
  EXPECT_EQ(group.FailureOf(1), reason);
}

// A follower on which something else came of it ends all nodes before it
// computes.
TEST(LeaderModelTest, AFollowerThatDiffersEndsTheModelWithItsName) {
  bool edited = false;
  NodeGroup group(Checkpoint("f32"), Backend("cpu", "auto"), 4, 4, Options(),
                  [&](int node, RankCommand* command) {
                    auto* cut = std::get_if<TruncateCommand>(&command->what);
                    if (node != 2 || cut == nullptr) return;
                    --cut->length;
                    edited = true;
                  });
  LeaderModel* const model = group.leader();
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = Tokens(20, 4);
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  sequence->Truncate(10);
  const absl::Status status =
      model->Forward({{sequence.get(), tokens, 1}}).status();
  EXPECT_TRUE(edited);
  EXPECT_THAT(status.ToString(),
              HasSubstr("node 2: of sequence 1 positions are 9 here, 10 at "
                        "the leader"));
}

}  // namespace
}  // namespace nacre::model
