#include "model/quantized/quantized_weights.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/config.h"
#include "model/expected_tensors.h"
#include "model/load_model.h"
#include "model/safetensors_writer.h"
#include "tests/model/quantized/raw_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::RawTensors;
using nacre::testing::ReadFile;
using nacre::testing::ReadRaw;
using nacre::testing::TestFolder;
using nacre::testing::WriteFile;
using nacre::testing::WriteRaw;
using ::testing::HasSubstr;

// tests/data/model/make_quantized_goldens.py made them.
constexpr const char* kGoldens[] = {"fp8_tensor",
                                    "fp8_channel",
                                    "fp8_channel_f16",
                                    "fp8_block",
                                    "int8_channel",
                                    "packed8_channel",
                                    "packed4_group",
                                    "packed4_zeros",
                                    "packed4_ordered",
                                    "packed4_zeros_ordered",
                                    "packed8_ordered",
                                    "awq",
                                    "gptq",
                                    "gptq_act_order",
                                    "gptq_v2",
                                    "gptq8",
                                    "gptq_one_group",
                                    "int8_zeros",
                                    "int8_tensor_zeros",
                                    "fp8_group",
                                    "fp8_block_ct",
                                    "phi3_fp8_channel",
                                    "phi3_fp8",
                                    "phi3_packed4",
                                    "phi3_awq",
                                    "phi3_gptq",
                                    "mixtral_fp8_tensor",
                                    "mixtral_fp8",
                                    "mixtral_packed4",
                                    "mixtral_awq",
                                    "mixtral_gptq",
                                    "qwen3_moe_fp8_block",
                                    "qwen3_moe_fp8_channel",
                                    "qwen3_moe_awq",
                                    "qwen3_moe_gptq",
                                    "qwen3_moe_packed4_router"};

// How many weights of a golden are quantized: of attention and feed-forward,
// or of attention, experts and, in the last one, the router.
int QuantizedCount(const std::string& golden) {
  if (absl::StartsWith(golden, "phi3")) return 2 + 2;
  if (absl::StartsWith(golden, "mixtral")) return 4 + 3 * 3;
  if (golden == "qwen3_moe_awq" || golden == "qwen3_moe_gptq") return 4 + 2 * 3;
  if (golden == "qwen3_moe_packed4_router") return 4 + 8 * 3 + 1;
  return absl::StartsWith(golden, "qwen3_moe") ? 4 + 8 * 3 : 4 + 3;
}

std::string GoldenFolder(const std::string& name) {
  return absl::StrCat(NACRE_TEST_DATA, "/model/quantized/", name);
}

class QuantizedGoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = GoldenFolder(GetParam());
};

// Bit for bit what the publisher's library makes of them.
TEST_P(QuantizedGoldenTest, WeightsArePublishers) {
  const auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto quantization =
      ReadQuantization(ReadFile(folder_ + "/config.json"));
  ASSERT_TRUE(quantization.ok()) << quantization.status();
  ASSERT_TRUE(quantization->has_value());
  const QuantizedWeights weights(**checkpoint, **quantization);
  const auto expected =
      *Checkpoint::OpenFile(folder_ + "/dequantized.safetensors");
  int count = 0;
  for (const std::string& name : expected->Names()) {
    const Tensor tensor = *expected->Find(name);
    if (tensor.shape.size() != 2) continue;  // a norm
    if (name == "model.embed_tokens.weight") continue;
    const auto is_quantized = weights.Has(name);
    ASSERT_TRUE(is_quantized.ok()) << is_quantized.status();
    if (!*is_quantized) {
      const bool is_router =
          absl::EndsWith(name, "mlp.gate.weight") ||
          absl::EndsWith(name, "block_sparse_moe.gate.weight");
      ASSERT_TRUE(name == "lm_head.weight" || is_router) << name;
      continue;
    }
    const auto values = weights.Read(name, static_cast<int>(tensor.shape[0]),
                                     static_cast<int>(tensor.shape[1]));
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->dtype, tensor.dtype) << name;
    EXPECT_EQ(*weights.TypeOf(name), tensor.dtype) << name;
    EXPECT_TRUE(values->bytes == tensor.bytes) << name;
    EXPECT_GT(values->stored_bytes, tensor.shape[0] * tensor.shape[1] / 2);
    ++count;
  }
  EXPECT_EQ(count, QuantizedCount(GetParam()));
}

