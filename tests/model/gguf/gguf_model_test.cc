// Models from GGUF files: the same bits as from the folders that they were
// converted from, and as from their values as gguf-py reads them
// (tests/data/model/gguf/make_gguf_goldens.py).

#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/load_model.h"
#include "tests/model/named_backend.h"
#include "tests/testing/gguf_checkpoint.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::gguf::GgufWriter;
using nacre::testing::GgufOfCheckpoint;
using nacre::testing::ReadFile;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteFile;
using ::testing::HasSubstr;

constexpr char kDir[] = NACRE_TEST_DATA "/model/gguf/";
constexpr const char* kKinds[] = {"f32",  "f16",  "bf16", "q8_0", "q4_0",
                                  "q4_1", "q5_0", "q5_1", "q2_k", "q3_k",
                                  "q4_k", "q5_k", "q6_k"};
constexpr char kFirstPart[] = "parts-00001-of-00004.gguf";

// All values as float32.
std::vector<float> ValuesOf(const Checkpoint& checkpoint,
                            const std::string& name) {
  const Tensor tensor = *checkpoint.Find(name);
  std::vector<float> values;
  const size_t size = kernels::SizeOf(tensor.dtype);
  for (size_t at = 0; at < tensor.bytes.size(); at += size) {
    float value;
    uint16_t bits;
    if (tensor.dtype == kernels::DType::kF32) {
      std::memcpy(&value, tensor.bytes.data() + at, sizeof(value));
    } else {
      std::memcpy(&bits, tensor.bytes.data() + at, sizeof(bits));
      value = tensor.dtype == kernels::DType::kF16 ? kernels::FromF16(bits)
                                                   : kernels::FromBF16(bits);
    }
    values.push_back(value);
  }
  return values;
}

std::string Sha256(const std::vector<float>& values) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(values.data()),
         values.size() * sizeof(float), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

std::vector<float> Logits(LanguageModel* model) {
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9};
  const auto sequence = *model->NewSequence(static_cast<int>(tokens.size()));
  const SequenceRows rows = {sequence.get(), tokens,
                             static_cast<int>(tokens.size())};
  const auto logits = model->Forward({&rows, 1});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return std::vector<float>(logits->begin(), logits->end());
}

absl::Status ErrorOf(const GgufWriter& writer) {
  const std::string path = TestFolder("bad") + "/bad.gguf";
  WriteFile(path, writer.Bytes());
  const auto backend = NamedBackend("reference");
  const absl::Status status =
      LoadModel(path, backend.get(), {1 << 20, {}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": "));
  return status;
}

void ExpectError(const GgufWriter& writer, absl::StatusCode code,
                 const std::string& message) {
  const absl::Status status = ErrorOf(writer);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

std::string TinyFolder(const TinyCheckpoint& shape) {
  const std::string dir = TestFolder("folder");
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  return dir;
}

void ExpectValues(const std::string& path, const nlohmann::json& hashes) {
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Names().size(), hashes.size());
  for (const auto& [name, hash] : hashes.items()) {
    EXPECT_EQ(Sha256(ValuesOf(**checkpoint, name)), hash) << path << name;
  }
}

TEST(GgufModelTest, ValuesAreThoseOfGgufPy) {
  const auto goldens =
      nlohmann::json::parse(ReadFile(absl::StrCat(kDir, "goldens.json")));
  for (const char* kind : kKinds) {
    ExpectValues(absl::StrCat(kDir, kind, ".gguf"), goldens[kind]);
  }
  ExpectValues(absl::StrCat(kDir, kFirstPart), goldens["parts"]);
}

TEST(GgufModelTest, DroppedValuesComeBack) {
  const auto checkpoint = *Checkpoint::Open(absl::StrCat(kDir, "q4_k.gguf"));
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const std::vector<float> values = ValuesOf(*checkpoint, name);
  checkpoint->GiveBack();
  EXPECT_EQ(ValuesOf(*checkpoint, name), values);
  EXPECT_EQ(checkpoint->Describe(name)->shape, (std::vector<int64_t>{32, 256}));
  EXPECT_EQ(checkpoint->StoredBytes(name), 32 * 144);
}

