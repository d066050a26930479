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
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/cpu/coded_weights.h"
#include "model/load_model.h"
#include "tests/benchmarks/random_llama.h"
#include "tests/testing/gguf_writer.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

constexpr int64_t kMegabyte = 1 << 20;
// Of the process and of what is on its way: a few MB for each thread.
constexpr int64_t kOnTheWay = 80 * kMegabyte;
constexpr int64_t kKvBytes = 16 * kMegabyte;

// 138.0 M weights of products and 33 MB of embedding, 309 MB in all.
constexpr LlamaShape kShape = {.hidden = 1024,
                               .intermediate = 4096,
                               .layers = 8,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .vocab = 16000,
                               .context = 1024};

// "VmRSS", "VmHWM", ...: bytes.
int64_t Memory(const char* name) {
  const int64_t bytes = nacre::testing::ProcessMemory(name);
  EXPECT_GE(bytes, 0) << "no " << name;
  return bytes;
}

// Of the process's own, also what the system has swapped out.
int64_t OwnMemory() { return Memory("RssAnon") + Memory("VmSwap"); }

// Whether the peak ("VmHWM") begins anew: not every system lets it.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// In another process, so that what it takes is not counted here.
void WriteElsewhere(absl::FunctionRef<bool()> write) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(write() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

// A large vocabulary in Q8_0: 68 MB each for embedding and head, in float32
// 256 MB.
constexpr int kGgufVocab = 64 * 1024;

gguf::GgufWriter LargeVocabulary() {
  constexpr int64_t kHidden = 1024;
  constexpr uint32_t kF32 = 0;
  constexpr uint32_t kQ8_0 = 8;
  gguf::GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.U32("llama.context_length", 1024);
  writer.U32("llama.embedding_length", kHidden);
  writer.U32("llama.block_count", 1);
  writer.U32("llama.feed_forward_length", kHidden);
  writer.U32("llama.attention.head_count", 16);
  writer.U32("llama.attention.head_count_kv", 16);
  writer.U32("llama.vocab_size", kGgufVocab);
  writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  // Blocks of a scale, of 2^-7, and 32 integers.
  std::string blocks;
  for (int i = 0; i < kGgufVocab * kHidden / 32; ++i) {
    blocks.append("\0\x20", 2);
    for (int j = 0; j < 32; ++j) blocks += static_cast<char>(i * 7 + j * 13);
  }
  const auto matrix = [&](const char* name, int64_t rows) {
    writer.Tensor(name, kQ8_0, {rows, kHidden},
                  absl::string_view(blocks).substr(
                      0, static_cast<size_t>(rows * kHidden / 32 * 34)));
  };
  const auto norm = [&](const char* name) {
    const std::vector<float> ones(kHidden, 1.0f);
    writer.Tensor(name, kF32, {kHidden},
                  {reinterpret_cast<const char*>(ones.data()),
                   ones.size() * sizeof(float)});
  };
  matrix("token_embd.weight", kGgufVocab);
  norm("blk.0.attn_norm.weight");
  for (const char* name : {"q", "k", "v", "output"}) {
    matrix(absl::StrCat("blk.0.attn_", name, ".weight").c_str(), kHidden);
  }
  norm("blk.0.ffn_norm.weight");
  for (const char* name : {"gate", "up", "down"}) {
    matrix(absl::StrCat("blk.0.ffn_", name, ".weight").c_str(), kHidden);
  }
  norm("output_norm.weight");
  matrix("output.weight", kGgufVocab);
  return writer;
}

struct Load {
  int64_t needed = 0;
  int64_t own = 0;
  int64_t resident = 0;
  int64_t peak = 0;
};

// What a load takes.
void Measure(const std::string& path, const char* weights, Load* load) {
  kernels::BackendOptions backend_options;
  backend_options.weights = weights;
  const auto backend = *kernels::CreateBackend(backend_options);
  ModelOptions options;
  options.kv_cache_bytes = kKvBytes;
  options.admit = [load](const MemoryNeeds& told) {
    // What is in 12 bits a weight takes hardly more than the least.
    load->needed = told.loaded_at_least();
    return absl::OkStatus();
  };
  // What other tests have left, and their peak.
  malloc_trim(0);
  ASSERT_TRUE(ResetPeak());
  const int64_t before = Memory("VmRSS");
  const int64_t own_before = OwnMemory();
  const auto model = LoadModel(path, backend.get(), options);
  ASSERT_TRUE(model.ok()) << model.status();
  load->own = OwnMemory() - own_before;
  load->resident = Memory("VmRSS") - before;
  load->peak = Memory("VmHWM") - before;
  std::printf("needs %lld, resident %lld, peak %lld bytes\n",
              static_cast<long long>(load->needed),
              static_cast<long long>(load->resident),
              static_cast<long long>(load->peak));
}

class LoadingMemoryTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (nacre::testing::kIsSanitized) {
      GTEST_SKIP() << "a sanitizer has memory of its own";
    }
    if (!ResetPeak()) GTEST_SKIP() << "no peak that begins anew";
    if (GetParam() == std::string("bf16a16") &&
        kernels::FindCodedKernels() == nullptr) {
      GTEST_SKIP() << "no AVX-512 with VBMI and BF16 here";
    }
  }
  void ExpectNoMoreThanTheModel(const std::string& path) {
    Load load;
    ASSERT_NO_FATAL_FAILURE(Measure(path, GetParam(), &load));
    EXPECT_LE(load.peak, load.needed + kOnTheWay);
    EXPECT_LE(load.resident, load.needed + load.needed / 20 + 32 * kMegabyte);
    // All of it is there indeed.
    EXPECT_GE(load.own, load.needed - 8 * kMegabyte);
  }

  const std::string dir_ = nacre::testing::TestFolder("model");
};

INSTANTIATE_TEST_SUITE_P(Weights, LoadingMemoryTest,
                         ::testing::Values("int4", "int8", "auto", "bf16a16"),
                         [](const auto& weights) {
                           return std::string(weights.param);
                         });

TEST_P(LoadingMemoryTest, PeaksAtTheModelsSize) {
  ASSERT_NO_FATAL_FAILURE(WriteElsewhere([this] {
    return RandomLlama(kShape, kernels::DType::kBF16).Write(dir_).ok();
  }));
  ExpectNoMoreThanTheModel(dir_);
}

TEST_P(LoadingMemoryTest, AVocabularyIsComputedPieceByPiece) {
  const std::string path = dir_ + "/large.gguf";
  ASSERT_NO_FATAL_FAILURE(WriteElsewhere([&path] {
    nacre::testing::WriteFile(path, LargeVocabulary().Bytes());
    return true;
  }));
  ExpectNoMoreThanTheModel(path);
}

}  // namespace
}  // namespace nacre::model
