#include "model/model_backend.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using kernels::DType;
using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TinyOf(DType dtype) {
  const std::string dir =
      TestFolder(absl::StrCat("type", static_cast<int>(dtype)));
  TinyCheckpoint shape;
  shape.dtype = dtype;
  WriteTinyCheckpoint(shape, dir);
  return dir;
}

bool HasBf16MatricesIn(const std::string& dir) {
  const auto checkpoint = Checkpoint::Open(dir);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto config = ReadConfig(dir);
  EXPECT_TRUE(config.ok()) << config.status();
  return HasBf16Matrices(**checkpoint, *config);
}

TEST(HasBf16MatricesTest, OfFloats) {
  EXPECT_TRUE(HasBf16MatricesIn(TinyOf(DType::kBF16)));
  EXPECT_FALSE(HasBf16MatricesIn(TinyOf(DType::kF32)));
  EXPECT_FALSE(HasBf16MatricesIn(TinyOf(DType::kF16)));
  EXPECT_TRUE(HasBf16MatricesIn(NACRE_MODELS "/target"));
}

// By what their values are rounded to: the type of their scales.
TEST(HasBf16MatricesTest, OfPublishedQuantizedFormats) {
  const std::map<std::string, bool> formats = {
      {"fp8_block", true},       {"fp8_tensor", true},
      {"fp8_channel", false},    {"fp8_channel_f16", false},
      {"int8_channel", true},    {"int8_tensor_zeros", false},
      {"packed4_zeros", true},   {"packed4_group", false},
      {"packed8_channel", true}, {"awq", false},
      {"gptq", false},           {"phi3_packed4", true},
      {"mixtral_fp8", false},    {"qwen3_moe_fp8_block", true}};
  for (const auto& [format, expected] : formats) {
    EXPECT_EQ(HasBf16MatricesIn(NACRE_TEST_DATA "/model/quantized/" + format),
              expected)
        << format;
  }
}

// One matrix of another type is enough; other tensors do not count.
TEST(HasBf16MatricesTest, AllOfTheLayersMustBe) {
  const std::string dir = TinyOf(DType::kBF16);
  const auto original = *Checkpoint::Open(dir);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : original->Names()) {
    tensors[name] = *original->Find(name);
  }
  const ModelConfig config = *ReadConfig(dir);
  const auto with = [&](const std::string& name) {
    std::map<std::string, Tensor> changed = tensors;
    EXPECT_EQ(changed.count(name), 1u) << name;
    changed[name].dtype = DType::kF16;
    return HasBf16Matrices(*Checkpoint::OfTensors(changed), config);
  };
  EXPECT_TRUE(with("model.embed_tokens.weight"));
  EXPECT_TRUE(with("lm_head.weight"));
  EXPECT_TRUE(with("model.layers.1.input_layernorm.weight"));
  EXPECT_FALSE(with("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(with("model.layers.1.mlp.down_proj.weight"));
  tensors.erase("model.layers.1.mlp.down_proj.weight");
  EXPECT_FALSE(HasBf16Matrices(*Checkpoint::OfTensors(tensors), config));
}

// Here or not, by the CPU of this machine.
TEST(CreateBackendForTest, AutoRoundsInputsWhereTheCpuMultipliesPairs) {
  const auto numerics_id = [](const std::string& dir, const char* kind,
                              const char* weights = "auto") {
    const auto backend =
        CreateBackendFor(dir, {.kind = kind, .weights = weights});
    EXPECT_TRUE(backend.ok()) << backend.status();
    return (*backend)->numerics_id();
  };
  const std::string bf16 = TinyOf(DType::kBF16);
  const bool rounds = kernels::CpuMultipliesPairs();
  const auto expected = kernels::CreateBackend(
      {.kind = "cpu", .weights = rounds ? "bf16a16" : "auto"});
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(numerics_id(bf16, "cpu"), (*expected)->numerics_id());
  EXPECT_EQ(numerics_id(bf16, "cpu").find("-pairs-") != std::string::npos,
            rounds);
  for (const std::string& other : {TinyOf(DType::kF32), TinyOf(DType::kF16)}) {
    EXPECT_THAT(numerics_id(other, "cpu"), Not(HasSubstr("bf16a16")));
  }
  // By name, inputs are float32.
  EXPECT_THAT(numerics_id(bf16, "cpu", "bf16"), Not(HasSubstr("bf16a16")));
  EXPECT_THAT(numerics_id(bf16, "reference"), Not(HasSubstr("bf16a16")));
}

// What is exact as it is stays so: a head of another type is enough.
TEST(WithAutoChosenTest, EveryMatrixMustBeBf16) {
  const std::string dir = TinyOf(DType::kBF16);
  const auto original = *Checkpoint::Open(dir);
  const ModelConfig config = *ReadConfig(dir);
  const auto chosen = [&](const std::string& name) {
    std::map<std::string, Tensor> tensors;
    for (const std::string& each : original->Names()) {
      tensors[each] = *original->Find(each);
      if (each == name) tensors[each].dtype = DType::kF16;
    }
    return WithAutoChosen(*Checkpoint::OfTensors(tensors), config,
                          {.kind = "cpu"})
        .weights;
  };
  EXPECT_EQ(chosen(""), kernels::CpuMultipliesPairs() ? "bf16a16" : "auto");
  EXPECT_EQ(chosen("model.norm.weight"), chosen(""));
  EXPECT_EQ(chosen("model.embed_tokens.weight"), "auto");
  EXPECT_EQ(chosen("lm_head.weight"), "auto");
  EXPECT_EQ(chosen("model.layers.1.mlp.down_proj.weight"), "auto");
}

TEST(CreateBackendForTest, HostsKeepKeysInF32UnlessTold) {
  const std::string dir = TinyOf(DType::kBF16);
  for (const char* kind : {"cpu", "reference"}) {
    for (const char* weights : {"auto", "bf16", "int8"}) {
      const auto backend =
          CreateBackendFor(dir, {.kind = kind, .weights = weights});
      ASSERT_TRUE(backend.ok()) << backend.status();
      EXPECT_EQ((*backend)->kv_type(), DType::kF32);
      EXPECT_THAT((*backend)->numerics_id(),
                  ::testing::Not(::testing::AnyOf(HasSubstr("kvbf16"),
                                                  HasSubstr("kvint8"))));
    }
    EXPECT_EQ(
        (*CreateBackendFor(dir, {.kind = kind, .kv_type = "bf16"}))->kv_type(),
        DType::kBF16);
    EXPECT_EQ(
        (*CreateBackendFor(dir, {.kind = kind, .kv_type = "int8"}))->kv_type(),
        DType::kInt8);
  }
}

TEST(CreateBackendForTest, PassesErrorsOn) {
  EXPECT_THAT(
      std::string(
          CreateBackendFor("/no/such", {.kv_type = "f8"}).status().message()),
      HasSubstr("kv-type is \"f8\", expected \"auto\", "));
  EXPECT_THAT(
      std::string(
          CreateBackendFor("/no/such", {.kind = "cuda"}).status().message()),
      HasSubstr("/no/such"));
}

}  // namespace
}  // namespace nacre::model
