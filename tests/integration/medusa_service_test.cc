// Medusa heads through the real processes.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "model/config.h"
#include "model/safetensors_writer.h"
#include "tests/integration/own_drafts_service.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kHeads = 3;

// Heads of the bundled target whose blocks add nothing: each says again what
// the target said of the position before.
std::string WriteHeads(const std::string& folder) {
  const auto config = model::ReadConfig(TargetModel());
  EXPECT_TRUE(config.ok()) << config.status();
  const int64_t size = config->hidden_size;
  std::vector<model::TensorSpec> tensors;
  for (int k = 0; k < kHeads; ++k) {
    tensors.push_back({absl::StrCat(k, ".0.linear.weight"),
                       kernels::DType::kBF16,
                       {size, size}});
  }
  const std::string path = folder + "/medusa_lm_head.safetensors";
  auto writer = model::SafetensorsWriter::Create(path, tensors);
  EXPECT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint16_t> zeros(static_cast<size_t>(kHeads * size * size));
  EXPECT_TRUE(
      (*writer)->Append(zeros.data(), zeros.size() * sizeof(uint16_t)).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

class MedusaServiceTest : public OwnDraftsServiceTest {};

TEST_P(MedusaServiceTest, ChangeNoToken) {
  const tools::TemporaryFolder folder;
  tools::Cluster::Options options = Service::Options(GetParam());
  options.more_args.target = {"--medusa", WriteHeads(folder.path())};
  ExpectNoTokenChanges(std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Drafts, MedusaServiceTest, ::testing::Values(0, 1));

class TrainedMedusaTest : public OwnDraftsTest {};

TEST_F(TrainedMedusaTest, Helps) {
  ExpectTheyHelp("medusa", NACRE_MODELS "/medusa");
}

}  // namespace
}  // namespace nacre::integration
