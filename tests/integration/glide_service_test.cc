// A GliDe draft through the real processes, with a draft worker's trees beside
// it and without.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "kernels/dtype.h"
#include "model/config.h"
#include "model/safetensors_writer.h"
#include "tests/integration/own_drafts_service.h"
#include "tests/integration/random_draft.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

// A random draft of one layer over the last of the bundled target.
std::string WriteGlide(const std::string& folder) {
  const auto target = model::ReadConfig(TargetModel());
  EXPECT_TRUE(target.ok()) << target.status();
  const int64_t size = 64;
  const int64_t large = target->q_size();
  std::vector<model::TensorSpec> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back(
        {absl::StrCat(name, ".weight"), kernels::DType::kBF16, shape});
  };
  // In the order of their names.
  const std::string layer = "model.layers.0.";
  add("lm_head", {target->vocab_size, size});
  add("model.embed_tokens", {target->vocab_size, size});
  add(layer + "cross_attn.o_proj", {size, large});
  add(layer + "cross_attn.q_proj", {large, size});
  add(layer + "input_layernorm", {size});
  add(layer + "mlp.down_proj", {size, 96});
  add(layer + "mlp.gate_proj", {96, size});
  add(layer + "mlp.up_proj", {96, size});
  add(layer + "post_attention_layernorm", {size});
  add(layer + "self_attn.k_proj", {32, size});
  add(layer + "self_attn.o_proj", {size, 64});
  add(layer + "self_attn.q_proj", {64, size});
  add(layer + "self_attn.v_proj", {32, size});
  add("model.norm", {size});
  WriteRandomTensors(folder, tensors);
  EXPECT_TRUE(
      WriteFile(
          folder + "/config.json",
          absl::StrCat(
              R"({"num_attention_heads": 2, "num_key_value_heads": 1, )",
              R"("intermediate_size": 96, "head_dim": 32, "hidden_size": )",
              size, R"(, "num_hidden_layers": 1, "vocab_size": )",
              target->vocab_size, R"(, "max_position_embeddings": 2048, )",
              R"("large_num_attention_heads": )", target->num_attention_heads,
              R"(, "large_head_dim": )", target->head_dim, "}"))
          .ok());
  return folder;
}

class GlideServiceTest : public OwnDraftsServiceTest {};

TEST_P(GlideServiceTest, ChangesNoToken) {
  const tools::TemporaryFolder folder;
  tools::Cluster::Options options = Service::Options(GetParam());
  options.more_args.target = {"--glide", WriteGlide(folder.path())};
  ExpectNoTokenChanges(std::move(options), {"best", "cape"});
}

INSTANTIATE_TEST_SUITE_P(Drafts, GlideServiceTest, ::testing::Values(0, 1));

class TrainedGlideTest : public OwnDraftsTest {};

TEST_F(TrainedGlideTest, Helps) {
  ExpectTheyHelp("glide", NACRE_MODELS "/glide");
}

}  // namespace
}  // namespace nacre::integration
