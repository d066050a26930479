// Logits on the cuda backend, every bit of them, are those of
// tests/data/model/cuda_logits: on the emulated device, which made the files,
// and on a GPU of sm_90, where there is one. Tensor cores of other GPUs round
// otherwise.
//
// A test that fails says where it wrote what it found. Where another order or
// rounding is meant, that is the golden's new content.

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <ios>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

constexpr int kFirstLogits = 3;  // shown as they are

struct Case {
  const char* name;
  const char* model;      // a bundled one; null: a small one
  int intermediate_size;  // of the small one
  const char* weights;
  const char* kv_type;
};

// FNV-1a, 64 bits.
uint64_t HashOf(absl::Span<const float> row) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float logit : row) {
    const auto bits = std::bit_cast<uint32_t>(logit);
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3;
    }
  }
  return hash;
}

// A line of a golden: the hash of all, and the first as they are.
std::string Summary(absl::Span<const float> row) {
  std::ostringstream line;
  line << std::hex << std::setw(16) << std::setfill('0') << HashOf(row);
  line << std::setprecision(9);
  for (const float logit : row.first(kFirstLogits)) line << ' ' << logit;
  line << "\n";
  return line.str();
}

class CudaGoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.weights = GetParam().weights;
    options.kv_type = GetParam().kv_type;
    auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
    if (absl::IsFailedPrecondition(backend.status())) {
      GTEST_SKIP() << backend.status();
    }
#endif
    ASSERT_TRUE(backend.ok()) << backend.status();
    int major = 0;
    ASSERT_EQ(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
        cudaSuccess);
    if (major != 9) GTEST_SKIP() << "no GPU of sm_90";
    backend_ = *std::move(backend);
    auto model = LoadModel(Folder(), backend_.get(), {8 << 20, {}});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    sequence_ = *model_->NewSequence(400);
  }

  // A small one's key head has five queries; where it is wide inside, its last
  // product is in slices.
  static std::string Folder() {
    if (GetParam().model != nullptr) {
      return absl::StrCat(NACRE_MODELS "/", GetParam().model);
    }
    std::string folder = nacre::testing::TestFolder("model");
    nacre::testing::WriteTinyCheckpoint(
        {.hidden_size = 128,
         .intermediate_size = GetParam().intermediate_size,
         .num_attention_heads = 5,
         .num_key_value_heads = 1,
         .head_dim = 80,
         .dtype = kernels::DType::kBF16},
        folder);
    return folder;
  }

  // The next `count` tokens of the sequence in one step; of the last
  // `num_logits` a summary each.
  void Step(int count, int num_logits) {
    const int vocab_size = model_->info().vocab_size;
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = (length_++ * 37 + 11) % vocab_size;
    const auto logits =
        model_->Forward({{sequence_.get(), tokens, num_logits}});
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (int i = 0; i < num_logits; ++i) {
      const auto begin = static_cast<size_t>(i) * vocab_size;
      absl::StrAppend(&rows_, Summary(logits->subspan(begin, vocab_size)));
    }
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Sequence> sequence_;
  int length_ = 0;
  std::string rows_;
};

TEST_P(CudaGoldenTest, EveryBitOfTheLogits) {
  // More positions than a split of attention has, tiles of every size, single
  // rows as graphs.
  ASSERT_NO_FATAL_FAILURE(Step(140, 2));
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(Step(1, 1));
  for (const int rows : {6, 12, 20}) {
    ASSERT_NO_FATAL_FAILURE(Step(rows, rows));
  }
  const std::string name = absl::StrCat(GetParam().name, ".txt");
  std::ifstream golden(NACRE_TEST_DATA "/model/cuda_logits/" + name);
  const std::string expected(std::istreambuf_iterator<char>(golden), {});
  if (rows_ == expected) return;
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/cuda_logits_", name);
  std::ofstream(path) << rows_;
  EXPECT_EQ(rows_, expected) << "what was found is in " << path;
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaGoldenTest,
    ::testing::Values(Case{"target", "target", 0, "bf16", "bf16"},
                      Case{"draft", "draft", 0, "bf16", "bf16"},
                      Case{"slices", nullptr, 2048, "bf16", "bf16"},
                      Case{"int8", nullptr, 200, "int8", "bf16"},
                      Case{"fp8", nullptr, 200, "fp8", "bf16"},
                      Case{"int4", nullptr, 200, "int4", "bf16"},
                      Case{"f32", nullptr, 100, "f32", "f32"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nacre::model
