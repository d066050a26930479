// What a load takes of memory at its peak: the model, and little more. The
// pages of the checkpoint's file are given back as they are converted.

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/benchmarks/random_llama.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

constexpr int64_t kMegabyte = 1 << 20;
// Of the process and of what is on its way: a few MB for each thread.
constexpr int64_t kOnTheWay = 80 * kMegabyte;
constexpr int64_t kKvBytes = 16 * kMegabyte;

// 137 M weights of products and 33 MB of embedding, 308 MB in all.
constexpr LlamaShape kShape = {.hidden = 1024,
                               .intermediate = 4096,
                               .layers = 8,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .vocab = 16000,
                               .context = 1024};

// "VmRSS", "VmHWM": bytes.
int64_t Memory(const char* name) {
  std::ifstream status("/proc/self/status");
  const std::string format = absl::StrCat(name, ": %lld");
  std::string line;
  while (std::getline(status, line)) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), format.c_str(), &kilobytes) == 1) {
      return kilobytes * 1024;
    }
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// By another process, so that what it takes is not counted here.
void WriteModel(const std::string& dir) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RandomLlama llama(kShape, kernels::DType::kBF16);
    _exit(llama.Write(dir).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

class LoadingMemoryTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Weights, LoadingMemoryTest,
                         ::testing::Values("int4", "int8", "auto"),
                         [](const auto& weights) {
                           return std::string(weights.param);
                         });

TEST_P(LoadingMemoryTest, PeaksAtTheModelsSize) {
  if (nacre::testing::kIsSanitized) {
    GTEST_SKIP() << "a sanitizer has memory of its own";
  }
  const std::string dir = nacre::testing::TestFolder("model");
  WriteModel(dir);
  kernels::BackendOptions backend_options;
  backend_options.weights = GetParam();
  const auto backend = *kernels::CreateBackend(backend_options);
  MemoryNeeds needs;
  ModelOptions options;
  options.kv_cache_bytes = kKvBytes;
  options.admit = [&needs](const MemoryNeeds& told) {
    needs = told;
    return absl::OkStatus();
  };
  // What other tests have left, and their peak.
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  const int64_t before = Memory("VmRSS");
  const auto model = LoadModel(dir, backend.get(), options);
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t resident = Memory("VmRSS") - before;
  const int64_t peak = Memory("VmHWM") - before;
  std::printf("needs %lld, resident %lld, peak %lld bytes\n",
              static_cast<long long>(needs.loaded()),
              static_cast<long long>(resident), static_cast<long long>(peak));
  EXPECT_LE(peak, needs.loaded() + kOnTheWay);
  EXPECT_LE(resident, needs.loaded() + needs.loaded() / 20 + 8 * kMegabyte);
  // All of it is in memory indeed.
  EXPECT_GE(resident, needs.loaded() - 8 * kMegabyte);
}

}  // namespace
}  // namespace nacre::model
