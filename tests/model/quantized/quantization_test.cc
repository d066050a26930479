#include "model/quantized/quantization.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

Json ConfigOf(const std::string& golden) {
  return Json::parse(nacre::testing::ReadFile(absl::StrCat(
      NACRE_TEST_DATA, "/model/quantized/", golden, "/config.json")));
}

Quantization Parsed(const std::string& golden) {
  const auto result = ParseQuantization(ConfigOf(golden));
  EXPECT_TRUE(result.ok()) << result.status();
  return result->value();
}

TEST(QuantizationTest, WithoutAConfigWeightsAreFloats) {
  EXPECT_FALSE(ReadQuantization("{}")->has_value());
  EXPECT_FALSE(
      ReadQuantization(R"({"quantization_config": null})")->has_value());
  EXPECT_FALSE(ReadQuantization("[]").ok());
}

TEST(QuantizationTest, ReadsWhatPublishersWrite) {
  const Quantization tensor = Parsed("fp8_tensor");
  EXPECT_EQ(tensor.format, QuantizedFormat::kElements);
  EXPECT_TRUE(tensor.is_float);
  EXPECT_EQ(tensor.block_rows, 0);
  const Quantization channel = Parsed("fp8_channel");
  EXPECT_EQ(channel.block_rows, 1);
  EXPECT_EQ(channel.block_cols, 0);
  const Quantization block = Parsed("fp8_block");
  EXPECT_EQ(block.block_rows, 16);
  EXPECT_EQ(block.block_cols, 32);
  EXPECT_TRUE(block.has_inverse_name);
  const Quantization whole = Parsed("mixtral_fp8");
  EXPECT_EQ(whole.format, QuantizedFormat::kElements);
  EXPECT_TRUE(whole.is_float);
  EXPECT_EQ(whole.block_rows, 0);
  EXPECT_FALSE(whole.has_inverse_name);
  const Quantization packed = Parsed("packed4_zeros");
  EXPECT_EQ(packed.format, QuantizedFormat::kPacked);
  EXPECT_EQ(packed.bits, 4);
  EXPECT_TRUE(packed.has_zeros);
  EXPECT_EQ(packed.block_cols, 16);
  EXPECT_FALSE(packed.orders_columns);
  EXPECT_TRUE(Parsed("packed4_ordered").orders_columns);
  EXPECT_EQ(Parsed("awq").format, QuantizedFormat::kAwq);
  const Quantization gptq = Parsed("gptq_act_order");
  EXPECT_EQ(gptq.format, QuantizedFormat::kGptq);
  EXPECT_TRUE(gptq.orders_columns);
  EXPECT_TRUE(gptq.zeros_lack_one);
  EXPECT_FALSE(Parsed("gptq_v2").zeros_lack_one);
  EXPECT_EQ(Parsed("gptq8").bits, 8);
  EXPECT_EQ(Parsed("gptq_one_group").block_cols, 0);
}

// Of older writers.
TEST(QuantizationTest, ReadsOtherNamesOfTheSame) {
  Json config = ConfigOf("gptq");
  Json& gptq = config["quantization_config"];
  gptq.erase("checkpoint_format");
  gptq.erase("pack_dtype");
  gptq["dynamic"] = {{"-:lm_head", Json::object()}};
  EXPECT_TRUE(ParseQuantization(config)->value().zeros_lack_one);
  gptq["format"] = "gptq_v2";
  EXPECT_FALSE(ParseQuantization(config)->value().zeros_lack_one);
  config = ConfigOf("awq");
  config["quantization_config"]["version"] = "GEMM";
  EXPECT_TRUE(ParseQuantization(config).ok());
  config = ConfigOf("fp8_channel");
  Json& compressed = config["quantization_config"];
  compressed["config_groups"]["group_0"].erase("format");
  compressed["quantization_status"] = "frozen";
  EXPECT_TRUE(ParseQuantization(config)->value().is_float);
  config = ConfigOf("packed4_ordered");
  Json& weights =
      config["quantization_config"]["config_groups"]["group_0"]["weights"];
  const auto has_order = [&](const Json& name) {
    weights["actorder"] = name;
    return ParseQuantization(config)->value().orders_columns;
  };
  EXPECT_TRUE(has_order("dynamic"));
  EXPECT_TRUE(has_order(true));
  for (const Json& none : {Json("static"), Json("weight"), Json(false)}) {
    EXPECT_FALSE(has_order(none)) << none;
  }
}

struct ConfigRefusal {
  const char* golden;
  const char* field;  // a pointer under quantization_config
  Json value;
  const char* message;
};

