// GliDe drafts against PyTorch (tests/data/model/make_glide_goldens.py), with
// as much of the target's keys as there is, trees of guesses, and what is
// refused.

#include "model/glide_model.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/json_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/glide_golden.h"
#include "tests/testing/table_model.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

class GlideModelTest : public DraftBackendTest {};

TEST_P(GlideModelTest, EachKindSaysWhatPyTorchSays) {
  for (const std::string kind : kGlideKinds) {
    SCOPED_TRACE(kind);
    const GlideGolden golden = ReadGlideGolden(kind);
    EXPECT_EQ(golden.cases.size(), 7u);
    GlidePair pair(GetParam(), GlideFolder(kind));
    ASSERT_TRUE(pair.status.ok()) << pair.status;
    EXPECT_LE(pair.Difference(golden), DraftTolerance(GetParam()));
  }
}

TEST_P(GlideModelTest, ChunksOfAPromptGiveTheSameBits) {
  for (const std::string kind : kGlideKinds) {
    SCOPED_TRACE(kind);
    const GlideGolden golden = ReadGlideGolden(kind);
    GlidePair pair(GetParam(), GlideFolder(kind));
    const auto kept = pair.Fed(golden.prompt);
    for (const GlideCase& each : golden.cases) {
      const auto whole = pair.Run(golden.prompt, each, *kept);
      for (const size_t chunk : {1, 3}) {
        EXPECT_EQ(pair.Run(golden.prompt, each, *kept, chunk), whole) << chunk;
      }
    }
  }
}

// A row sees nothing after the position before its own: rows of a prompt are
// what they are, however much further the target is.
TEST_P(GlideModelTest, ARowSeesOnlyWhatIsBeforeIt) {
  const GlideGolden golden = ReadGlideGolden("two_layers");
  GlidePair pair(GetParam(), GlideFolder("two_layers"));
  const auto kept = pair.Fed(golden.prompt);
  GlideCase each = golden.cases.front();
  each.fed.clear();
  const auto whole = pair.Run(golden.prompt, each, *kept);
  each.target = static_cast<int>(golden.prompt.size());
  EXPECT_EQ(pair.Run(golden.prompt, each, *kept), whole);
}

// Guesses beside each other: each has the bits of the chain that its path
// spells, whatever else is in the call, and however much of another sequence's
// target there is.
TEST_P(GlideModelTest, ATreeHasTheBitsOfItsPaths) {
  const GlideGolden golden = ReadGlideGolden("two_layers");
  GlidePair pair(GetParam(), GlideFolder("two_layers"));
  const auto kept = pair.Fed(golden.prompt);
  const int count = static_cast<int>(golden.prompt.size());
  for (const int there : {count - 1, 3, 0}) {
    SCOPED_TRACE(there);
    // 3 after the prompt, and 5; then 8 after 3, 9 after 5 and 8 after 5.
    const auto sequence = *pair.glide->NewSequence(40, GlidePair::kSlots);
    const auto other = *pair.glide->NewSequence(40, GlidePair::kSlots);
    const TargetKv target = {pair.target->KvTable(*kept), there};
    FeatureRows rows = {sequence.get(), golden.prompt, {}, {}, 1, target};
    FeatureRows beside = rows;
    beside.sequence = other.get();
    beside.target.length = 5;
    const FeatureRows both[] = {beside, rows};
    ASSERT_TRUE(pair.glide->Forward(both).ok());
    const Ids first = {3, 5};
    const std::vector<TreeNode> firsts = {{6, kNoSlot, count},
                                          {2, kNoSlot, count}};
    const auto said = pair.Rows({sequence.get(), first, {}, firsts, 2, target});
    const Ids second = {8, 9, 8};
    const std::vector<TreeNode> seconds = {
        {0, 6, count + 1}, {1, 2, count + 1}, {7, 2, count + 1}};
    const auto deeper =
        pair.Rows({sequence.get(), second, {}, seconds, 3, target});
    const std::vector<std::vector<LogitRow>> paths = {
        {said[0], deeper[0]}, {said[1], deeper[1]}, {said[1], deeper[2]}};
    const std::vector<Ids> fed = {{3, 8}, {5, 9}, {5, 8}};
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto chain = pair.Run(golden.prompt, {there, 0, fed[i], {}}, *kept);
      const std::vector<LogitRow> last(chain.end() - 2, chain.end());
      EXPECT_EQ(last, paths[i]) << i;
    }
    EXPECT_EQ(sequence->length(), count);
    sequence->Clear();
    EXPECT_EQ(sequence->length(), 0);
    EXPECT_EQ(pair.Rows(rows).size(), 1u) << "from the start again";
  }
}