TEST(GgufModelTest, RowsAreComputedPieceByPiece) {
  for (const char* kind : kKinds) {
    const auto checkpoint =
        *Checkpoint::Open(absl::StrCat(kDir, kind, ".gguf"));
    for (const std::string name :
         {"model.layers.0.self_attn.q_proj.weight",  // in another order
          "model.layers.0.mlp.down_proj.weight"}) {
      const Tensor tensor = *checkpoint->Find(name);
      const std::string expected(tensor.bytes);
      const int num_rows = static_cast<int>(tensor.shape[0]);
      const MatrixRows rows =
          *checkpoint->Rows(name, num_rows, static_cast<int>(tensor.shape[1]));
      const size_t row_bytes = expected.size() / tensor.shape[0];
      std::string read;
      std::vector<char> scratch;
      for (int first = 0; first < num_rows; first += 7) {
        const int count = std::min(7, num_rows - first);
        read.append(
            static_cast<const char*>(rows.source->Read(first, count, &scratch)),
            count * row_bytes);
        rows.source->GiveBack(first, count);
      }
      EXPECT_TRUE(read == expected) << kind << " " << name;
    }
  }
}

// As a checkpoint of exactly these values.
TEST(GgufModelTest, ModelsAreThoseOfTheirValues) {
  for (const char* kind : kKinds) {
    const std::string path = absl::StrCat(kDir, kind, ".gguf");
    for (const char* name : {"reference", "cpu", "cpu_int8", "cpu_int4"}) {
      const auto backend = NamedBackend(name);
      const auto model = LoadModel(path, backend.get(), {1 << 20, {}});
      ASSERT_TRUE(model.ok()) << model.status();
      const auto stored = *Checkpoint::Open(path);
      std::map<std::string, Tensor> tensors;
      for (const std::string& tensor : stored->Names()) {
        tensors[tensor] = *stored->Find(tensor);
      }
      const auto same =
          CreateModel(*ReadConfig(path), "", Checkpoint::OfTensors(tensors),
                      backend.get(), {1 << 20, {}});
      ASSERT_TRUE(same.ok()) << same.status();
      EXPECT_EQ(Logits(model->get()), Logits(same->get())) << kind << name;
    }
  }
}

// Logits of all rows of a prompt, then of further rows.
std::vector<float> LogitsOfRows(LanguageModel* model, int first, int then) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < first + then; ++i) tokens.push_back((i * 7 + 3) % 40);
  const auto sequence = *model->NewSequence(first + then);
  const auto all = absl::MakeConstSpan(tokens);
  std::vector<float> values;
  for (const auto& rows : {all.first(static_cast<size_t>(first)),
                           all.last(static_cast<size_t>(then))}) {
    const SequenceRows batch = {sequence.get(), rows,
                                static_cast<int>(rows.size())};
    const auto logits = model->Forward({&batch, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    values.insert(values.end(), logits->begin(), logits->end());
  }
  return values;
}

void ExpectLogitsOfFloats(const std::string& path) {
  const auto integers = NamedBackend("cpu"), floats = NamedBackend("cpu_f32");
  const auto model = LoadModel(path, integers.get(), {1 << 20, {}});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto same = LoadModel(path, floats.get(), {1 << 20, {}});
  ASSERT_TRUE(same.ok()) << same.status();
  for (const int rows : {1, 2, 3, 5, 7, 12, 33, 64}) {
    EXPECT_EQ(LogitsOfRows(model->get(), 64, rows),
              LogitsOfRows(same->get(), 64, rows))
        << path << ", " << rows << " rows";
  }
}

// Bit for bit.
TEST(GgufModelTest, IntegersGiveTheLogitsOfTheirFloats) {
  for (const char* kind : kKinds) {
    ExpectLogitsOfFloats(absl::StrCat(kDir, kind, ".gguf"));
  }
}

// So that the blocks are no noise.
void ExpectNear(const Checkpoint& rounded, const Checkpoint& exact) {
  for (const std::string& name : exact.Names()) {
    const std::vector<float> values = ValuesOf(exact, name);
    const std::vector<float> near = ValuesOf(rounded, name);
    ASSERT_EQ(near.size(), values.size());
    const float most = 0.2f * *std::max_element(values.begin(), values.end());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(near[i], values[i], most) << name << " " << i;
    }
  }
}

