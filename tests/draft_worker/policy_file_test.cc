#include "draft_worker/policy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "tests/draft_worker/policy_folder.h"

namespace nacre::draft_worker {
namespace {

using speculation::PolicyKind;
using testing::CaliTsTensors;
using testing::DiscoTensors;
using testing::Filled;
using ::testing::HasSubstr;
using testing::HeadTensors;
using testing::NamedTensors;
using testing::PolicyFolder;

constexpr int kHidden = 4;

model::ModelInfo Draft() {
  model::ModelInfo info;
  info.fingerprint = "small";
  info.hidden_size = kHidden;
  return info;
}

class PolicyFileTest : public ::testing::Test {
 protected:
  // A good folder of that policy, which a test then spoils.
  void Write(PolicyKind kind) {
    folder_.WriteJson(speculation::InfoOf(kind).name, "small", "big");
    if (kind == PolicyKind::kDisco) folder_.WriteTensors(DiscoTensors());
    if (kind == PolicyKind::kCaliTs) {
      folder_.WriteTensors(CaliTsTensors(6, kHidden));
    }
    if (kind == PolicyKind::kSpecDecPlusPlus) {
      folder_.WriteTensors(HeadTensors(kHidden));
    }
  }
  absl::StatusOr<PolicyFile> Load(PolicyKind kind) {
    return LoadPolicyFile(folder_.path(), kind, Draft());
  }
  void ExpectError(PolicyKind kind, absl::StatusCode code,
                   const std::string& message) {
    const auto file = Load(kind);
    EXPECT_EQ(file.status().code(), code) << file.status();
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(message));
    EXPECT_THAT(std::string(file.status().message()),
                HasSubstr(folder_.path()));
  }
  void ExpectInvalid(PolicyKind kind, const std::string& message) {
    ExpectError(kind, absl::StatusCode::kInvalidArgument, message);
  }
  void ExpectTensorsRefused(PolicyKind kind, const NamedTensors& tensors,
                            const std::string& message) {
    folder_.WriteTensors(tensors);
    ExpectInvalid(kind, message);
  }

  PolicyFolder folder_;
};

TEST_F(PolicyFileTest, ReadsEveryKind) {
  Write(PolicyKind::kDisco);
  auto file = Load(PolicyKind::kDisco);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->target_fingerprint, "big");
  EXPECT_EQ(file->calibration.disco->hidden_bias.size(), 3u);
  EXPECT_EQ(file->calibration.defaults.kind(), PolicyKind::kDisco);

  Write(PolicyKind::kCaliTs);
  file = Load(PolicyKind::kCaliTs);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.cali_ts->target_size(), 6);
  EXPECT_EQ(file->calibration.cali_ts->draft_size(), kHidden);

  Write(PolicyKind::kSpecDecPlusPlus);
  file = Load(PolicyKind::kSpecDecPlusPlus);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.head->num_layers, 3);
  EXPECT_EQ(file->calibration.head->size(), size_t{kHidden});

  folder_.WriteJson("optimal-static", "small", "big",
                    {{"parameters", {{"gamma", 7}}}});
  file = Load(PolicyKind::kOptimalStatic);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.defaults.Given("gamma"), 7.0);

  folder_.WriteJson("svip", "small", "big",
                    {{"parameters", {{"h", 0.2}, {"max", 9}}}});
  file = Load(PolicyKind::kSvip);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.defaults.Given("h"), 0.2);
  EXPECT_EQ(file->calibration.defaults.Given("max"), 9.0);
}

// A published head holds its one block three times, or once.
TEST_F(PolicyFileTest, BothLayoutsOfTheTiedHeadAreTheSame) {
  Write(PolicyKind::kSpecDecPlusPlus);
  const auto all = Load(PolicyKind::kSpecDecPlusPlus);
  folder_.WriteTensors(HeadTensors(kHidden, 3, /*all_layers=*/false));
  const auto one = Load(PolicyKind::kSpecDecPlusPlus);
  ASSERT_TRUE(all.ok() && one.ok()) << all.status() << one.status();
  const std::vector<float> hidden = {1.0f, -2.0f, 0.5f, 3.0f};
  EXPECT_EQ(all->calibration.head->Accepted(hidden),
            one->calibration.head->Accepted(hidden));
  NamedTensors untied = HeadTensors(kHidden);
  untied["model.2.linear.bias"].values[1] += 1.0f;
  ExpectTensorsRefused(PolicyKind::kSpecDecPlusPlus, untied,
                       "model.2.linear is not equal to model.0.linear");
  NamedTensors half = HeadTensors(kHidden);
  half.erase("model.1.linear.bias");
  ExpectTensorsRefused(PolicyKind::kSpecDecPlusPlus, half,
                       "no tensor model.1.linear.bias");
}

