#include "model/unread_tensors.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/model/with_tensors.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;

FurtherTensor OfShape(std::vector<int64_t> shape) {
  return {kernels::DType::kF32, std::move(shape), ""};
}

std::string WriteLlama(const std::string& name, bool is_tied = false) {
  TinyCheckpoint shape;
  shape.tie_word_embeddings = is_tied;
  const std::string dir = TestFolder(name);
  WriteTinyCheckpoint(shape, dir);
  return dir;
}

std::string UnreadOf(const std::string& dir) {
  kernels::BackendOptions options;
  options.kind = "reference";
  const auto backend = *kernels::CreateBackend(options);
  const auto model = LoadModel(dir, backend.get(), {1 << 20, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->info().unread : "";
}

TEST(UnreadTensorsTest, NothingIsSaidOfAWholeCheckpoint) {
  EXPECT_EQ(UnreadOf(WriteLlama("whole")), "");
  for (const char* golden : {"neox", "big_code", "mixtral", "qwen3_moe"}) {
    const auto config =
        nlohmann::json::parse(nacre::testing::ReadFile(absl::StrCat(
            NACRE_TEST_DATA, "/model/options/", golden, ".json")))["config"];
    const std::string dir = TestFolder(golden);
    nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
    EXPECT_EQ(UnreadOf(dir), "") << golden;
  }
}

TEST(UnreadTensorsTest, TheFirstNamesAreSaid) {
  const std::string dir = WriteLlama("biases");
  AddTensors(dir, {{"model.layers.1.self_attn.q_proj.bias", OfShape({60})}});
  EXPECT_EQ(UnreadOf(dir),
            "1 tensor of the checkpoint that the config has no use for: "
            "model.layers.1.self_attn.q_proj.bias");
  AddTensors(dir, {{"model.layers.0.self_attn.q_norm.weight", OfShape({10})},
                   {"lm_head.bias", OfShape({101})},
                   {"model.norm.bias", OfShape({52})}});
  EXPECT_EQ(UnreadOf(dir),
            "4 tensors of the checkpoint that the config has no use for: "
            "lm_head.bias, model.layers.0.self_attn.q_norm.weight, "
            "model.layers.1.self_attn.q_proj.bias, ...");
}

TEST(UnreadTensorsTest, OldBuffersAreNotCounted) {
  const std::string dir = WriteLlama("buffers", /*is_tied=*/true);
  const auto checkpoint = *Checkpoint::Open(dir);
  const Tensor table = *checkpoint->Find("model.embed_tokens.weight");
  AddTensors(dir,
             {{"model.layers.0.self_attn.rotary_emb.inv_freq", OfShape({5})},
              {"model.layers.0.self_attn.rotary_emb.cos_cached", OfShape({5})},
              {"model.layers.0.self_attn.rotary_emb.sin_cached", OfShape({5})},
              {"model.layers.0.self_attn.k_scale", OfShape({})},
              {"model.layers.0.self_attn.v_scale", OfShape({})},
              {"gpt_neox.layers.0.attention.bias", OfShape({1, 1, 4, 4})},
              {"gpt_neox.layers.0.attention.masked_bias", OfShape({})},
              {"transformer.h.0.attn.bias", OfShape({4, 4})},
              {"transformer.h.0.attn.masked_bias", OfShape({})},
              {"lm_head.weight",
               {table.dtype, table.shape, std::string(table.bytes)}}});
  EXPECT_EQ(UnreadOf(dir), "");
  // A vector under a mask's name is no mask.
  AddTensors(dir, {{"transformer.h.0.attn.bias", OfShape({52})}});
  EXPECT_EQ(UnreadOf(dir),
            "1 tensor of the checkpoint that the config has no use for: "
            "transformer.h.0.attn.bias");
}

}  // namespace
}  // namespace nacre::model