// As in files of Q4_K_M, of every family: queries and keys are in Q4_K, values
// in Q6_K. What is down is F16, for its rows are no blocks.
TEST(GgufModelTest, MixedTypesGiveTheLogitsOfTheirFloats) {
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM",
                                   "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    for (const bool is_tied : {true, false}) {
      TinyCheckpoint shape;
      shape.architecture = architecture;
      shape.hidden_size = 256;
      shape.tie_word_embeddings = is_tied;
      const std::string dir = TinyFolder(shape);
      const std::string path = dir + "/mixed.gguf";
      WriteFile(path, nacre::testing::QuantizedGgufOfCheckpoint(dir).Bytes());
      const auto checkpoint = *Checkpoint::Open(path);
      const auto groups = [&](const char* name) {
        return checkpoint
            ->Describe(absl::StrCat("model.layers.1.", name, ".weight"))
            ->groups;
      };
      EXPECT_EQ(groups("self_attn.q_proj"), groups("self_attn.k_proj"));
      EXPECT_NE(groups("self_attn.q_proj"), groups("self_attn.v_proj"));
      EXPECT_NE(groups("self_attn.v_proj"), nullptr);
      EXPECT_EQ(groups("mlp.down_proj"), nullptr);
      ExpectNear(*checkpoint, **Checkpoint::Open(dir));
      ExpectLogitsOfFloats(path);
    }
  }
}

TEST(GgufModelTest, PartsAreOneModel) {
  const std::string first = absl::StrCat(kDir, kFirstPart);
  const auto parts = *Checkpoint::Open(first);
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const std::vector<float> values = ValuesOf(*parts, name);
  parts->GiveBack();
  EXPECT_EQ(ValuesOf(*parts, name), values);
  std::map<std::string, Tensor> tensors;
  for (const std::string& tensor : parts->Names()) {
    tensors[tensor] = *parts->Find(tensor);
  }
  const auto backend = NamedBackend("cpu");
  const auto model = LoadModel(first, backend.get(), {1 << 20, {}});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto same =
      CreateModel(*ReadConfig(first), "", Checkpoint::OfTensors(tensors),
                  backend.get(), {1 << 20, {}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(Logits(model->get()), Logits(same->get()));
}

TEST(GgufModelTest, PartsThatAreMissingAreNamed) {
  const std::string dir = TestFolder("missing_part");
  for (const int part : {1, 2, 4}) {
    const std::string name = absl::StrCat("parts-0000", part, "-of-00004.gguf");
    WriteFile(absl::StrCat(dir, "/", name), ReadFile(absl::StrCat(kDir, name)));
  }
  const auto backend = NamedBackend("reference");
  const absl::Status status = LoadModel(absl::StrCat(dir, "/", kFirstPart),
                                        backend.get(), {1 << 20, {}})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("parts-00003-of-00004.gguf: part 3 of 4 is missing: "));
}

TEST(GgufModelTest, ConfigsAreThoseOfTheMetadata) {
  const ModelConfig config = *ReadConfig(absl::StrCat(kDir, "q6_k.gguf"));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.intermediate_size, 32);
  EXPECT_EQ(config.num_hidden_layers, 1);
  EXPECT_EQ(config.num_attention_heads, 2);
  EXPECT_EQ(config.num_key_value_heads, 1);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab_size, 40);
  EXPECT_EQ(config.max_position_embeddings, 128);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.norms.epsilon, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2});
}

// Bit for bit, of every family and type.
TEST(GgufModelTest, ConvertedFoldersGiveTheSameLogits) {
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM",
                                   "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    for (const auto dtype :
         {kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16}) {
      TinyCheckpoint shape;
      shape.architecture = architecture;
      shape.dtype = dtype;
      shape.tie_word_embeddings = dtype == kernels::DType::kBF16;
      const std::string dir = TinyFolder(shape);
      const std::string path = dir + "/model.gguf";
      WriteFile(path, GgufOfCheckpoint(dir).Bytes());
      for (const char* name : {"reference", "cpu"}) {
        const auto backend = NamedBackend(name);
        const auto folder = LoadModel(dir, backend.get(), {1 << 20, {}});
        ASSERT_TRUE(folder.ok()) << folder.status();
        const auto file = LoadModel(path, backend.get(), {1 << 20, {}});
        ASSERT_TRUE(file.ok()) << file.status();
        EXPECT_EQ(Logits(file->get()), Logits(folder->get()))
            << architecture << name;
      }
    }
  }
}

