// To rewrite or truncate the files of a model that serves changes
// nothing: all weights are in memory by then.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

class LoadedFilesTest : public ::testing::TestWithParam<const char*> {
 protected:
  LoadedFilesTest() {
    kernels::BackendOptions options;
    options.kind = GetParam();
    backend_ = *kernels::CreateBackend(options);
    nacre::testing::WriteTinyCheckpoint({}, dir_);
    model_ = *LoadModel(dir_, backend_.get(), {1 << 22, {}});
  }

  std::vector<float> Logits() {
    const auto sequence = *model_->NewSequence(8);
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    const auto rows = *model_->Forward({{{sequence.get(), tokens, 8}}});
    return {rows.begin(), rows.end()};
  }

  const std::string dir_ = nacre::testing::TestFolder("tiny");
  const std::string weights_ = dir_ + "/model.safetensors";
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
};

INSTANTIATE_TEST_SUITE_P(Backends, LoadedFilesTest,
                         ::testing::Values("cpu", "reference"));

TEST_P(LoadedFilesTest, MayBeTruncated) {
  const std::vector<float> expected = Logits();
  std::filesystem::resize_file(weights_, 0);
  EXPECT_EQ(Logits(), expected);
}

TEST_P(LoadedFilesTest, MayBeWrittenOver) {
  const std::vector<float> expected = Logits();
  const std::string zeros(std::filesystem::file_size(weights_), '\0');
  std::fstream(weights_, std::ios::in | std::ios::out)
      .write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  EXPECT_EQ(Logits(), expected);
}

}  // namespace
}  // namespace nacre::model