// What is served answers like the checkpoint in floats.
TEST_P(QuantizedGoldenTest, ModelsAnswerAsInFloats) {
  const std::string dir = TestFolder("floats");
  auto config = nlohmann::json::parse(ReadFile(folder_ + "/config.json"));
  config.erase("quantization_config");
  WriteFile(dir + "/config.json", config.dump());
  std::filesystem::copy_file(folder_ + "/dequantized.safetensors",
                             dir + "/model.safetensors");
  for (const char* kind : {"reference", "cpu"}) {
    for (const char* weights : {"auto", "int8"}) {
      kernels::BackendOptions options;
      options.kind = kind;
      options.weights = weights;
      const auto backend = *kernels::CreateBackend(options);
      const auto logits = [&](const std::string& from) {
        const auto model = LoadModel(from, backend.get(), {1 << 20, {}});
        EXPECT_TRUE(model.ok()) << model.status();
        const std::vector<int32_t> ids = {1, 17, 4, 9, 20};
        const auto sequence = *(*model)->NewSequence(8);
        const SequenceRows rows = {sequence.get(), ids, 5};
        const auto result = (*model)->Forward({&rows, 1});
        return std::vector<float>(result->begin(), result->end());
      };
      const std::vector<float> expected = logits(dir);
      EXPECT_EQ(expected.size(), 5u * 24);
      EXPECT_EQ(logits(folder_), expected) << kind << " " << weights;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedGoldenTest,
                         ::testing::ValuesIn(kGoldens), [](const auto& info) {
                           return std::string(info.param);
                         });

constexpr char kQuery[] = "model.layers.0.self_attn.q_proj.";

// A change of a golden's files and what loading them says then.
struct Refusal {
  const char* golden;
  std::function<void(RawTensors*)> change;
  const char* message;  // after kQuery
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

nacre::testing::RawTensor& Query(RawTensors* tensors, const char* name) {
  return tensors->at(absl::StrCat(kQuery, name));
}

std::function<void(RawTensors*)> Without(const char* name) {
  return [name](RawTensors* tensors) {
    tensors->erase(absl::StrCat(kQuery, name));
  };
}

// Another type of as many bytes an element.
std::function<void(RawTensors*)> OfType(const char* name, const char* dtype) {
  return [=](RawTensors* tensors) { Query(tensors, name).dtype = dtype; };
}

// Half of the last dimension.
std::function<void(RawTensors*)> Halved(const char* name) {
  return [name](RawTensors* tensors) {
    auto& tensor = Query(tensors, name);
    tensor.shape.back() /= 2;
    tensor.bytes.resize(tensor.bytes.size() / 2);
  };
}

std::function<void(RawTensors*)> WithInt32(const char* name, size_t at,
                                           int32_t value) {
  return [=](RawTensors* tensors) {
    std::memcpy(Query(tensors, name).bytes.data() + 4 * at, &value, 4);
  };
}

std::function<void(RawTensors*)> With(const char* name,
                                      nacre::testing::RawTensor tensor) {
  return [=](RawTensors* tensors) {
    (*tensors)[absl::StrCat(kQuery, name)] = tensor;
  };
}

// What loading says of a change of `golden`'s files.
absl::Status LoadChanged(const std::string& golden,
                         const std::function<void(RawTensors*)>& change) {
  const auto backend = *kernels::CreateBackend({.kind = "reference"});
  const std::string dir = TestFolder("changed");
  WriteFile(dir + "/config.json",
            ReadFile(GoldenFolder(golden) + "/config.json"));
  RawTensors tensors = ReadRaw(GoldenFolder(golden) + "/model.safetensors");
  change(&tensors);
  WriteRaw(tensors, dir + "/model.safetensors");
  return LoadModel(dir, backend.get(), {1 << 20, {}}).status();
}

void ExpectRefusals(absl::Span<const Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    const absl::Status status = LoadChanged(refusal.golden, refusal.change);
    EXPECT_EQ(status.code(), refusal.code) << refusal.golden << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("tensor ", kQuery, refusal.message)))
        << refusal.golden;
  }
}

