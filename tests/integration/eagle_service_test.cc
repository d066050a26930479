// An EAGLE-3 draft through the real processes.

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

// A random draft of the bundled target with the target's own head.
std::string WriteDraft(const std::string& folder) {
  const auto target = model::ReadConfig(TargetModel());
  EXPECT_TRUE(target.ok()) << target.status();
  const int64_t size = target->hidden_size;
  const int64_t head = 32;
  const std::vector<model::TensorSpec> tensors = {
      {"fc.weight", kernels::DType::kBF16, {size, 3 * size}},
      {"midlayer.hidden_norm.weight", kernels::DType::kBF16, {size}},
      {"midlayer.input_layernorm.weight", kernels::DType::kBF16, {size}},
      {"midlayer.mlp.down_proj.weight", kernels::DType::kBF16, {size, 64}},
      {"midlayer.mlp.gate_proj.weight", kernels::DType::kBF16, {64, size}},
      {"midlayer.mlp.up_proj.weight", kernels::DType::kBF16, {64, size}},
      {"midlayer.post_attention_layernorm.weight",
       kernels::DType::kBF16,
       {size}},
      {"midlayer.self_attn.k_proj.weight",
       kernels::DType::kBF16,
       {head, 2 * size}},
      {"midlayer.self_attn.o_proj.weight",
       kernels::DType::kBF16,
       {size, 4 * head}},
      {"midlayer.self_attn.q_proj.weight",
       kernels::DType::kBF16,
       {4 * head, 2 * size}},
      {"midlayer.self_attn.v_proj.weight",
       kernels::DType::kBF16,
       {head, 2 * size}},
      {"norm.weight", kernels::DType::kBF16, {size}}};
  WriteRandomTensors(folder, tensors);
  EXPECT_TRUE(
      WriteFile(folder + "/config.json",
                absl::StrCat(
                    R"({"num_attention_heads": 4, "num_key_value_heads": 1, )",
                    R"("intermediate_size": 64, "head_dim": )", head,
                    R"(, "hidden_size": )", size, R"(, "vocab_size": )",
                    target->vocab_size, R"(, "rope_theta": 10000.0})"))
          .ok());
  return folder;
}

class EagleServiceTest : public OwnDraftsServiceTest {};

TEST_P(EagleServiceTest, ChangesNoToken) {
  const tools::TemporaryFolder folder;
  tools::Cluster::Options options = Service::Options(GetParam());
  options.more_args.target = {"--eagle", WriteDraft(folder.path())};
  ExpectNoTokenChanges(std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Drafts, EagleServiceTest, ::testing::Values(0, 1));

class TrainedEagleTest : public OwnDraftsTest {};

TEST_F(TrainedEagleTest, Helps) {
  ExpectTheyHelp("eagle", NACRE_MODELS "/eagle");
}

}  // namespace
}  // namespace nacre::integration
