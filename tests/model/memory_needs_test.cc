// What is told before a load is what the load takes, to the byte.

#include "model/memory_needs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/cpu/coded_weights.h"
#include "model/load_model.h"
#include "model/safetensors_writer.h"
#include "model/weights.h"
#include "tests/model/named_backend.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::ReadFile;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;

int64_t SizeOf(const std::unique_ptr<kernels::Buffer>& buffer) {
  return buffer == nullptr ? 0 : static_cast<int64_t>(buffer->size_bytes());
}
int64_t SizeOf(const std::unique_ptr<kernels::PackedMatrix>& matrix) {
  return matrix == nullptr ? 0 : matrix->size_bytes();
}
int64_t SizeOf(const NormWeights& norm) {
  return SizeOf(norm.weight) + SizeOf(norm.bias);
}

int64_t SizeOf(const LayerWeights& layer) {
  int64_t bytes = SizeOf(layer.input_norm) + SizeOf(layer.qkv) +
                  SizeOf(layer.qkv_bias) + SizeOf(layer.query_norm) +
                  SizeOf(layer.key_norm) + SizeOf(layer.o) +
                  SizeOf(layer.o_bias) + SizeOf(layer.attention_post_norm) +
                  SizeOf(layer.mlp_norm) + SizeOf(layer.gate_up) +
                  SizeOf(layer.gate_up_bias) + SizeOf(layer.down) +
                  SizeOf(layer.down_bias) + SizeOf(layer.mlp_post_norm) +
                  SizeOf(layer.router);
  for (const ExpertWeights& expert : layer.experts) {
    bytes += SizeOf(expert.gate_up) + SizeOf(expert.down);
  }
  return bytes;
}

int64_t SizeOf(const Weights& weights) {
  int64_t bytes = SizeOf(weights.final_norm) + SizeOf(weights.head);
  for (const LayerWeights& layer : weights.layers) bytes += SizeOf(layer);
  return bytes;
}

// Of both.
void ExpectEqualNeeds(const std::string& path, kernels::Backend* backend,
                      double table_element_bytes) {
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelConfig config = *ReadConfig(path);
  const MemoryNeeds needs = MemoryNeeds::Of(**checkpoint, config, *backend);
  const auto weights = LoadWeights(**checkpoint, config, backend, {});
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(needs.weights, SizeOf(*weights));
  int64_t rows = weights->embedding->rows();
  if (weights->positions != nullptr) rows += weights->positions->rows();
  EXPECT_EQ(
      static_cast<double>(needs.tables),
      static_cast<double>(rows * config.hidden_size) * table_element_bytes);
}

class MemoryNeedsTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<kernels::Backend> backend_ = NamedBackend(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Backends, MemoryNeedsTest,
                         ::testing::Values("reference", "cpu", "cpu_f32",
                                           "cpu_bf16", "cpu_int8", "cpu_int4"));

TEST_P(MemoryNeedsTest, OfFamilies) {
  for (const std::string architecture :
       {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
        "Phi3ForCausalLM", "MixtralForCausalLM", "Gemma3ForCausalLM"}) {
    SCOPED_TRACE(architecture);
    TinyCheckpoint shape;
    shape.architecture = architecture;
    const std::string dir = TestFolder(architecture);
    WriteTinyCheckpoint(shape, dir);
    ExpectEqualNeeds(dir, backend_.get(), 4);
  }
}

TEST_P(MemoryNeedsTest, OfOtherBlocks) {
  for (const std::string golden : {"neox", "starcoder2", "big_code"}) {
    SCOPED_TRACE(golden);
    const auto config = nlohmann::json::parse(
        ReadFile(NACRE_TEST_DATA "/model/options/" + golden + ".json"));
    const std::string dir = TestFolder(golden);
    nacre::testing::WriteRandomCheckpoint(config["config"].dump(), dir);
    ExpectEqualNeeds(dir, backend_.get(), 4);
  }
}