// Each with its option: of the goldens that are compared with Hugging Face.
TEST(GgufModelTest, BiasesAndScalingGiveTheSameLogits) {
  for (const char* golden : {"llama_biases", "llama_linear", "llama_yarn"}) {
    const auto config = nlohmann::json::parse(ReadFile(absl::StrCat(
        NACRE_TEST_DATA, "/model/options/", golden, ".json")))["config"];
    const std::string dir = TestFolder(golden);
    nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
    GgufWriter writer = GgufOfCheckpoint(dir);
    const RopeScaling scaling = ReadConfig(dir)->rope.scaling;
    if (scaling.type != RopeScaling::Type::kDefault) {
      const bool is_yarn = scaling.type == RopeScaling::Type::kYarn;
      writer.String("llama.rope.scaling.type", is_yarn ? "yarn" : "linear");
      writer.F32("llama.rope.scaling.factor",
                 static_cast<float>(scaling.factor));
      if (is_yarn) {
        writer.U32(
            "llama.rope.scaling.original_context_length",
            static_cast<uint32_t>(scaling.original_max_position_embeddings));
      }
    }
    const std::string path = dir + "/model.gguf";
    WriteFile(path, writer.Bytes());
    const auto backend = NamedBackend("reference");
    const auto folder = LoadModel(dir, backend.get(), {1 << 20, {}});
    ASSERT_TRUE(folder.ok()) << folder.status();
    const auto file = LoadModel(path, backend.get(), {1 << 20, {}});
    ASSERT_TRUE(file.ok()) << golden << file.status();
    // The file says its context itself: nothing stretches it.
    EXPECT_EQ((*file)->info().context_length, (*folder)->info().context_length);
    EXPECT_EQ(Logits(file->get()), Logits(folder->get())) << golden;
  }
}

GgufWriter WithPairFactors(const std::string& dir,
                           const std::vector<float>& factors) {
  GgufWriter writer = GgufOfCheckpoint(dir);
  std::string bytes;
  for (const float factor : factors) bytes += GgufWriter::Raw(factor);
  writer.Tensor("rope_freqs.weight", 0, {5}, bytes);
  return writer;
}

// What the converter makes of Llama 3's scaling.
TEST(GgufModelTest, FactorsOfPairsAreRead) {
  const std::string dir = TinyFolder({});
  GgufWriter writer = WithPairFactors(dir, {1, 1, 2.5, 8, 8});
  const std::string path = dir + "/model.gguf";
  WriteFile(path, writer.Bytes());
  const auto config = ReadConfig(path);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.scaling.pair_factors,
            (std::vector<double>{1, 1, 2.5, 8, 8}));
  EXPECT_EQ(config->rope.scaling.magnitude, 1.0);
  const auto backend = NamedBackend("reference");
  const auto with = LoadModel(path, backend.get(), {1 << 20, {}});
  ASSERT_TRUE(with.ok()) << with.status();
  const auto without = LoadModel(dir, backend.get(), {1 << 20, {}});
  EXPECT_NE(Logits(with->get()), Logits(without->get()));
  const auto fingerprint = [&](const GgufWriter& changed) {
    WriteFile(dir + "/changed.gguf", changed.Bytes());
    const auto model =
        LoadModel(dir + "/changed.gguf", backend.get(), {1 << 20, {}});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->info().fingerprint;
  };
  EXPECT_EQ(fingerprint(writer), (*with)->info().fingerprint);
  EXPECT_NE(fingerprint(WithPairFactors(dir, {1, 1, 2.5, 8, 9})),
            (*with)->info().fingerprint);
  EXPECT_NE(fingerprint(GgufOfCheckpoint(dir)), (*with)->info().fingerprint);
  writer.F32("llama.rope.scaling.factor", 2.0f);
  ExpectError(writer, absl::StatusCode::kUnimplemented,
              "rope_freqs.weight beside");
}

TEST(GgufModelTest, EveryByteCountsInTheFingerprint) {
  const std::string dir = TestFolder("fingerprint");
  const std::string bytes = ReadFile(absl::StrCat(kDir, "q4_k.gguf"));
  const auto fingerprint = [&](const std::string& content) {
    WriteFile(dir + "/a.gguf", content);
    const auto backend = NamedBackend("reference");
    const auto model = LoadModel(dir + "/a.gguf", backend.get(), {1 << 20, {}});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->info().fingerprint;
  };
  const std::string first = fingerprint(bytes);
  EXPECT_EQ(fingerprint(bytes), first);
  std::string changed = bytes;
  changed[bytes.size() - 40] ^= 1;  // of output_norm
  EXPECT_NE(fingerprint(changed), first);
  changed = bytes;
  changed[bytes.find("[PAD37]") + 5] = '6';  // of the vocabulary
  EXPECT_NE(fingerprint(changed), first);
}

TEST(GgufModelTest, EndTokensAreThoseOfTheFileAndOfChatModels) {
  const std::string dir = TinyFolder({});
  GgufWriter writer = GgufOfCheckpoint(dir);
  writer.U32("tokenizer.ggml.eos_token_id", 7)
      .U32("tokenizer.ggml.eot_token_id", 3)
      .Strings("tokenizer.ggml.tokens",
               {"a", "<|im_end|>", "<|eot_id|>", "<|endoftext|>"})
      .Numbers<int32_t>("tokenizer.ggml.token_type", GgufWriter::kI32,
                        {1, 1, 3, 3});
  WriteFile(dir + "/a.gguf", writer.Bytes());
  EXPECT_EQ(ReadConfig(dir + "/a.gguf")->eos_token_ids,
            (std::vector<int32_t>{2, 3, 7}));
}