TEST(QuantizedWeightsTest, NamesTheTensorThatIsMissing) {
  const auto kCode = absl::StatusCode::kNotFound;
  ExpectRefusals({{
      {"fp8_tensor", Without("weight_scale"), "weight_scale is not", kCode},
      {"fp8_block", Without("weight_scale_inv"), "weight_scale_inv is not",
       kCode},
      {"fp8_channel", Without("weight"), "weight is not", kCode},
      {"packed4_group", Without("weight_packed"),
       "weight nor model.layers.0.self_attn.q_proj.weight_packed is", kCode},
      {"packed4_group", Without("weight_scale"), "weight_scale is not", kCode},
      {"packed4_group", Without("weight_shape"), "weight_shape is not", kCode},
      {"packed4_zeros", Without("weight_zero_point"),
       "weight_zero_point is not", kCode},
      {"awq", Without("qweight"),
       "weight nor model.layers.0.self_attn.q_proj.qweight is", kCode},
      {"awq", Without("scales"), "scales is not", kCode},
      {"awq", Without("qzeros"), "qzeros is not", kCode},
      {"gptq", Without("scales"), "scales is not", kCode},
      {"gptq", Without("qzeros"), "qzeros is not", kCode},
      {"gptq_act_order", Without("g_idx"), "g_idx is not", kCode},
      {"packed4_ordered", Without("weight_g_idx"), "weight_g_idx is not",
       kCode},
  }});
}

TEST(QuantizedWeightsTest, NamesTheTensorOfAnotherType) {
  const auto kCode = absl::StatusCode::kUnimplemented;
  ExpectRefusals({{
      {"fp8_tensor", OfType("weight", "F8_E5M2"),
       "weight: dtype F8_E5M2 is not supported; supported: F8_E4M3", kCode},
      {"fp8_tensor", OfType("weight", "I8"), "weight: dtype I8 is not", kCode},
      {"int8_channel", OfType("weight", "U8"),
       "weight: dtype U8 is not supported; supported: I8", kCode},
      {"fp8_tensor", OfType("weight_scale", "I16"),
       "weight_scale: dtype I16 is not supported; supported: BF16, F16, F32",
       kCode},
      {"packed4_group", OfType("weight_packed", "F32"),
       "weight_packed: dtype F32 is not", kCode},
      {"packed4_zeros", OfType("weight_zero_point", "U32"),
       "weight_zero_point: dtype U32 is not", kCode},
      {"awq", OfType("qweight", "U32"), "qweight: dtype U32 is not", kCode},
      {"awq", OfType("scales", "U16"), "scales: dtype U16 is not", kCode},
      {"gptq", OfType("qzeros", "F32"), "qzeros: dtype F32 is not", kCode},
      {"gptq_act_order", OfType("g_idx", "F32"), "g_idx: dtype F32 is not",
       kCode},
      {"packed8_ordered", OfType("weight_g_idx", "F32"),
       "weight_g_idx: dtype F32 is not", kCode},
  }});
}