TEST_P(MemoryNeedsTest, OfTypesAndTiedHeads) {
  TinyCheckpoint shape;
  shape.tie_word_embeddings = true;
  for (const auto dtype : {kernels::DType::kBF16, kernels::DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    shape.dtype = dtype;
    const std::string dir = TestFolder(DTypeName(dtype));
    WriteTinyCheckpoint(shape, dir);
    ExpectEqualNeeds(dir, backend_.get(), 2);
  }
}

TEST_P(MemoryNeedsTest, OfGguf) {
  const std::string path = NACRE_TEST_DATA "/model/gguf/q4_k.gguf";
  ExpectEqualNeeds(path, backend_.get(), 144.0 / 256);
  const MemoryNeeds needs =
      MemoryNeeds::Of(**Checkpoint::Open(path), *ReadConfig(path), *backend_);
  EXPECT_EQ(needs.num_factors,
            (32 + 16 + 16) * 256 + 256 * 32 + 3 * 32 * 256 + 40 * 256);
  const std::string name = GetParam();
  if (name == "cpu_int8") return;  // so small matrices are mostly padding
  EXPECT_EQ(needs.has_widened,
            name == "reference" || name == "cpu_f32" || name == "cpu_bf16");
}

// Of ranks: what is down and attention's output, of 32 inputs, a block each.
TEST_P(MemoryNeedsTest, ShardsThatArePartsOfBlocksAreFloats) {
  const std::string path = NACRE_TEST_DATA "/model/gguf/q4_k.gguf";
  const auto checkpoint = *Checkpoint::Open(path);
  const ModelConfig config = *ReadConfig(path);
  const auto needs = [&](int shards) {
    return MemoryNeeds::Of(*checkpoint, config, *backend_, shards);
  };
  const Tensor down =
      *checkpoint->Describe("model.layers.0.mlp.down_proj.weight");
  ASSERT_NE(down.groups, nullptr);
  const char no_data = 0;
  kernels::HostMatrix matrix = {down.dtype, &no_data, 256,
                                32,         nullptr,  down.groups};
  const int64_t in_blocks = backend_->PackedBytes({&matrix, 1});
  matrix.groups = nullptr;
  const int64_t in_floats = backend_->PackedBytes({&matrix, 1});
  EXPECT_EQ(in_floats > in_blocks, GetParam() == std::string("cpu"));
  EXPECT_EQ(needs(8).weights - needs(1).weights, 2 * (in_floats - in_blocks));
  if (GetParam() == std::string("cpu")) {
    EXPECT_TRUE(needs(8).has_widened);
    EXPECT_FALSE(needs(1).has_widened);
  }
}

TEST_P(MemoryNeedsTest, AreToldBeforeTheLoadWhichTheyMayEnd) {
  const std::string dir = TestFolder("told");
  WriteTinyCheckpoint({}, dir);
  MemoryNeeds told;
  bool has_begun = false;
  ModelOptions options = {1 << 20, {}};
  options.progress = [&](absl::string_view, double) { has_begun = true; };
  options.admit = [&](const MemoryNeeds& needs) {
    told = needs;
    return absl::ResourceExhaustedError("too much");
  };
  const absl::Status status = LoadModel(dir, backend_.get(), options).status();
  EXPECT_EQ(status.message(), "too much");
  EXPECT_FALSE(has_begun);
  EXPECT_GT(told.weights, 0);
  EXPECT_GT(told.tables, 0);
  EXPECT_EQ(told.kv_cache, 1 << 20);
  EXPECT_GT(told.scratch, 0);
  EXPECT_EQ(told.total(),
            told.weights + told.tables + told.kv_cache + told.scratch);
  options.admit = [](const MemoryNeeds&) { return absl::OkStatus(); };
  EXPECT_TRUE(LoadModel(dir, backend_.get(), options).ok());
}

// Gate and up, 64 x 32 each, at a time.
TEST_P(MemoryNeedsTest, OfQuantizedWeightsAreInTheTypeOfTheirScales) {
  const auto converted = [&](const char* name) {
    const std::string dir =
        absl::StrCat(NACRE_TEST_DATA "/model/quantized/", name);
    ExpectEqualNeeds(dir, backend_.get(), 2);
    return MemoryNeeds::Of(**Checkpoint::Open(dir), *ReadConfig(dir), *backend_)
        .converted;
  };
  EXPECT_EQ(converted("fp8_channel"), 2 * 64 * 32 * 4);
  EXPECT_EQ(converted("awq"), 2 * 64 * 32 * 2);
  EXPECT_EQ(converted("phi3_awq"), 2 * 64 * 32 * 2);
  // More than an expert's are those of queries, keys and values.
  EXPECT_EQ(converted("mixtral_gptq"), 3 * 32 * 32 * 2);
  EXPECT_EQ(converted("qwen3_moe_fp8_block"), 3 * 32 * 32 * 2);
}

// Matrices of 1 MB: queries to values, output, gate and up, down, head.
TEST(CodedMemoryNeedsTest, OfWeightsIn12BitsAreTheLeast) {
  if (kernels::FindCodedKernels() == nullptr) {
    GTEST_SKIP() << "no AVX-512 with VBMI and BF16 here";
  }
  const std::string dir = TestFolder("coded");
  WriteTinyCheckpoint({.hidden_size = 768,
                       .intermediate_size = 1024,
                       .num_attention_heads = 12,
                       .num_key_value_heads = 4,
                       .head_dim = 64,
                       .vocab_size = 1000,
                       .dtype = kernels::DType::kBF16},
                      dir);
  const auto checkpoint = *Checkpoint::Open(dir);
  const ModelConfig config = *ReadConfig(dir);
  for (const std::string name : {"cpu_bf16", "cpu_bf16a16"}) {
    SCOPED_TRACE(name);
    const auto backend = NamedBackend(name);
    const MemoryNeeds needs = MemoryNeeds::Of(*checkpoint, config, *backend);
    const auto weights = LoadWeights(*checkpoint, config, backend.get(), {});
    ASSERT_TRUE(weights.ok()) << weights.status();
    const kernels::SavedWeights saved = backend->Saved();
    EXPECT_EQ(SizeOf(*weights), needs.weights - saved.bytes);
    if (name == "cpu_bf16") {
      EXPECT_EQ(needs.may_be_saved, 0);
      EXPECT_EQ(saved.bytes, 0);
      continue;
    }
    EXPECT_EQ(saved.matrices, 2 * 4 + 1);
    EXPECT_EQ(saved.others, 0);
    // A quarter of the matrices but for what says what the codes mean, and
    // weights without one.
    EXPECT_GT(needs.may_be_saved, needs.weights / 5);
    EXPECT_LE(saved.bytes, needs.may_be_saved);
    EXPECT_GE(saved.bytes, needs.may_be_saved - needs.may_be_saved / 50);
  }
}

// As a file says it that is not to be trusted.
TEST_P(MemoryNeedsTest, OfATensorOfAnotherShapeAreNone) {
  const std::string dir = TestFolder("shapes");
  WriteTinyCheckpoint({}, dir);
  const auto checkpoint = *Checkpoint::Open(dir);
  ModelConfig config = *ReadConfig(dir);
  const MemoryNeeds right = MemoryNeeds::Of(*checkpoint, config, *backend_);
  config.vocab_size = 1 << 22;
  const MemoryNeeds vocabulary =
      MemoryNeeds::Of(*checkpoint, config, *backend_);
  EXPECT_EQ(vocabulary.tables, 0);
  EXPECT_LT(vocabulary.weights, right.weights);  // without the head
  EXPECT_GT(vocabulary.weights, right.weights / 2);
  config.hidden_size = 1 << 17;
  EXPECT_EQ(MemoryNeeds::Of(*checkpoint, config, *backend_).weights, 0);
}

TEST_P(MemoryNeedsTest, EndAtTheFirstTensorThatALayerLacks) {
  const std::string dir = TestFolder("layers");
  WriteTinyCheckpoint({}, dir);
  const auto checkpoint = *Checkpoint::Open(dir);
  ModelConfig config = *ReadConfig(dir);
  const MemoryNeeds right = MemoryNeeds::Of(*checkpoint, config, *backend_);
  config.num_hidden_layers = 1'000'000'000;  // would take hours
  const MemoryNeeds many = MemoryNeeds::Of(*checkpoint, config, *backend_);
  EXPECT_EQ(many.weights, right.weights);
  EXPECT_EQ(many.tables, right.tables);
}

TEST_P(MemoryNeedsTest, AWrongShapeIsSaidAlsoWhereThereIsLittleMemory) {
  const std::string dir = TestFolder("wrong");
  WriteTinyCheckpoint({}, dir);
  auto config = nlohmann::json::parse(ReadFile(dir + "/config.json"));
  config["vocab_size"] = 1 << 22;
  nacre::testing::WriteFile(dir + "/config.json", config.dump());
  ModelOptions options = {1 << 20, {}};
  options.admit = [](const MemoryNeeds& needs) {
    return needs.loaded() < 1 << 20 ? absl::OkStatus()
                                    : absl::ResourceExhaustedError("too much");
  };
  const absl::Status status = LoadModel(dir, backend_.get(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("the config implies [4194304, 52]"));
}

TEST(MemoryNeedsTextTest, IsInGigabytes) {
  MemoryNeeds needs = {.weights = 4'223'000'000,
                       .tables = 1'051'000'000,
                       .kv_cache = int64_t{1} << 30,
                       .scratch = 660'000'000};
  const std::string text =
      "7.008 GB: weights 4.223, embedding 1.051, KV cache 1.074, a step up to "
      "0.660";
  EXPECT_EQ(needs.ToString(), text);
  needs.num_factors = 7'504'000'000;
  const std::string text_of_bits =
      "7.008 GB: weights 4.223 (4.5 bits each), embedding 1.051, KV cache "
      "1.074, a step up to 0.660";
  EXPECT_EQ(needs.ToString(), text_of_bits);
  needs.has_widened = true;
  EXPECT_EQ(needs.ToString(),
            text_of_bits +
                "; integers of the file are floats here: other --weights may "
                "take less (docs/gguf.md)");
  needs.num_factors = 0;
  needs.has_widened = false;
  needs.converted = 470'000'000;
  EXPECT_EQ(needs.ToString(), text + ", while it loads up to 0.470");
  needs.may_be_saved = 1'000'000'000;
  EXPECT_EQ(needs.ToString(), text +
                                  "; weights may take 1.000 less"
                                  ", while it loads up to 0.470");
  EXPECT_EQ(needs.loaded_at_least(), 4'274'000'000);
  needs.converted = 2'000'000'000;
  EXPECT_EQ(needs.total(), 7'274'000'000);
  EXPECT_EQ(needs.loaded(), 5'274'000'000);
}

}  // namespace
}  // namespace nacre::model