// What the target verified in slots, and kept, is as if it had been fed there.
TEST_P(GlideModelTest, SeesPathsThatTheTargetKept) {
  const GlideGolden golden = ReadGlideGolden("one_layer");
  GlidePair pair(GetParam(), GlideFolder("one_layer"));
  const GlideCase& each = golden.cases.front();
  const auto whole = pair.Fed(golden.prompt);
  const auto said = pair.Run(golden.prompt, each, *whole);
  const int count = static_cast<int>(golden.prompt.size());
  const auto kept =
      pair.Fed(absl::MakeConstSpan(golden.prompt).first(count - 3));
  const std::vector<TreeNode> nodes = {{3, kNoSlot, count - 3},
                                       {1, 3, count - 2}};
  SequenceRows rows = {
      kept.get(), absl::MakeConstSpan(golden.prompt).subspan(count - 3, 2), 1};
  rows.nodes = nodes;
  ASSERT_TRUE(pair.target->Forward({&rows, 1}).ok());
  ASSERT_TRUE(kept->KeepPath(count - 3, {3, 1}).ok());
  EXPECT_EQ(kept->length(), count - 1);
  EXPECT_EQ(pair.Run(golden.prompt, each, *kept), said);
}

INSTANTIATE_TEST_SUITE_P(Backends, GlideModelTest,
                         ::testing::Values(NACRE_DRAFT_BACKENDS),
                         NameOfBackend);

TEST(GlideModelsTest, AreDescribed) {
  const GlidePair pair("cpu", GlideFolder("two_layers"));
  EXPECT_THAT(pair.glide->description(),
              HasSubstr("GliDe over keys and values of layers 6, 7 of 8"));
  EXPECT_EQ(pair.glide->max_depth(), 5);
  EXPECT_EQ(pair.glide->feature_size(), 0);
  const std::vector<FeatureTap> taps = {{FeatureTap::Kind::kKv, 6},
                                        {FeatureTap::Kind::kKv, 7}};
  EXPECT_EQ(pair.glide->taps(), absl::MakeConstSpan(taps));
}

TEST(GlideModelsTest, ASequenceThatFindsNoRoomIsRefused) {
  const GlidePair pair("cpu", GlideFolder("one_layer"));
  EXPECT_EQ(pair.glide->NewSequence(1 << 20, GlidePair::kSlots).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Of a folder whose config.json is changed.
absl::Status Refusal(const std::function<void(Json*)>& change) {
  const std::string folder = CopyOfGlide("two_layers", "glide_refused");
  Json json = Json::parse(nacre::testing::ReadFile(folder + "/config.json"));
  change(&json);
  nacre::testing::WriteFile(folder + "/config.json", json.dump());
  return GlidePair("cpu", folder).status;
}

TEST(GlideModelsTest, WhatTheConfigSaysOfTensorsIsChecked) {
  absl::Status status =
      Refusal([](Json* json) { (*json)["intermediate_size"] = 35; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("mlp.gate_proj.weight has shape [36, 16], the config "
                        "implies [35, 16]"));
  status = Refusal([](Json* json) { (*json)["num_hidden_layers"] = 1; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.layers.1."));
  status = Refusal([](Json* json) { (*json)["num_hidden_layers"] = 3; });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.layers.2."));
}

// A Llama without cross attention, and the tensors of one with other heads.
TEST(GlideModelsTest, TensorsOfCrossAttentionAreChecked) {
  const GlidePair plain("cpu", EagleFolder("target"));
  EXPECT_THAT(std::string(plain.status.message()),
              HasSubstr("large_num_attention_heads is missing"));
  const std::string folder = CopyOfGlide("one_layer", "glide_cross");
  const std::string path = folder + "/model.safetensors";
  const std::string file = nacre::testing::ReadFile(path);
  const auto status = [&](const std::string& from, const std::string& to) {
    std::string changed = file;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    nacre::testing::WriteFile(path, changed);
    return GlidePair("cpu", folder).status;
  };
  EXPECT_THAT(
      std::string(status("cross_attn.q_proj", "cross_attn.k_proj").message()),
      HasSubstr("tensor model.layers.0.cross_attn.k_proj.weight is none of a "
                "GliDe draft of 1 layers"));
  const absl::Status missing = status("cross_attn.q_proj", "other_attn.q_proj");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("model.layers.0.cross_attn.q_proj.weight"));
  EXPECT_THAT(std::string(status("[24,16]", "[16,24]").message()),
              HasSubstr("cross_attn.q_proj.weight has shape [16, 24], the "
                        "config implies [24, 16]"));
}

TEST(GlideModelsTest, FilesThatAreNoneAreRefused) {
  const auto status = [](const std::string& path) {
    return GlidePair("cpu", path).status;
  };
  EXPECT_EQ(status(nacre::testing::TestFolder("glide_empty")).code(),
            absl::StatusCode::kNotFound);
  const std::string folder = CopyOfGlide("one_layer", "glide_fingerprint");
  nacre::testing::WriteFile(folder + "/nacre_draft.json",
                            R"({"target_fingerprint": "beef"})");
  EXPECT_THAT(std::string(status(folder).message()),
              HasSubstr("of the target beef"));
}

TEST(GlideModelsTest, ATargetThatShowsNothingIsRefused) {
  const nacre::testing::TableModel table({});
  const auto glide = GlideModel::Load(GlideFolder("one_layer"), table);
  EXPECT_EQ(glide.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(glide.status().message()),
              HasSubstr("a GliDe draft of a model that keeps no features"));
}

}  // namespace
}  // namespace nacre::model
