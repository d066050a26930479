// How much of a device's memory a worker takes, on the emulated one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "model/kv_budget.h"
#include "model/kv_pool.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/testing/free_address.h"
#include "tests/testing/tiny_checkpoint.h"
#include "worker/engine/step_budget.h"
#include "worker/process/load.h"
#include "worker/process/nodes.h"
#ifdef NACRE_NCCL_LIBRARY
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#endif

namespace nacre::worker {
namespace {

namespace emulation = kernels::cuda::emulation;
using nacre::testing::TinyCheckpoint;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = int64_t{1} << 20;

class CudaLoadTest : public ::testing::Test {
 protected:
  CudaLoadTest() {
    emulation::ResetDevice();
    emulation::settings.memory_bytes =
        emulation::counts.used_bytes + 128 * kMegabyte;
    const std::string dir = nacre::testing::TestFolder("cuda_load");
    nacre::testing::WriteTinyCheckpoint(shape_, dir);
    for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::copy_file(
          std::string(NACRE_MODELS "/draft/") + file, dir + "/" + file,
          std::filesystem::copy_options::overwrite_existing);
    }
    options_.model_dir = dir;
    options_.compute.backend.kind = "cuda";
  }
  ~CudaLoadTest() override { emulation::ResetDevice(); }

  // Tokens that the KV cache holds.
  int64_t Capacity(wire::WorkerRole role) {
    const absl::StatusOr<LoadedModel> loaded = LoadForWorker(options_, role);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->model->info().kv_capacity_tokens : 0;
  }

