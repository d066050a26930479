#include "model/load_model.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/families.h"
#include "model/weights.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::ReadFile;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteFile;
using nacre::testing::WriteTinyCheckpoint;
using ::testing::HasSubstr;

class LoadModelTest : public ::testing::Test {
 protected:
  LoadModelTest() {
    kernels::BackendOptions options;
    options.kind = "reference";
    backend_ = *kernels::CreateBackend(options);
  }

  absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const std::string& dir) {
    return LoadModel(dir, backend_.get(), {1 << 20, {}});
  }
  std::string WriteModel(const std::string& architecture) {
    TinyCheckpoint shape;
    shape.architecture = architecture;
    const std::string dir = TestFolder(architecture);
    WriteTinyCheckpoint(shape, dir);
    return dir;
  }
  // Rewrites one field of config.json.
  void Change(const std::string& dir, const char* field,
              const nlohmann::json& value) {
    auto config = nlohmann::json::parse(ReadFile(dir + "/config.json"));
    config[field] = value;
    WriteFile(dir + "/config.json", config.dump());
  }

  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(LoadModelTest, ReadsEveryFamily) {
  for (const std::string architecture :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
        "Qwen3ForCausalLM", "Phi3ForCausalLM", "MixtralForCausalLM",
        "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"}) {
    const auto model = Load(WriteModel(architecture));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT((*model)->info().description, HasSubstr(architecture));
    EXPECT_EQ((*model)->info().vocab_size, 101);
  }
}

TEST_F(LoadModelTest, RefusesAnUnknownFamilyAndListsWhatThereIs) {
  const std::string dir = WriteModel("LlamaForCausalLM");
  Change(dir, "architectures", nlohmann::json::array({"MambaForCausalLM"}));
  const absl::Status status = Load(dir).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            dir +
                "/config.json: architecture \"MambaForCausalLM\" is not "
                "supported; supported: " +
                SupportedArchitectures());
}

TEST_F(LoadModelTest, SaysWhatOfAMultimodalGemmaIsRead) {
  const std::string dir = WriteModel("LlamaForCausalLM");
  Change(dir, "architectures",
         nlohmann::json::array({"Gemma3ForConditionalGeneration"}));
  EXPECT_THAT(std::string(Load(dir).status().message()),
              HasSubstr("not supported; of Gemma 3 the text part alone is "
                        "read, as Gemma3ForCausalLM"));
}

TEST_F(LoadModelTest, NamesTheBiasThatIsMissing) {
  const std::string dir = WriteModel("LlamaForCausalLM");
  Change(dir, "architectures", nlohmann::json::array({"Qwen2ForCausalLM"}));
  const absl::Status status = Load(dir).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor model.layers.0.self_attn.q_proj.bias is not"));
}

// Of families whose fields and tensors have names of their own.
TEST_F(LoadModelTest, NamesWhatOtherBlocksLack) {
  struct Case {
    const char* golden;  // of tests/data/model/options: its config
    const char* field;
    nlohmann::json written;  // with the checkpoint
    nlohmann::json read;     // and after
    const char* message;
  };
  const Case kCases[] = {
      {"neox", "attention_bias", false, true,
       "tensor gpt_neox.layers.0.attention.query_key_value.bias is not"},
      {"neox", "intermediate_size", 84, 85,
       "tensor gpt_neox.layers.0.mlp.dense_h_to_4h.weight has shape [84, 60], "
       "the config implies [85, 60]"},
      {"starcoder2", "use_bias", false, true,
       "tensor model.layers.0.self_attn.q_proj.bias is not"},
      {"big_code", "n_positions", 200, 100,
       "tensor transformer.wpe.weight has shape [200, 60], the config "
       "implies [100, 60]"},
      {"big_code", "multi_query", true, false,
       "tensor transformer.h.0.attn.c_attn.weight has shape [80, 60], the "
       "config implies [180, 60]"},
      {"big_code", "n_layer", 2, 1,
       "the checkpoint holds transformer.h.1.attn.c_attn.bias, but "
       "n_layer is 1"},
  };
  for (const Case& bad : kCases) {
    const std::string dir = TestFolder(bad.golden);
    auto config = nlohmann::json::parse(ReadFile(absl::StrCat(
        NACRE_TEST_DATA, "/model/options/", bad.golden, ".json")))["config"];
    config[bad.field] = bad.written;
    nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
    Change(dir, bad.field, bad.read);
    EXPECT_THAT(std::string(Load(dir).status().message()),
                HasSubstr(bad.message));
  }
}

// Of a family that has more tensors.
TEST_F(LoadModelTest, NamesTheTensorThatIsMissing) {
  const struct {
    const char* architecture;
    const char* tensor;
  } cases[] = {{"Qwen3ForCausalLM", "self_attn.q_norm.weight"},
               {"Phi3ForCausalLM", "self_attn.qkv_proj.weight"},
               {"Gemma2ForCausalLM", "pre_feedforward_layernorm.weight"},
               {"MixtralForCausalLM", "block_sparse_moe.gate.weight"}};
  for (const auto& [architecture, tensor] : cases) {
    const std::string dir = WriteModel("LlamaForCausalLM");
    Change(dir, "architectures", nlohmann::json::array({architecture}));
    const absl::Status status = Load(dir).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << architecture;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("tensor model.layers.0.", tensor)));
  }
}

TEST_F(LoadModelTest, ScalesOfEmbeddingsAreRoundedToTheirType) {
  ModelConfig config;
  config.hidden_size = 3584;  // of Gemma 2 9B; its root is 59.866...
  EXPECT_EQ(EmbeddingScale(config, kernels::DType::kBF16), 59.75f);
  EXPECT_EQ(EmbeddingScale(config, kernels::DType::kF32), 59.86652f);
}

TEST_F(LoadModelTest, NamesAMissingFolder) {
  EXPECT_EQ(Load(TestFolder("empty") + "/no").status().code(),
            absl::StatusCode::kNotFound);
}

// The same model from its parts.
TEST_F(LoadModelTest, OfWeightsAtHandItIsTheSameModel) {
  const std::string dir = WriteModel("Qwen2ForCausalLM");
  const auto config_file = *MappedFile::Open(dir + "/config.json");
  const auto made =
      CreateModel(*ReadConfig(dir), config_file->bytes(),
                  *Checkpoint::Open(dir), backend_.get(), {1 << 20, {}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->info().fingerprint, (*Load(dir))->info().fingerprint);
}

}  // namespace
}  // namespace nacre::model