TEST(QuantizedWeightsTest, NamesTheTensorOfAnotherShape) {
  ExpectRefusals({{
      {"fp8_tensor", Halved("weight"),
       "weight has shape [32, 16], the config implies [32, 32]"},
      {"fp8_tensor", With("weight_scale", {"BF16", {2}, "1234"}),
       "weight_scale has shape [2], the config implies [1, 1]"},
      {"fp8_channel", With("weight_scale", {"F32", {1}, "1234"}),
       "weight_scale has shape [1], the config implies [32, 1]"},
      {"fp8_block", With("weight_scale_inv", {"BF16", {1}, "12"}),
       "weight_scale_inv has shape [1], the config implies [2, 1]"},
      {"packed4_group", Halved("weight_packed"),
       "weight_packed has shape [32, 2], the config implies [32, 4]"},
      {"packed4_group", Halved("weight_scale"),
       "weight_scale has shape [32, 1], the config implies [32, 2]"},
      {"packed4_group", WithInt32("weight_shape", 0, 31),
       "weight_shape is [31, 32], the config implies [32, 32]"},
      {"packed4_zeros", Halved("weight_zero_point"),
       "weight_zero_point has shape [4, 1], the config implies [4, 2]"},
      {"awq", Halved("qweight"),
       "qweight has shape [32, 2], the config implies [32, 4]"},
      {"awq", Halved("qzeros"),
       "qzeros has shape [2, 2], the config implies [2, 4]"},
      {"awq", Halved("scales"),
       "scales has shape [2, 16], the config implies [2, 32]"},
      {"gptq", Halved("qweight"),
       "qweight has shape [4, 16], the config implies [4, 32]"},
      {"gptq8", Halved("qzeros"),
       "qzeros has shape [2, 4], the config implies [2, 8]"},
      {"gptq_act_order", Halved("g_idx"),
       "g_idx has shape [16], the config implies [32]"},
      {"packed4_ordered", Halved("weight_g_idx"),
       "weight_g_idx has shape [16], the config implies [32]"},
  }});
}

TEST(QuantizedWeightsTest, NamesWhatDoesNotFitTogether) {
  const nacre::testing::RawTensor floats = {
      "F16", {32, 32}, std::string(2048, '\0')};
  ExpectRefusals({{
      {"fp8_channel", With("weight", floats),
       "weight has dtype F16, but there is "
       "model.layers.0.self_attn.q_proj.weight_scale, too"},
      {"awq", With("weight", floats),
       "weight is in the checkpoint twice: as "
       "model.layers.0.self_attn.q_proj.qweight, too"},
      {"gptq_act_order", WithInt32("g_idx", 3, 2),
       "g_idx has group 2 at 3, expected 0 to 1"},
      {"gptq", WithInt32("g_idx", 3, -1),
       "g_idx has group -1 at 3, expected 0 to 1"},
      {"int8_channel",
       With("weight_zero_point", {"I8", {32, 1}, std::string(32, '\0')}),
       "weight_zero_point is in the checkpoint, but quantization_config says "
       "that weights are symmetric"},
      {"packed4_group",
       With("weight_g_idx", {"I32", {32}, std::string(128, '\0')}),
       "weight_g_idx is in the checkpoint, but quantization_config says that "
       "groups are of neighbours"},
      {"packed4_ordered", WithInt32("weight_g_idx", 3, 2),
       "weight_g_idx has group 2 at 3, expected 0 to 1"},
      {"packed4_ordered", WithInt32("weight_g_idx", 3, -1),
       "weight_g_idx has group -1 at 3, expected 0 to 1"},
      {"packed4_zeros_ordered",
       [](RawTensors* tensors) {
         std::string& bytes = Query(tensors, "weight_g_idx").bytes;
         bytes.assign(bytes.size(), '\0');
       },
       "weight_g_idx has 32 columns of group 0, expected 16"},
  }});
}