TEST(QuantizationTest, NamesWhatItDoesNotRead) {
  const ConfigRefusal kRefusals[] = {
      {"awq", "/quant_method", "bitsandbytes",
       "quant_method \"bitsandbytes\" is not supported; supported: "
       "\"compressed-tensors\", \"fp8\", \"awq\", \"gptq\""},
      {"awq", "/quant_method", nullptr, "quant_method null is not"},
      {"awq", "/bits", 3, "bits 3 is not supported; supported: 4"},
      {"awq", "/version", "gemv", "version \"gemv\" is not"},
      {"awq", "/zero_point", false, "zero_point false is not"},
      {"awq", "/backend", "llm-awq", "backend \"llm-awq\" is not"},
      {"awq", "/group_size", 0, "group_size 0 is not"},
      {"awq", "/group_size", "x", "group_size is \"x\", expected an integer"},
      {"gptq", "/bits", 3, "bits 3 is not supported; supported: 4, 8"},
      {"gptq", "/bits", nullptr, "bits null is not"},
      {"gptq", "/checkpoint_format", "marlin",
       "checkpoint_format \"marlin\" is not supported; supported: \"gptq\", "
       "\"gptq_v2\""},
      {"gptq", "/pack_dtype", "int16", "pack_dtype \"int16\" is not"},
      {"gptq", "/is_marlin_format", true, "is_marlin_format true is not"},
      {"gptq", "/group_size", -2, "group_size is -2, expected"},
      {"gptq", "/desc_act", "yes", "desc_act is \"yes\""},
      {"gptq",
       "/dynamic",
       {{"+:.*down.*", {{"bits", 8}}}},
       "dynamic has \"+:.*down.*\": layers that are quantized in another way"},
      {"fp8_block", "/weight_block_size", nullptr,
       "weight_block_size null is not"},
      {"fp8_block",
       "/weight_block_size",
       {128, 0},
       "weight_block_size is 0, expected"},
      {"fp8_block", "/scale_fmt", "ue8m0", "scale_fmt \"ue8m0\" is not"},
      {"mixtral_fp8", "/fmt", "e5m2", "fmt \"e5m2\" is not supported"},
      {"fp8_tensor", "/config_groups/group_0/format", "nvfp4-pack-quantized",
       "format \"nvfp4-pack-quantized\" is not"},
      {"fp8_tensor", "/config_groups/group_0/weights", nullptr,
       "a group with weights"},
      {"fp8_tensor", "/config_groups/group_1", Json::object(),
       "config_groups 2 is not supported; supported: one group"},
      {"fp8_tensor", "/config_groups/group_0/weights/strategy", "tensor_group",
       "strategy of weights \"tensor_group\" is not"},
      {"fp8_tensor", "/config_groups/group_0/weights/num_bits", 4,
       "num_bits of weights 4 is not supported; supported: 8"},
      {"fp8_tensor", "/config_groups/group_0/weights/symmetric", false,
       "symmetric of weights of type \"float\" false is not"},
      {"packed4_group", "/config_groups/group_0/weights/num_bits", 3,
       "num_bits of weights 3 is not supported; supported: 4, 8"},
      {"packed4_group", "/config_groups/group_0/weights/type", "float",
       "type of weights \"float\" is not supported; supported: \"int\""},
      {"packed4_group", "/config_groups/group_0/weights/group_size", nullptr,
       "group_size is missing"},
      {"packed4_group", "/config_groups/group_0/weights/actorder", "random",
       "actorder of weights \"random\" is not"},
      {"packed4_ordered", "/config_groups/group_0/weights/strategy", "channel",
       "strategy of weights with actorder \"group\" \"channel\" is not"},
      {"packed4_zeros", "/config_groups/group_0/weights/strategy", "tensor",
       "strategy of weights that are not symmetric \"tensor\" is not"},
      {"packed4_group",
       "/sparsity_config",
       {{"format", "sparse-24-bitmask"}},
       "format of sparsity_config \"sparse-24-bitmask\" is not"},
      {"packed4_group",
       "/transform_config",
       {{"config_groups", Json::object()}},
       "transform_config {\"config_groups\":{}} is not supported"},
  };
  for (const ConfigRefusal& refusal : kRefusals) {
    Json config = ConfigOf(refusal.golden);
    config["quantization_config"][Json::json_pointer(refusal.field)] =
        refusal.value;
    EXPECT_THAT(std::string(ParseQuantization(config).status().message()),
                HasSubstr(refusal.message))
        << refusal.golden << refusal.field;
  }
  EXPECT_THAT(
      std::string(
          ReadQuantization(R"({"quantization_config": 3})").status().message()),
      HasSubstr("quantization_config is 3, expected an object"));
  EXPECT_THAT(
      std::string(
          ReadQuantization(R"({"compression_config": {}})").status().message()),
      HasSubstr("compression_config is not supported"));
}

}  // namespace
}  // namespace nacre::model