TEST_F(PolicyFileTest, TheFilesParametersAreDefaults) {
  Write(PolicyKind::kDisco);
  folder_.WriteJson("disco", "small", "big",
                    {{"parameters", {{"threshold", 0.25}, {"max", 9}}}});
  const auto file = Load(PolicyKind::kDisco);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.defaults.text(), "disco:threshold=0.25,max=9");
  folder_.WriteJson("disco", "small", "big",
                    {{"parameters", {{"threshold", 2.0}}}});
  ExpectInvalid(PolicyKind::kDisco, "must be a number in [0, 1]");
  folder_.WriteJson("disco", "small", "big", {{"parameters", {{"h", 0.1}}}});
  ExpectInvalid(PolicyKind::kDisco, "no parameter \"h\"");
  folder_.WriteJson("disco", "small", "big", {{"parameters", 3}});
  ExpectInvalid(PolicyKind::kDisco, "\"parameters\" is not an object");
  for (const nlohmann::json& value : std::vector<nlohmann::json>{
           nullptr, true, {{"a", 1}}, nlohmann::json::array({0.5})}) {
    folder_.WriteJson("disco", "small", "big",
                      {{"parameters", {{"threshold", value}}}});
    ExpectInvalid(PolicyKind::kDisco,
                  "parameter \"threshold\" is neither a number nor a text");
  }
}

TEST_F(PolicyFileTest, AnotherDraftsFileIsRefused) {
  Write(PolicyKind::kDisco);
  folder_.WriteJson("disco", "other", "big");
  ExpectError(PolicyKind::kDisco, absl::StatusCode::kFailedPrecondition,
              "made for the draft with fingerprint other, this one has small");
}

TEST_F(PolicyFileTest, AnotherPolicysFileIsRefused) {
  Write(PolicyKind::kDisco);
  ExpectInvalid(PolicyKind::kSpecDecPlusPlus,
                "of policy \"disco\", not of specdec++");
}

TEST_F(PolicyFileTest, WhatIsMissingOrMalformedIsNamed) {
  ExpectError(PolicyKind::kDisco, absl::StatusCode::kNotFound, "policy.json");
  folder_.WriteJson("disco", "small", "big");
  ExpectError(PolicyKind::kDisco, absl::StatusCode::kNotFound,
              "policy.safetensors");
  folder_.WriteText("{");
  ExpectInvalid(PolicyKind::kDisco, "not a JSON object");
  folder_.WriteText("[]");
  ExpectInvalid(PolicyKind::kDisco, "not a JSON object");
  folder_.WriteText("{}");
  ExpectInvalid(PolicyKind::kDisco, "\"format\" is not 1");
  folder_.WriteText(R"({"format": 2})");
  ExpectInvalid(PolicyKind::kDisco, "\"format\" is not 1");
  folder_.WriteText(R"({"format": 1, "policy": 3})");
  ExpectInvalid(PolicyKind::kDisco, "\"policy\" is not a text");
  folder_.WriteText(R"({"format": 1, "policy": "disco"})");
  ExpectInvalid(PolicyKind::kDisco, "\"draft_fingerprint\" is not a text");
  folder_.WriteJson("disco", "small", "");
  ExpectInvalid(PolicyKind::kDisco, "\"target_fingerprint\" is not a text");
  folder_.WriteJson("optimal-static", "small", "big");
  ExpectInvalid(PolicyKind::kOptimalStatic, "has no gamma");
  folder_.WriteJson("svip", "small", "big", {{"parameters", {{"max", 9}}}});
  ExpectInvalid(PolicyKind::kSvip, "has no h");
  for (const nlohmann::json& layers :
       std::vector<nlohmann::json>{0, 17, "3", 2.5}) {
    folder_.WriteJson("specdec++", "small", "big", {{"num_layers", layers}});
    folder_.WriteTensors(HeadTensors(kHidden));
    ExpectInvalid(PolicyKind::kSpecDecPlusPlus,
                  "\"num_layers\" is not a whole number in [1, 16]");
  }
}

