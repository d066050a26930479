#include "tools/calibrate/policy_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "draft_worker/policy_file.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

model::ModelInfo Draft(const std::string& fingerprint) {
  model::ModelInfo info;
  info.fingerprint = fingerprint;
  info.hidden_size = 4;
  return info;
}

speculation::DiscoWeights Weights() {
  speculation::DiscoWeights weights;
  for (int i = 0; i < 2 * speculation::kDiscoInputs; ++i) {
    weights.hidden_weight.push_back(0.1f * static_cast<float>(i));
  }
  weights.hidden_bias = {0.25f, -3.0f};
  weights.output_weight = {1.5f, -0.5f};
  weights.output_bias = 0.125f;
  return weights;
}

std::vector<std::string> Names(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// What is written is what a draft worker reads.
TEST(WritePolicyFolderTest, ADraftWorkerLoadsIt) {
  const TemporaryFolder folder;
  const std::string dir = folder.path() + "/new/disco";
  PolicyDescription description = {"disco", "small", "big"};
  description.parameters = {{"threshold", 0.45}, {"max", 12}};
  description.calibration = {{"prompts", 7}};
  const absl::Status status = WritePolicyFolder(dir, description, Weights());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(Names(dir),
              UnorderedElementsAre("policy.json", "policy.safetensors"));
  using speculation::PolicyKind;
  const auto file =
      draft_worker::LoadPolicyFile(dir, PolicyKind::kDisco, Draft("small"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->target_fingerprint, "big");
  EXPECT_EQ(file->calibration.defaults.text(), "disco:threshold=0.45,max=12");
  const speculation::DiscoWeights& weights = *file->calibration.disco;
  EXPECT_EQ(weights.hidden_weight, Weights().hidden_weight);
  EXPECT_EQ(weights.hidden_bias, Weights().hidden_bias);
  EXPECT_EQ(weights.output_weight, Weights().output_weight);
  EXPECT_EQ(weights.output_bias, Weights().output_bias);
  EXPECT_EQ(
      draft_worker::LoadPolicyFile(dir, PolicyKind::kDisco, Draft("another"))
          .status()
          .code(),
      absl::StatusCode::kFailedPrecondition);
  const auto json =
      nlohmann::json::parse(*ReadFile(dir + "/policy.json"), nullptr, false);
  EXPECT_EQ(json["calibration"]["prompts"], 7);
}

TEST(WritePolicyFolderTest, ADraftWorkerLoadsAHead) {
  const TemporaryFolder folder;
  speculation::AcceptanceHead head;
  head.num_layers = 2;
  for (int i = 0; i < 16; ++i) {
    head.block.push_back(0.1f * static_cast<float>(i));
  }
  head.block_bias = {1.0f, 2.0f, 3.0f, 4.0f};
  head.output = {1.0f, -1.0f, 2.0f, -2.0f, 3.0f, -3.0f, 4.0f, -4.0f};
  head.output_bias = {0.5f, -0.25f};
  PolicyDescription description = {"specdec++", "small", "big"};
  description.parameters = {{"threshold", 0.75}, {"max", 12}};
  const absl::Status status =
      WritePolicyFolder(folder.path(), description, head);
  ASSERT_TRUE(status.ok()) << status;
  const auto file = draft_worker::LoadPolicyFile(
      folder.path(), speculation::PolicyKind::kSpecDecPlusPlus, Draft("small"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->calibration.defaults.text(),
            "specdec++:threshold=0.75,max=12");
  const speculation::AcceptanceHead& loaded = *file->calibration.head;
  EXPECT_EQ(loaded.num_layers, 2);
  EXPECT_EQ(loaded.block, head.block);
  EXPECT_EQ(loaded.block_bias, head.block_bias);
  EXPECT_EQ(loaded.output, head.output);
  EXPECT_EQ(loaded.output_bias, head.output_bias);
}

TEST(WritePolicyFolderTest, ADraftWorkerLoadsACaliTsModel) {
  const TemporaryFolder folder;
  speculation::CaliTsModel model;
  model.target_size = 2;
  model.draft_size = 4;
  for (int i = 0; i < 40; ++i) {
    model.step_weights.push_back(0.5f * static_cast<float>(i));
  }
  for (int i = 0; i < 12; ++i) model.mix.push_back(static_cast<float>(i));
  const absl::Status status =
      WritePolicyFolder(folder.path(), {"cali-ts", "small", "big"}, model);
  ASSERT_TRUE(status.ok()) << status;
  const auto file = draft_worker::LoadPolicyFile(
      folder.path(), speculation::PolicyKind::kCaliTs, Draft("small"));
  ASSERT_TRUE(file.ok()) << file.status();
  const speculation::CaliTsScorer written(model);
  const speculation::CaliTsScorer& loaded = *file->calibration.cali_ts;
  EXPECT_EQ(loaded.target_size(), 2);
  EXPECT_EQ(loaded.draft_size(), 4);
  for (int step = 0; step < speculation::CaliTsModel::kSteps; ++step) {
    for (const std::vector<float>& state :
         {std::vector<float>{1.0f, 0.0f}, std::vector<float>{0.0f, 1.0f}}) {
      EXPECT_EQ(loaded.TargetPart(step, state),
                written.TargetPart(step, state));
    }
  }
  EXPECT_EQ(loaded.Score(-2.0, {0.1f, 0.02f, 0.003f, 0.0004f}),
            written.Score(-2.0, {0.1f, 0.02f, 0.003f, 0.0004f}));
}

TEST(WritePolicyFolderTest, ReplacesAndNeedsNoWeights) {
  const TemporaryFolder folder;
  PolicyDescription description = {"optimal-static", "small", "big"};
  for (const int gamma : {3, 5}) {
    description.parameters = {{"gamma", gamma}};
    ASSERT_TRUE(
        WritePolicyFolder(folder.path(), description, std::monostate()).ok());
    const auto file = draft_worker::LoadPolicyFile(
        folder.path(), speculation::PolicyKind::kOptimalStatic, Draft("small"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->calibration.defaults.Given("gamma"), gamma);
  }
  EXPECT_THAT(Names(folder.path()), UnorderedElementsAre("policy.json"));
}

// Weights that cannot be written leave no policy.json that would go with them.
TEST(WritePolicyFolderTest, AFolderWithAPolicyIsWhole) {
  const TemporaryFolder folder;
  const PolicyDescription description = {"disco", "small", "big"};
  ASSERT_TRUE(WritePolicyFolder(folder.path(), description, Weights()).ok());
  std::filesystem::create_directory(folder.path() +
                                    "/policy.safetensors.partial");
  const absl::Status status =
      WritePolicyFolder(folder.path(), description, Weights());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("policy.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/policy.json"));
}

TEST(WritePolicyFolderTest, SaysWhereItCannotWrite) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const absl::Status status = WritePolicyFolder(
      folder.path() + "/file", {"disco", "small", "big"}, Weights());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/file"));
}

TEST(FingerprintTest, IsThatOfTheCheckpoint) {
  const auto target = FingerprintOf(NACRE_MODELS "/target");
  const auto draft = FingerprintOf(NACRE_MODELS "/draft");
  ASSERT_TRUE(target.ok() && draft.ok());
  EXPECT_NE(*target, *draft);
  EXPECT_EQ(target->size(), 64u);
  EXPECT_EQ(FingerprintOf("/nowhere").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nacre::tools