  // KV of 16 KB a token: what is left decides.
  TinyCheckpoint shape_ = {.hidden_size = 64,
                           .intermediate_size = 64,
                           .num_hidden_layers = 4,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 32,
                           .head_dim = 32,
                           .vocab_size = 4096,
                           .max_position_embeddings = 4096,
                           .dtype = kernels::DType::kBF16};
  WorkerOptions options_;
};

TEST_F(CudaLoadTest, TheCacheGetsAShareOfWhatIsFree) {
  const int64_t target = Capacity(wire::WorkerRole::kTarget);
  const int64_t draft = Capacity(wire::WorkerRole::kDraft);
  // Six times as much, both in whole blocks of 16 tokens.
  EXPECT_GT(target, 6 * draft - 16);
  EXPECT_LT(target, 6 * (draft + 16));
  // 128 MB, less what steps need and a reserve. Keys of 2 bytes: the checkpoint
  // is bf16.
  const int64_t bytes = target * 4 * 2 * 32 * 32 * 2;
  EXPECT_GT(bytes, 32 * kMegabyte);
  EXPECT_LT(bytes, 96 * kMegabyte);
}

// A draft's and a target's are of one process each, by its own checkpoint.
TEST_F(CudaLoadTest, TheTypeOfKeysIsTheCheckpoints) {
  EXPECT_EQ(options_.compute.backend.kv_type, "auto");
  const auto numerics = [&](wire::WorkerRole role) {
    const absl::StatusOr<LoadedModel> loaded = LoadForWorker(options_, role);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return MakeHello(options_, *loaded, role, "h:1", {}).numerics_id;
  };
  const int64_t bf16_tokens = Capacity(wire::WorkerRole::kTarget);
  EXPECT_THAT(numerics(wire::WorkerRole::kTarget), HasSubstr("-kvbf16-"));
  shape_.dtype = kernels::DType::kF32;
  nacre::testing::WriteTinyCheckpoint(shape_, options_.model_dir);
  EXPECT_THAT(numerics(wire::WorkerRole::kDraft), HasSubstr("-kvf32-"));
  EXPECT_LT(Capacity(wire::WorkerRole::kTarget), bf16_tokens * 6 / 10);
}

TEST_F(CudaLoadTest, ASmallModelGets256Contexts) {
  shape_.num_key_value_heads = 1;
  shape_.max_position_embeddings = 64;
  nacre::testing::WriteTinyCheckpoint(shape_, options_.model_dir);
  EXPECT_EQ(Capacity(wire::WorkerRole::kTarget), 256 * 64);
}

TEST_F(CudaLoadTest, ALimitIsOfWeightsCacheAndScratchTogether) {
  options_.compute.max_memory_bytes = 64 * kMegabyte;
  const size_t before = emulation::counts.used_bytes;
  const auto loaded = LoadForWorker(options_, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto used = [&] {
    return static_cast<int64_t>(emulation::counts.used_bytes - before);
  };
  // The limit is used, but for scratch that is still to come.
  EXPECT_GT(used(), 16 * kMegabyte);
  EXPECT_LT(used(), 48 * kMegabyte);
  // A few rows as rows go: the emulated device is slow.
  const std::vector<int32_t> token_ids(96, 1);
  const auto sequence = *loaded->model->NewSequence(96);
  const auto logits = loaded->model->Forward({{sequence.get(), token_ids, 96}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(used(), 64 * kMegabyte);
}

TEST_F(CudaLoadTest, ARoomThatIsTooSmallSaysHowMuchIsMissing) {
  // 4 layers of 590 KB and twice 512 KB of embeddings.
  options_.compute.max_memory_bytes = kMegabyte;
  const absl::Status weights =
      LoadForWorker(options_, wire::WorkerRole::kTarget).status();
  EXPECT_EQ(weights.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(weights.message()),
              AllOf(HasSubstr("the weights need "), HasSubstr(" are free; "),
                    HasSubstr("0 of the limit of 1048576 are used")));
  options_.compute.max_memory_bytes = 20 * kMegabyte;
  const absl::Status cache =
      LoadForWorker(options_, wire::WorkerRole::kTarget).status();
  EXPECT_EQ(cache.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(cache.message()),
              AllOf(HasSubstr("no room for a KV cache"),
                    HasSubstr("a step of 512 rows needs"),
                    HasSubstr("of the limit of 20971520 are used")));
}

TEST_F(CudaLoadTest, WhatTheWeightsNeedIsWhatTheyTake) {
  for (const char* weights : {"auto", "f32", "int8"}) {
    options_.compute.backend.weights = weights;
    options_.compute.max_memory_bytes = kMegabyte / 4;
    const std::string message(
        LoadForWorker(options_, wire::WorkerRole::kTarget).status().message());
    long long needed = 0;
    ASSERT_EQ(std::sscanf(message.c_str(), "the weights need %lld", &needed), 1)
        << message;
    // Norms are float32 on the device.
    const int64_t matrices =
        4 * (64 * 3 * 1024 + 64 * 1024 + 3 * 64 * 64) + 4096 * 64;
    const double each = weights == std::string("f32")    ? 4
                        : weights == std::string("int8") ? 1056.0 / 1024
                                                         : 2;
    const double expected =
        static_cast<double>(matrices) * each + 4096 * 64 * 2 + 9 * 64 * 4;
    EXPECT_EQ(static_cast<double>(needed), expected) << weights;
  }
}

// Each has a device, and of the whole cache its heads: twice as many positions
// find room.
TEST_F(CudaLoadTest, RanksHaveADeviceEach) {
  emulation::settings.devices = 4;
  options_.compute.max_memory_bytes.reset();
  const int64_t one = Capacity(wire::WorkerRole::kTarget);
  options_.compute.tensor_parallel = 2;
  const absl::StatusOr<LoadedModel> two =
      LoadForWorker(options_, wire::WorkerRole::kTarget);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_GT(two->model->info().kv_capacity_tokens, one * 3 / 2);
  EXPECT_THAT(two->model->info().numerics_id,
              AllOf(HasSubstr("cuda-sm90"), HasSubstr("kvbf16"),
                    HasSubstr("-shards8-")));
  EXPECT_TRUE(two->model->draws_tokens());
  options_.compute.tensor_parallel = 8;
  EXPECT_EQ(
      LoadForWorker(options_, wire::WorkerRole::kTarget).status().message(),
      "--tensor-parallel 8: CUDA device 4 does not exist: 4 found");
}

#ifdef NACRE_NCCL_LIBRARY
// Two nodes, of which the leader's NCCL makes the id, over a real connection.
TEST_F(CudaLoadTest, NodesMeetByNcclWithTheIdOfTheirLink) {
  auto* const nccl = kernels::cuda::LoadNcclOfTests();
  emulation::settings.devices = 2;
  shape_.num_hidden_layers = 1;
  shape_.num_attention_heads = shape_.num_key_value_heads = 2;
  shape_.max_position_embeddings = 64;
  nacre::testing::WriteTinyCheckpoint(shape_, options_.model_dir);
  options_.compute.max_memory_bytes = 100 * kMegabyte;
  options_.compute.tensor_parallel = 2;
  options_.compute.backend.rank_transport = "nccl";
  options_.nodes.nodes = 2;
  options_.nodes.rank = 0;
  options_.nodes.leader_address = nacre::testing::FreeAddress();
  options_.pace.hang_timeout = absl::Minutes(5);
  std::thread follows([options = options_]() mutable {
    options.nodes.rank = 1;
    options.compute.backend.device = 1;
    ExitSignal exit;
    EXPECT_EQ(RunFollower(options, wire::WorkerRole::kTarget, {}, [] {},
                          {&exit, nullptr}),
              absl::OkStatus());
  });
  ExitSignal exit;
  const auto leader = NodeLeader::Start(options_, wire::WorkerRole::kTarget, {},
                                        {&exit, nullptr});
  EXPECT_TRUE(leader.ok()) << leader.status();
  if (leader.ok()) {
    const auto loaded =
        LoadForWorker(options_, wire::WorkerRole::kTarget, {}, leader->get());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(nccl->nranks, 2);
    if (loaded.ok()) {
      loaded->model->BindComputeThread();
      const std::vector<int32_t> token_ids = {1, 2};
      const auto sequence = *loaded->model->NewSequence(16);
      const auto logits =
          loaded->model->Forward({{sequence.get(), token_ids, 1}});
      EXPECT_TRUE(logits.ok()) << logits.status();
      // An embedding, two sums and the head, of each rank.
      EXPECT_EQ(nccl->queued, 2 * (1 + 2 + 1));
    }
    (*leader)->End(loaded.status());
  }
  follows.join();
  EXPECT_EQ(nccl->comms, 0);
}
#endif

}  // namespace
}  // namespace nacre::worker