TEST_F(PolicyFileTest, FilesCutShortAreRefused) {
  for (const PolicyKind kind : {PolicyKind::kDisco, PolicyKind::kCaliTs,
                                PolicyKind::kSpecDecPlusPlus}) {
    Write(kind);
    const std::string weights = folder_.path() + "/policy.safetensors";
    ASSERT_TRUE(Load(kind).ok());
    for (auto size = std::filesystem::file_size(weights); size > 0;) {
      std::filesystem::resize_file(weights, --size);
      const auto file = Load(kind);
      ASSERT_TRUE(file.status().code() == absl::StatusCode::kDataLoss ||
                  file.status().code() == absl::StatusCode::kInvalidArgument)
          << size << ": " << file.status();
    }
    Write(kind);
    const std::string json = folder_.path() + "/policy.json";
    for (auto size = std::filesystem::file_size(json); size > 0;) {
      std::filesystem::resize_file(json, --size);
      ASSERT_EQ(Load(kind).status().code(), absl::StatusCode::kInvalidArgument)
          << size;
    }
  }
}

TEST_F(PolicyFileTest, WrongShapesAreRefused) {
  Write(PolicyKind::kDisco);
  NamedTensors tensors = DiscoTensors();
  tensors["hidden.weight"] = Filled({3, 11}, 0.0f);
  ExpectTensorsRefused(PolicyKind::kDisco, tensors,
                       "tensor hidden.weight has shape [3, 11], expected "
                       "[-1, 12] (-1: any)");
  tensors = DiscoTensors();
  tensors["hidden.bias"] = Filled({4}, 0.0f);
  ExpectTensorsRefused(PolicyKind::kDisco, tensors,
                       "hidden.bias has shape [4]");
  tensors = DiscoTensors();
  tensors.erase("output.bias");
  ExpectTensorsRefused(PolicyKind::kDisco, tensors, "no tensor output.bias");
  tensors = DiscoTensors();
  tensors["surplus"] = Filled({1}, 0.0f);
  ExpectTensorsRefused(PolicyKind::kDisco, tensors,
                       "tensor surplus is none of this policy's");
  Write(PolicyKind::kCaliTs);
  tensors = CaliTsTensors(6, kHidden + 1);
  ExpectTensorsRefused(PolicyKind::kCaliTs, tensors, "mix has shape [2, 11]");
  tensors = CaliTsTensors(6, kHidden);
  tensors["step_weights"] = Filled({10, 6, 5}, 0.0f);
  ExpectTensorsRefused(PolicyKind::kCaliTs, tensors, "step_weights has 300");
  // A head for hidden states of another size.
  Write(PolicyKind::kSpecDecPlusPlus);
  ExpectTensorsRefused(PolicyKind::kSpecDecPlusPlus, HeadTensors(5),
                       "model.0.linear.weight has shape [5, 5], expected "
                       "[4, 4]");
}

TEST_F(PolicyFileTest, WeightsThatAreNoNumbersAreRefused) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const auto spoil = [&](PolicyKind kind, NamedTensors tensors) {
    Write(kind);
    for (const auto& [name, tensor] : tensors) {
      NamedTensors spoilt = tensors;
      spoilt[name].values.back() = kNaN;
      ExpectTensorsRefused(kind, spoilt, "not a finite number");
    }
  };
  spoil(PolicyKind::kDisco, DiscoTensors());
  spoil(PolicyKind::kCaliTs, CaliTsTensors(6, kHidden));
  spoil(PolicyKind::kSpecDecPlusPlus,
        HeadTensors(kHidden, 3, /*all_layers=*/false));
}

}  // namespace
}  // namespace nacre::draft_worker