TEST(GgufModelTest, OldFilesSayTheirLayout) {
  const std::string dir = TinyFolder({});
  GgufWriter writer = GgufOfCheckpoint(dir);
  writer.String("llama.tensor_data_layout", "Meta AI original pth");
  WriteFile(dir + "/a.gguf", writer.Bytes());
  const auto config = ReadConfig(dir + "/a.gguf");
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(GgufModelTest, WhatIsNotReadIsNamed) {
  const auto missing = absl::StatusCode::kUnimplemented;
  const std::string dir = TinyFolder({});
  const auto good = [&] { return GgufOfCheckpoint(dir); };
  ExpectError(GgufWriter().String("general.architecture", "gemma2"), missing,
              "general.architecture \"gemma2\" of GGUF files is not supported; "
              "supported: \"llama\" (Mistral, too), \"qwen2\", \"qwen3\"");
  ExpectError(GgufWriter(), absl::StatusCode::kNotFound,
              "metadata general.architecture is missing");
  ExpectError(good().U32("llama.attention.sliding_window", 5), missing,
              "metadata \"llama.attention.sliding_window\" changes the model");
  ExpectError(good().String("llama.tensor_data_layout", "reference"), missing,
              "metadata \"llama.tensor_data_layout\" changes the model");
  ExpectError(good().U32("llama.expert_count", 8), missing,
              "metadata llama.expert_count is 8: experts are read from");
  ExpectError(good()
                  .U32("split.count", 3)
                  .U32("split.no", 0)
                  .U32("split.tensors.count", 9),
              absl::StatusCode::kInvalidArgument,
              "it is one of 3 parts, whose names must end in -00001-of-00003");
  ExpectError(good().U32("llama.rope.dimension_count", 4), missing,
              "metadata llama.rope.dimension_count 4 is not supported where "
              "heads have 10 dimensions");
  ExpectError(good().String("llama.rope.scaling.type", "longrope"), missing,
              "type \"longrope\" is not supported; supported: \"none\", "
              "\"linear\", \"yarn\"");
  ExpectError(good().Tensor("blk.2.attn_q.weight", 0, {1}, "1234"), missing,
              "tensor \"blk.2.attn_q.weight\" is none of a llama model of 2 "
              "layers that is read");
  // A double that no float holds.
  ExpectError(good().Pair("llama.rope.scale_linear", GgufWriter::kF64,
                          GgufWriter::Raw(1e300)),
              absl::StatusCode::kInvalidArgument,
              "metadata llama.rope.scale_linear is 1e+300, expected a number");
  ExpectError(good().Tensor("rope_freqs.weight", 0, {1}, "\xFF\xFF\xFF\xFF"),
              absl::StatusCode::kInvalidArgument, "expected numbers > 0");
}

TEST(GgufModelTest, TensorsAreNamed) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  for (const char* key : {"context_length", "embedding_length", "block_count",
                          "feed_forward_length", "attention.head_count"}) {
    writer.U32(absl::StrCat("llama.", key), 1);
  }
  writer.U32("llama.attention.key_length", 2);
  writer.U32("llama.attention.value_length", 2);
  ExpectError(writer, absl::StatusCode::kNotFound,
              "tensor token_embd.weight is missing");
  writer.Tensor("token_embd.weight", 0, {3, 1}, "123412341234");
  ExpectError(writer, absl::StatusCode::kNotFound,
              "metadata llama.attention.layer_norm_rms_epsilon is missing");
  writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  ExpectError(writer, absl::StatusCode::kNotFound,
              "tensor output_norm.weight is missing");
  ExpectError(
      GgufWriter(writer).Tensor("output_norm.weight", 0, {2}, "12341234"),
      absl::StatusCode::kInvalidArgument,
      "tensor output_norm.weight has shape [2], the metadata implies "
      "[1]");
  ExpectError(GgufWriter(writer).Tensor("output_norm.weight", 24, {1}, "1"),
              absl::StatusCode::kUnimplemented,
              "tensor output_norm.weight: type I8 is not supported; supported: "
              "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
              "Q4_K, Q5_K, Q6_K");
}

}  // namespace
}  // namespace nacre::model
