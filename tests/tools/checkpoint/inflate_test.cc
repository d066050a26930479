#include "tools/checkpoint/inflate.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/checkpoint.h"
#include "model/eagle_model.h"
#include "model/expected_tensors.h"
#include "model/load_model.h"
#include "model/safetensors_writer.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::tools {
namespace {

using nacre::testing::ReadFile;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteFile;
using nacre::testing::WriteTinyCheckpoint;
using ::testing::HasSubstr;

// The logits of all rows of `tokens`.
std::vector<float> LogitsOf(const std::string& dir, kernels::Backend* backend,
                            const std::vector<int32_t>& tokens) {
  auto model = model::LoadModel(dir, backend, {1 << 24, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  auto sequence = (*model)->NewSequence(static_cast<int>(tokens.size()));
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  const auto logits = (*model)->Forward(
      {{sequence->get(), tokens, static_cast<int>(tokens.size())}});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->begin(), logits->end()};
}

class InflateBitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  InflateBitsTest() {
    kernels::BackendOptions options;
    options.kind = GetParam();
    backend_ = *kernels::CreateBackend(options);
  }

  void ExpectSameLogits(const std::string& in_dir, int num_layers,
                        int intermediate_size) {
    InflateOptions options;
    options.in_dir = in_dir;
    options.out_dir = TestFolder("out");
    options.num_layers = num_layers;
    options.intermediate_size = intermediate_size;
    options.seed = 3;
    const absl::Status status = InflateCheckpoint(options);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<int32_t> tokens = {1, 5, 99, 7, 7, 42, 0, 100, 3};
    const auto before = LogitsOf(in_dir, backend_.get(), tokens);
    const auto after = LogitsOf(options.out_dir, backend_.get(), tokens);
    ASSERT_EQ(before.size(), after.size());
    EXPECT_EQ(
        std::memcmp(before.data(), after.data(), before.size() * sizeof(float)),
        0)
        << num_layers << " layers, intermediate_size " << intermediate_size;
  }

  std::unique_ptr<kernels::Backend> backend_;
};

TEST_P(InflateBitsTest, LogitsOfSmallModelsKeepTheirBits) {
  for (const kernels::DType dtype :
       {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
    for (const int inter : {1, 63, 100, 256, 300}) {
      TinyCheckpoint shape;
      shape.dtype = dtype;
      shape.intermediate_size = inter;
      shape.tie_word_embeddings = dtype == kernels::DType::kBF16;
      const std::string dir = TestFolder("in");
      WriteTinyCheckpoint(shape, dir);
      ExpectSameLogits(dir, 2, inter + 64);
      ExpectSameLogits(dir, 5, inter);
      ExpectSameLogits(dir, 3, inter + 256);
    }
  }
}

TEST_P(InflateBitsTest, LogitsOfEveryFamilyKeepTheirBits) {
  for (const char* architecture :
       {"MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
        "Gemma2ForCausalLM", "MixtralForCausalLM"}) {
    TinyCheckpoint shape;
    shape.architecture = architecture;
    const std::string dir = TestFolder("in");
    WriteTinyCheckpoint(shape, dir);
    ExpectSameLogits(dir, 4, 100 + 64);
  }
}

// Those whose fields, norms and blocks are not Llama's.
TEST_P(InflateBitsTest, LogitsOfOtherBlocksKeepTheirBits) {
  for (const std::string name : {"neox", "neox_sequential", "starcoder2",
                                 "big_code", "big_code_many_heads"}) {
    const auto golden = nlohmann::json::parse(ReadFile(
        std::string(NACRE_TEST_DATA) + "/model/options/" + name + ".json"));
    const std::string dir = TestFolder("in");
    nacre::testing::WriteRandomCheckpoint(golden["config"].dump(), dir);
    ExpectSameLogits(dir, 5, 84 + 64);
  }
}

// A small Qwen3 with experts in the layers that `fields` say.
nlohmann::json SparseConfig(int num_layers, const nlohmann::json& fields) {
  auto config = nlohmann::json::parse(ReadFile(
      NACRE_TEST_DATA "/model/options/qwen3_moe_sparse_step.json"))["config"];
  config["num_hidden_layers"] = num_layers;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = nlohmann::json::array();
  config.update(fields);
  return config;
}

// Layers with experts and without: the last and the added ones differ, and in
// the last two inputs some added ones are of a kind that no layer has.
TEST_P(InflateBitsTest, LogitsOfLayersWithSomeExpertsKeepTheirBits) {
  const auto config = SparseConfig;
  for (const nlohmann::json& from :
       {config(3, {{"decoder_sparse_step", 2}}),
        config(4, {{"decoder_sparse_step", 2}}),
        config(3, {{"mlp_only_layers", {2}}}),
        config(3, {{"decoder_sparse_step", 4}}),
        config(2, {{"mlp_only_layers", {0, 1}}})}) {
    const std::string dir = TestFolder("in");
    nacre::testing::WriteRandomCheckpoint(from.dump(), dir);
    ExpectSameLogits(dir, 7, 84);
    ExpectSameLogits(dir, 7, 84 + 64);
  }
}

TEST_P(InflateBitsTest, LogitsOfTheBundledModelsKeepTheirBits) {
  ExpectSameLogits(std::string(NACRE_MODELS) + "/target", 8, 688 + 3 * 64);
  ExpectSameLogits(std::string(NACRE_MODELS) + "/draft", 3, 344 + 5 * 64);
}

INSTANTIATE_TEST_SUITE_P(Backends, InflateBitsTest,
                         ::testing::Values("reference", "cpu"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

class InflateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.in_dir = TestFolder("in");
    options_.out_dir = TestFolder("out") + "/new/folder";
    options_.num_layers = 3;
    WriteTinyCheckpoint({}, options_.in_dir);
  }
  std::string Error() { return InflateCheckpoint(options_).ToString(); }

  InflateOptions options_;
};

// A wider block would put columns between gate and up.
TEST_F(InflateTest, FusedTensorsKeepTheirWidth) {
  TinyCheckpoint shape;
  shape.architecture = "Phi3ForCausalLM";
  WriteTinyCheckpoint(shape, options_.in_dir);
  EXPECT_TRUE(InflateCheckpoint(options_).ok()) << Error();
  options_.intermediate_size = 164;
  EXPECT_THAT(Error(), HasSubstr("intermediate_size is 164, but "
                                 "Phi3ForCausalLM keeps gate and up in one "
                                 "tensor: expected 100"));
}

// Config files that name the type of each layer name those of the added ones.
TEST_F(InflateTest, RefusesQuantizedWeights) {
  InflateOptions options;
  options.in_dir = std::string(NACRE_TEST_DATA) + "/model/quantized/awq";
  options.out_dir = TestFolder("out");
  options.num_layers = 2;
  const absl::Status status = InflateCheckpoint(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("quantization_config is set, expected weights in"));
}

TEST_F(InflateTest, AddedLayersAreOfTheLastOnesType) {
  TinyCheckpoint shape;
  shape.architecture = "Qwen2ForCausalLM";
  WriteTinyCheckpoint(shape, options_.in_dir);
  const std::string path = options_.in_dir + "/config.json";
  auto config = nlohmann::json::parse(ReadFile(path));
  config["layer_types"] = std::vector<std::string>(2, "full_attention");
  WriteFile(path, config.dump());
  ASSERT_TRUE(InflateCheckpoint(options_).ok());
  config = nlohmann::json::parse(ReadFile(options_.out_dir + "/config.json"));
  EXPECT_EQ(config["layer_types"],
            nlohmann::json(std::vector<std::string>(3, "full_attention")));
}

// Writes zeros: bf16 in experts and routers, f16 in blocks without experts, f32
// elsewhere.
void WriteMixedTypes(const std::string& config_json, const std::string& dir) {
  WriteFile(dir + "/config.json", config_json);
  const auto config = *model::ParseConfig(config_json);
  std::vector<model::TensorSpec> specs;
  const auto add = [&](const model::ExpectedTensors& tensors) {
    for (const model::ExpectedTensor& tensor : tensors) {
      const bool is_block = tensor.name.find(".mlp.") != std::string::npos;
      const bool is_sparse =
          tensor.name.find(".mlp.gate.") != std::string::npos ||
          tensor.name.find(".experts.") != std::string::npos;
      specs.push_back({tensor.name,
                       is_sparse  ? kernels::DType::kBF16
                       : is_block ? kernels::DType::kF16
                                  : kernels::DType::kF32,
                       tensor.shape});
    }
  };
  add(model::ExpectedTensors::OutsideLayers(config));
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    add(model::ExpectedTensors::OfLayer(config, i));
  }
  const auto writer =
      *model::SafetensorsWriter::Create(dir + "/model.safetensors", specs);
  for (const model::TensorSpec& spec : specs) {
    size_t bytes = kernels::SizeOf(spec.dtype);
    for (const int64_t dim : spec.shape) bytes *= static_cast<size_t>(dim);
    const std::string zeros(bytes, '\0');
    ASSERT_TRUE(writer->Append(zeros.data(), bytes).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

TEST_F(InflateTest, AddedLayersHaveTheTypesOfTheLastOfTheirKind) {
  options_.num_layers = 5;
  for (const int step : {2, 4}) {
    WriteMixedTypes(SparseConfig(3, {{"decoder_sparse_step", step}}).dump(),
                    options_.in_dir);
    ASSERT_TRUE(InflateCheckpoint(options_).ok()) << Error();
    const auto written = *model::Checkpoint::Open(options_.out_dir);
    const auto type = [&](const std::string& name) {
      const auto tensor = written->Find("model.layers." + name + ".weight");
      EXPECT_TRUE(tensor.ok()) << tensor.status();
      return tensor->dtype;
    };
    // Without any to take them from, those of attention.
    const kernels::DType sparse =
        step == 2 ? kernels::DType::kBF16 : kernels::DType::kF32;
    EXPECT_EQ(type("3.mlp.gate"), sparse) << step;
    EXPECT_EQ(type("3.mlp.experts.1.down_proj"), sparse) << step;
    EXPECT_EQ(type("3.self_attn.q_proj"), kernels::DType::kF32) << step;
    EXPECT_EQ(type("4.mlp.down_proj"), kernels::DType::kF16) << step;
  }
}

TEST_F(InflateTest, WritesANewConfigAndCopiesTheTokenizer) {
  WriteFile(options_.in_dir + "/tokenizer.model", "pieces");
  WriteFile(options_.in_dir + "/generation_config.json",
            R"({"eos_token_id": 7})");
  options_.intermediate_size = 164;
  ASSERT_TRUE(InflateCheckpoint(options_).ok());
  const auto config = model::ReadConfig(options_.out_dir);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_hidden_layers, 3);
  EXPECT_EQ(config->intermediate_size, 164);
  EXPECT_EQ(config->hidden_size, 52);
  EXPECT_EQ(config->eos_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(ReadFile(options_.out_dir + "/tokenizer.model"), "pieces");
}

// Layers by their places from the end, and half way, are those of the input.
TEST_F(InflateTest, DraftsReadTheLayersThatWereThere) {
  const std::string data = std::string(NACRE_TEST_DATA) + "/model/eagle/";
  kernels::BackendOptions backend_options;
  backend_options.kind = "reference";
  const auto backend = *kernels::CreateBackend(backend_options);
  options_.in_dir = data + "target";
  for (const int layers : {8, 11, 12}) {
    options_.out_dir = TestFolder("deeper") + std::to_string(layers);
    options_.num_layers = layers;
    ASSERT_TRUE(InflateCheckpoint(options_).ok()) << Error();
    const auto target = *model::LoadModel(options_.out_dir, backend.get(),
                                          {.kv_cache_bytes = 1 << 18});
    EXPECT_EQ(target->info().num_layers, 8);
    const auto draft =
        model::EagleModel::Load(data + "safeailab", target.get());
    ASSERT_TRUE(draft.ok()) << draft.status();
    EXPECT_THAT((*draft)->description(), HasSubstr("layers 2, 4, 5 are given"));
    options_.in_dir = options_.out_dir;  // again
  }
  const std::string path = options_.out_dir + "/config.json";
  auto config = nlohmann::json::parse(ReadFile(path));
  for (const int wrong : {0, 13}) {
    config["nacre_original_num_hidden_layers"] = wrong;
    WriteFile(path, config.dump());
    const absl::Status status =
        model::LoadModel(options_.out_dir, backend.get(),
                         {.kv_cache_bytes = 1 << 18})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("nacre_original_num_hidden_layers is " +
                          std::to_string(wrong)));
  }
}

TEST_F(InflateTest, IsAPureFunctionOfTheSeed) {
  const auto weights = [&](uint64_t seed) {
    options_.seed = seed;
    EXPECT_TRUE(InflateCheckpoint(options_).ok());
    return ReadFile(options_.out_dir + "/model.safetensors");
  };
  const std::string first = weights(1);
  EXPECT_EQ(weights(1), first);
  EXPECT_NE(weights(2), first);
}

TEST_F(InflateTest, AddedWeightsAreWorkAndNotZeros) {
  options_.intermediate_size = 164;
  ASSERT_TRUE(InflateCheckpoint(options_).ok());
  const auto checkpoint = model::Checkpoint::Open(options_.out_dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const auto& [name, rows, cols, is_zero] :
       std::vector<std::tuple<std::string, int, int, bool>>{
           {"model.layers.2.self_attn.q_proj.weight", 60, 52, false},
           {"model.layers.2.mlp.up_proj.weight", 164, 52, false},
           {"model.layers.2.self_attn.o_proj.weight", 52, 60, true},
           {"model.layers.2.mlp.down_proj.weight", 52, 164, true}}) {
    const auto matrix = (*checkpoint)->Matrix(name, rows, cols);
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    std::vector<float> values(static_cast<size_t>(rows) * cols);
    std::memcpy(values.data(), matrix->data, values.size() * sizeof(float));
    const auto num_zeros = std::count(values.begin(), values.end(), 0.0f);
    EXPECT_EQ(num_zeros, is_zero ? rows * cols : 0) << name;
    for (const float value : values) ASSERT_LT(std::abs(value), 0.04f) << name;
  }
}

TEST_F(InflateTest, ReportsProgress) {
  std::vector<double> fractions;
  options_.progress = [&](absl::string_view, double fraction) {
    fractions.push_back(fraction);
  };
  ASSERT_TRUE(InflateCheckpoint(options_).ok());
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.front(), 0.0);
  EXPECT_EQ(fractions.back(), 1.0);
}

TEST_F(InflateTest, RefusesToMakeAModelSmallerOrUneven) {
  options_.num_layers = 1;
  EXPECT_THAT(Error(), HasSubstr("num_layers is 1, fewer than the 2"));
  options_.num_layers = 1 << 20;
  EXPECT_THAT(Error(), HasSubstr("num_hidden_layers is 1048576"));
  options_.num_layers = 2;
  for (const int size : {99, 36, 101, 163, -64}) {
    options_.intermediate_size = size;
    EXPECT_THAT(Error(), HasSubstr("expected 100 plus a multiple of 64"))
        << size;
  }
  EXPECT_FALSE(std::filesystem::exists(options_.out_dir));
}

TEST_F(InflateTest, RefusesItsInputFolderAsOutput) {
  options_.out_dir = options_.in_dir + "/../" +
                     std::filesystem::path(options_.in_dir).filename().string();
  const std::string before = ReadFile(options_.in_dir + "/model.safetensors");
  EXPECT_THAT(Error(), HasSubstr("is the input folder"));
  EXPECT_EQ(ReadFile(options_.in_dir + "/model.safetensors"), before);
}

TEST_F(InflateTest, ReadsNoGgufFile) {
  options_.in_dir = NACRE_TEST_DATA "/model/gguf/f32.gguf";
  EXPECT_EQ(InflateCheckpoint(options_),
            absl::UnimplementedError(options_.in_dir +
                                     " is a file: inflate reads folders only"));
}

TEST_F(InflateTest, ReportsMissingInputAndTheDisksErrors) {
  options_.out_dir = TestFolder("file");
  WriteFile(options_.out_dir + "/taken", "");
  options_.out_dir += "/taken/below";
  EXPECT_THAT(Error(), HasSubstr("create folder"));
  options_.in_dir += "/no";
  EXPECT_EQ(InflateCheckpoint(options_).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nacre::tools