// As other writers have them.
TEST(QuantizedWeightsTest, NamesFusedTensorsAndExperts) {
  const std::string fused = "model.layers.0.self_attn.qkv_proj.";
  const std::string mixtral = "model.layers.0.block_sparse_moe.experts.2.w3.";
  const std::string qwen3 = "model.layers.0.mlp.experts.1.down_proj.";
  const std::string first = "model.layers.0.mlp.experts.0.gate_proj.";
  const struct {
    const char* golden;
    std::function<void(RawTensors*)> change;
    std::string message;
  } kRefusals[] = {
      // One scale for each part of a fused tensor.
      {"phi3_fp8",
       [&](RawTensors* all) {
         (*all)[fused + "weight_scale"] = {"F32", {3}, std::string(12, '\1')};
       },
       "tensor " + fused +
           "weight_scale has shape [3], the config implies [1, 1]"},
      // transformers' name for it, without its weight_block_size.
      {"phi3_fp8",
       [&](RawTensors* all) {
         (*all)[fused + "weight_scale_inv"] = all->at(fused + "weight_scale");
         all->erase(fused + "weight_scale");
       },
       "tensor " + fused + "weight_scale is not"},
      {"phi3_gptq",
       [&](RawTensors* all) { all->at(fused + "g_idx").bytes[0] = 2; },
       "tensor " + fused + "g_idx has group 2 at 0, expected 0 to 1"},
      {"mixtral_awq", [&](RawTensors* all) { all->erase(mixtral + "qzeros"); },
       "tensor " + mixtral + "qzeros is not"},
      {"mixtral_fp8",
       [&](RawTensors* all) { all->at(mixtral + "weight").dtype = "I8"; },
       "tensor " + mixtral +
           "weight: dtype I8 is not supported; supported: F8_E4M3"},
      {"qwen3_moe_gptq",
       [&](RawTensors* all) { all->at(qwen3 + "scales").dtype = "I16"; },
       "tensor " + qwen3 + "scales: dtype I16 is not supported"},
      {"qwen3_moe_fp8_block",
       [&](RawTensors* all) {
         (*all)[qwen3 + "weight_scale_inv"] = {"BF16", {1, 1}, "12"};
       },
       "tensor " + qwen3 +
           "weight_scale_inv has shape [1, 1], the config implies [2, 1]"},
      // All experts in one tensor.
      {"qwen3_moe_fp8_channel",
       [&](RawTensors* all) {
         (*all)["model.layers.0.mlp.experts.gate_up_proj"] = {
             "F8_E4M3", {8, 32, 32}, std::string(8 * 32 * 32, '\0')};
         all->erase(first + "weight");
       },
       "tensor " + first + "weight is not"},
  };
  for (const auto& refusal : kRefusals) {
    const std::string message(
        LoadChanged(refusal.golden, refusal.change).message());
    EXPECT_THAT(message, HasSubstr(refusal.message)) << refusal.golden;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

// AutoGPTQ has written biases for every layer, most of them 0. The config says
// which products have some.
TEST(QuantizedWeightsTest, BiasesThatTheConfigLacksMustBeZero) {
  const std::string bias = "model.layers.0.block_sparse_moe.experts.0.w1.bias";
  const auto with = [&](std::string bytes) {
    return LoadChanged("mixtral_gptq", [&](RawTensors* all) {
      (*all)[bias] = {"F16", {32}, bytes};
    });
  };
  std::string bytes(64, '\0');
  EXPECT_TRUE(with(bytes).ok()) << with(bytes);
  bytes[7] = 0x3C;  // 1
  EXPECT_EQ(with(bytes).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(with(bytes).message()),
              HasSubstr("tensor " + bias + " has 1 at 3, but by the config"));
}

TEST(QuantizedWeightsTest, TheHeadHasNoBiasesThatTheConfigLacksEither) {
  const auto with = [&](std::string bytes) {
    return LoadChanged("gptq", [&](RawTensors* all) {
      const int64_t rows = all->at("lm_head.weight").shape[0];
      bytes.resize(static_cast<size_t>(rows) * 2, '\0');
      (*all)["lm_head.bias"] = {"F16", {rows}, bytes};
    });
  };
  EXPECT_TRUE(with("").ok()) << with("");
  EXPECT_THAT(std::string(with(std::string("\0\x3C", 2)).message()),
              HasSubstr("tensor lm_head.bias has 1 at 0, but by the config"));
}

TEST(QuantizedWeightsTest, AnActivationHasNoScales) {
  const std::string scales = "model.layers.0.mlp.act.scales";
  const absl::Status status = LoadChanged("awq", [&](RawTensors* all) {
    (*all)[scales] = {"F16", {32}, std::string(64, '\0')};
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor " + scales + " divides the outputs of an"));
}

// Where no order of columns is said, groups follow each other.
TEST(QuantizedWeightsTest, GptqWithoutActOrderNeedsNoGIdx) {
  const std::string golden = GoldenFolder("gptq");
  const std::string dir = TestFolder("changed");
  RawTensors tensors = ReadRaw(golden + "/model.safetensors");
  Without("g_idx")(&tensors);
  WriteRaw(tensors, dir + "/model.safetensors");
  const auto quantization =
      *ReadQuantization(ReadFile(golden + "/config.json"));
  const auto changed = *Checkpoint::Open(dir);
  const auto checkpoint = *Checkpoint::Open(golden);
  const std::string name = absl::StrCat(kQuery, "weight");
  EXPECT_EQ(
      QuantizedWeights(*changed, *quantization).Read(name, 32, 32)->bytes,
      QuantizedWeights(*checkpoint, *quantization).Read(name, 32, 32)->bytes);
}

// compressed-tensors writes -1 for each column that has not been ordered.
TEST(QuantizedWeightsTest, ColumnsWithoutAnOrderAreNeighbours) {
  const std::string golden = GoldenFolder("packed4_ordered");
  auto quantization = *ReadQuantization(ReadFile(golden + "/config.json"));
  const std::string name = absl::StrCat(kQuery, "weight");
  const auto bytes = [&](const std::function<void(RawTensors*)>& change) {
    const std::string dir = TestFolder("changed");
    RawTensors tensors = ReadRaw(golden + "/model.safetensors");
    change(&tensors);
    WriteRaw(tensors, dir + "/model.safetensors");
    const auto checkpoint = *Checkpoint::Open(dir);
    const auto values =
        QuantizedWeights(*checkpoint, *quantization).Read(name, 32, 32);
    EXPECT_TRUE(values.ok()) << values.status();
    return values->bytes;
  };
  const std::string neighbours = bytes([](RawTensors* tensors) {
    for (size_t i = 0; i < 32; ++i) {
      WithInt32("weight_g_idx", i, i < 16 ? 0 : 1)(tensors);
    }
  });
  EXPECT_NE(bytes([](RawTensors*) {}), neighbours);
  EXPECT_EQ(bytes([](RawTensors* tensors) {
              auto& order = Query(tensors, "weight_g_idx").bytes;
              order.assign(order.size(), '\xFF');
            }),
            neighbours);
  quantization->orders_columns = false;
  EXPECT_EQ(bytes(Without("weight_g_idx")), neighbours);
}

// Sizes that are no whole words or groups.
TEST(QuantizedWeightsTest, NamesTheWeightThatDoesNotFitItsFormat) {
  const auto read = [](const char* golden, int rows, int cols) {
    const std::string folder = GoldenFolder(golden);
    const auto checkpoint = *Checkpoint::Open(folder);
    const auto quantization =
        *ReadQuantization(ReadFile(folder + "/config.json"));
    const auto values = QuantizedWeights(*checkpoint, *quantization)
                            .Read(absl::StrCat(kQuery, "weight"), rows, cols);
    EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(values.status().message());
  };
  EXPECT_THAT(read("awq", 30, 32), HasSubstr("q_proj.weight has 30 rows, which "
                                             "are no whole groups of 8"));
  EXPECT_THAT(read("awq", 32, 24), HasSubstr("24 columns, which are no whole "
                                             "groups of 16"));
  EXPECT_THAT(read("gptq", 32, 36), HasSubstr("36 columns, which are no whole "
                                              "groups of 8"));
  EXPECT_THAT(read("packed4_group", 32, 40),
              HasSubstr("40 columns, which are no whole groups of 16"));
}

// A quantized checkpoint whose config.json does not say so.
TEST(QuantizedWeightsTest, WithoutAConfigNothingIsGuessed) {
  const auto backend = *kernels::CreateBackend({.kind = "reference"});
  for (const char* golden : {"awq", "fp8_channel"}) {
    const std::string dir = TestFolder("changed");
    auto config =
        nlohmann::json::parse(ReadFile(GoldenFolder(golden) + "/config.json"));
    config.erase("quantization_config");
    WriteFile(dir + "/config.json", config.dump());
    WriteRaw(ReadRaw(GoldenFolder(golden) + "/model.safetensors"),
             dir + "/model.safetensors");
    EXPECT_THAT(
        std::string(
            LoadModel(dir, backend.get(), {1 << 20, {}}).status().message()),
        HasSubstr(absl::StrCat("tensor ", kQuery, "weight")));
  }
}

}  // namespace
}  // namespace nacre::model
