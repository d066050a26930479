// A model on several ranks, each on a device: the same bits for any number of
// them, in any batch, close to the model on one device and to the reference,
// and the end of all when a device fails. They meet in memory of the host, by
// NCCL, and as peers. Which devices they have: tests/kernels/rank_transports.h.

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "model/tensor_parallel_model.h"
#include "tests/kernels/rank_transports.h"
#include "tests/model/rank_sessions.h"
#include "tests/model/ranks/node_group.h"
#include "tests/testing/gguf_checkpoint.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

#ifdef NACRE_EMULATED_CUDA
namespace emulation = kernels::cuda::emulation;
#endif
using kernels::DevicesOfRanks;

// Of few positions: partial results of attention have room for all of them.
ModelOptions SmallOptions() {
  ModelOptions options = Options();
  options.kv_cache_bytes = 3 << 19;
  return options;
}

std::unique_ptr<TensorParallelModel> OnDevices(
    const std::string& dir, kernels::BackendOptions backend, int ranks,
    const std::string& transport = "host") {
  backend.devices = DevicesOfRanks::Of(ranks, transport);
  backend.rank_transport = transport;
  auto model = TensorParallelModel::Load(dir, backend, ranks, SmallOptions());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// A checkpoint and what it is kept in.
struct Case {
  std::string name;
  std::string architecture = "LlamaForCausalLM";
  std::string weights = "f32";
  std::string more = "";  // of the config
  std::string kv_type = "f32";
  double tolerance = 1e-4;  // of the largest logit
  bool has_eight = false;   // ranks, too: they take the emulated device longest
};

std::vector<Case> Cases() {
  return {{.name = "f32", .has_eight = true},
          {.name = "tied", .more = R"(, "tie_word_embeddings": true)"},
          {.name = "biases",
           .more = R"(, "attention_bias": true, "mlp_bias": true)"},
          {.name = "mistral",
           .architecture = "MistralForCausalLM",
           .more = R"(, "sliding_window": 20)"},
          {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
          // Inputs are rounded: one that is a bit larger may be rounded up.
          {.name = "bf16", .weights = "bf16", .tolerance = 0.05},
          {.name = "kvbf16",
           .weights = "bf16",
           .kv_type = "bf16",
           .tolerance = 0.05},
          {.name = "int8", .weights = "int8", .tolerance = 0.1},
          {.name = "fp8", .weights = "fp8", .tolerance = 0.15},
          {.name = "int4", .weights = "int4", .tolerance = 0.15}};
}

// Ranks by NCCL, too, and of some as peers.
bool IsRun(const Case& param, int ranks, const std::string& transport) {
  if (transport == "host") return true;
  if (ranks < DevicesOfRanks::LeastRanks(transport) ||
      ranks > DevicesOfRanks::MostRanks(transport)) {
    return false;
  }
  if (transport == "peer" && !param.has_eight && param.name != "kvbf16") {
    return false;
  }
  return param.has_eight || ranks == 2;
}

// What a description says of it.
std::string SumsBy(const std::string& transport) {
  if (transport == "nccl") return ", sums by NCCL";
  if (transport == "peer") {
    return ", sums of few rows by peers, others in host memory";
  }
  return ", sums in host memory";
}

class CudaTensorParallelTest : public ::testing::TestWithParam<Case> {
 private:
  const DevicesOfRanks devices_;
};

TEST_P(CudaTensorParallelTest, EveryNumberOfRanksHasTheSameBits) {
  const Case& param = GetParam();
  const std::string dir = nacre::testing::TestFolder("ranks");
  nacre::testing::WriteRandomCheckpoint(
      ConfigJson(param.architecture, param.weights, param.more), dir);
  const auto options = Backend("cuda", param.weights, param.kv_type);
  const auto backend = kernels::CreateBackend(options);
  if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << backend.status();
  }
  const auto plain = *LoadModel(dir, backend->get(), SmallOptions());
  const Values near = RunSessions(plain.get());
  Values expected;
  std::vector<int> counts = {1, 2, 4};
  if (param.has_eight) counts.push_back(8);
  for (const std::string& transport : DevicesOfRanks::Transports()) {
    for (const int ranks : counts) {
      if (!IsRun(param, ranks, transport)) continue;
      const std::string what = absl::StrCat(ranks, " ranks by ", transport);
      const auto model = OnDevices(dir, options, ranks, transport);
      ASSERT_NE(model, nullptr) << what;
      const Values logits = RunSessions(model.get());
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << what;
      EXPECT_EQ(model->info().fingerprint, plain->info().fingerprint);
      EXPECT_EQ(model->info().kv_capacity_tokens,
                plain->info().kv_capacity_tokens);
      EXPECT_EQ(model->kv_free_tokens(), plain->kv_free_tokens());
      EXPECT_EQ(model->info().numerics_id,
                absl::StrCat((*backend)->numerics_id(), "-shards8-llama-v1"));
      EXPECT_THAT(
          model->backend_description(),
          AllOf(HasSubstr(absl::StrCat("rank ", ranks - 1, " of ", ranks)),
                HasSubstr(SumsBy(transport)),
                HasSubstr(transport == "host"
                              ? "; not by NCCL: --tensor-parallel-transport "
                                "host"
                              : "")));
    }
  }
  EXPECT_LE(LargestDifference(expected, near), param.tolerance * Largest(near));
  // The truth, in the same weights where the reference has them.
  const auto reference = *kernels::CreateBackend(
      Backend("reference", param.weights == "fp8" ? "f32" : param.weights));
  const auto truth = *LoadModel(dir, reference.get(), Options());
  EXPECT_LE(LargestDifference(expected, RunSessions(truth.get())),
            param.tolerance * Largest(near));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTensorParallelTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

class CudaRanksModelTest : public ::testing::Test {
 protected:
  // A model of these weights on so many ranks; null where there is no GPU.
  std::unique_ptr<TensorParallelModel> Load(
      const std::string& weights, int ranks,
      const std::string& transport = "host") {
    const auto options = Backend("cuda", weights);
    if (kernels::CreateBackend(options).status().code() ==
        absl::StatusCode::kFailedPrecondition) {
      return nullptr;
    }
    if (dir_.empty()) {
      dir_ = nacre::testing::TestFolder("model");
      nacre::testing::WriteRandomCheckpoint(
          ConfigJson("LlamaForCausalLM", weights), dir_);
    }
    return OnDevices(dir_, options, ranks, transport);
  }

  const DevicesOfRanks devices_;
  std::string dir_;
};

// Sums go from devices to the host and from there to other nodes, or by NCCL.
TEST_F(CudaRanksModelTest, NodesHaveTheBitsOfOneProcess) {
  const std::string dir = nacre::testing::TestFolder("nodes");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  auto options = Backend("cuda", "f32");
  const auto backend = kernels::CreateBackend(options);
  if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << backend.status();
  }
  const auto one = OnDevices(dir, options, 2);
  ASSERT_NE(one, nullptr);
  const Values expected = RunSessions(one.get());
  for (const std::string& transport : DevicesOfRanks::Transports()) {
    if (transport == "peer") continue;  // of one machine
    for (const auto& [ranks, nodes] :
         std::vector<std::pair<int, int>>{{transport == "nccl" ? 4 : 2, 2},
                                          {4, transport == "nccl" ? 4 : 2}}) {
      if (ranks > DevicesOfRanks::MostRanks(transport)) continue;
      options.rank_transport = transport;
      options.devices = DevicesOfRanks::Of(ranks, transport);
      NodeGroup group(dir, options, ranks, nodes, SmallOptions());
      EXPECT_EQ(RunSessions(group.leader()), expected)
          << ranks << " ranks on " << nodes << " nodes by " << transport;
      EXPECT_THAT(group.model(nodes - 1)->backend_description(),
                  HasSubstr(SumsBy(transport)));
    }
  }
}

TEST_F(CudaRanksModelTest, ARowHasTheSameBitsInEveryBatch) {
  const auto model = Load("int8", 2);
  if (model == nullptr) GTEST_SKIP() << "no CUDA device";
  constexpr int kSessions = 4;
  std::vector<Values> alone;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<SequenceRows> batch;
  for (int i = 0; i < kSessions; ++i) {
    const auto sequence = *model->NewSequence(60);
    Values& logits = alone.emplace_back();
    for (const int32_t token : Tokens(3 + 7 * i, i)) {
      logits.clear();
      Append(model->Forward({{sequence.get(), {&token, 1}, 1}}), &logits);
    }
    sequences.push_back(*model->NewSequence(60));
    tokens.push_back(Tokens(3 + 7 * i, i));
  }
  for (size_t i = 0; i < kSessions; ++i) {
    batch.push_back({sequences[i].get(), tokens[i], 1});
  }
  Values together;
  Append(model->Forward(batch), &together);
  for (size_t i = 0; i < kSessions; ++i) {
    const auto begin =
        together.begin() + static_cast<std::ptrdiff_t>(i * kVocab);
    EXPECT_EQ(Values(begin, begin + kVocab), alone[i]) << "session " << i;
  }
}

// Of the rows of one Forward some are drawn, of others the logits are wanted.
TEST_F(CudaRanksModelTest, RankZeroDrawsTokens) {
  for (const int ranks : {1, 2, 4}) {
    const auto model = Load("bf16", ranks);
    if (model == nullptr) GTEST_SKIP() << "no CUDA device";
    EXPECT_TRUE(model->draws_tokens());
    const std::vector<int32_t> tokens = Tokens(6, 5);
    const auto read = *model->NewSequence(20), drawn = *model->NewSequence(20);
    Values logits;
    Append(model->Forward({{read.get(), tokens, 2}}), &logits);
    const std::vector<absl::optional<TokenDraw>> draws = {
        TokenDraw{1, 5, 0.0f, kVocab}, TokenDraw{1, 6, 0.0f, kVocab}};
    SequenceRows rows = {drawn.get(), tokens, 2, draws};
    rows.next_draw = TokenDraw{1, 7, 0.0f, kVocab};  // a hint
    const auto left = model->Forward({rows});
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_TRUE(left->empty());
    ASSERT_EQ(model->drawn_tokens().size(), 2u);
    for (size_t row = 0; row < 2; ++row) {
      const auto begin =
          logits.begin() + static_cast<std::ptrdiff_t>(row * kVocab);
      EXPECT_EQ(model->drawn_tokens()[row],
                std::distance(begin, std::max_element(begin, begin + kVocab)));
    }
    const std::vector<int32_t> next = {model->drawn_tokens()[1]};
    Values after, again;
    Append(model->Forward({{drawn.get(), next, 1}}), &after);
    Append(model->Forward({{read.get(), next, 1}}), &again);
    EXPECT_EQ(after, again);
    EXPECT_EQ(model->queued_steps(), QueuedSteps());
  }
}

TEST_F(CudaRanksModelTest, ReadsAGgufFileAsItsFolder) {
  const auto folder = Load("f32", 2);
  if (folder == nullptr) GTEST_SKIP() << "no CUDA device";
  const std::string file = nacre::testing::TestFolder("gguf") + "/m.gguf";
  nacre::testing::WriteFile(file,
                            nacre::testing::GgufOfCheckpoint(dir_).Bytes());
  const auto gguf = OnDevices(file, Backend("cuda", "f32"), 4);
  ASSERT_NE(gguf, nullptr);
  EXPECT_EQ(RunSessions(folder.get()), RunSessions(gguf.get()));
}

#ifdef NACRE_EMULATED_CUDA
absl::Status Refused(const std::string& dir,
                     const kernels::BackendOptions& backend, int ranks,
                     const ModelOptions& options = SmallOptions()) {
  return TensorParallelModel::Load(dir, backend, ranks, options).status();
}

TEST_F(CudaRanksModelTest, RefusesDevicesThatAreNotThere) {
  ASSERT_NE(Load("f32", 1), nullptr);
  emulation::settings.devices = 3;
  kernels::BackendOptions backend = Backend("cuda", "f32");
  const auto message = [&](int ranks,
                           const ModelOptions& options = SmallOptions()) {
    return std::string(Refused(dir_, backend, ranks, options).message());
  };
  EXPECT_EQ(message(4),
            "--tensor-parallel 4: CUDA device 3 does not exist: 3 found");
  backend.device = 2;
  EXPECT_EQ(message(2),
            "--tensor-parallel 2: CUDA device 3 does not exist: 3 found");
  backend.devices = {0, 1};
  EXPECT_EQ(message(4),
            "--tensor-parallel 4: --device lists 2 devices, one for each rank "
            "is needed");
  EXPECT_EQ(kernels::CreateBackend(backend).status().message(),
            "--device lists 2 devices, which only --tensor-parallel 2 can use");
  // Each would take what it finds free.
  backend.devices = {1, 1};
  ModelOptions of_worker = Options();
  of_worker.kv_budget = KvBudget();
  EXPECT_EQ(message(2, of_worker),
            "--tensor-parallel 2: --device lists 1 twice: ranks that share a "
            "device need --max-memory");
  emulation::settings.memory_bytes = size_t{8} << 20;
  backend.max_memory_bytes = int64_t{6} << 20;
  EXPECT_EQ(Refused(dir_, backend, 2, of_worker), absl::OkStatus());
}

// Of a device that has less free, all take as much.
TEST_F(CudaRanksModelTest, KvCachesAreAsLargeAsTheSmallest) {
  ASSERT_NE(Load("f32", 1), nullptr);
  ModelOptions options = Options();
  options.kv_budget = KvBudget();
  emulation::settings.memory_bytes = size_t{8} << 20;
  const auto backend = Backend("cuda", "f32");
  const auto capacity = [&]() -> int64_t {
    const auto model = TensorParallelModel::Load(dir_, backend, 4, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->info().kv_capacity_tokens : 0;
  };
  const int64_t most = capacity();
  kernels::BackendOptions third = backend;
  third.device = 2;
  const auto other = *kernels::CreateBackend(third);
  const auto taken = *other->Allocate(size_t{2} << 20);
  const int64_t less = capacity();
  EXPECT_LT(less, most);
  EXPECT_GT(less, most / 3);
}

TEST_F(CudaRanksModelTest, ARankWithoutRoomEndsTheLoad) {
  ASSERT_NE(Load("f32", 1), nullptr);
  const auto backend = Backend("cuda", "f32");
  emulation::settings.memory_bytes = size_t{8} << 20;
  for (const int full : {0, 1}) {
    kernels::BackendOptions device = backend;
    device.device = full;
    const auto other = *kernels::CreateBackend(device);
    const auto taken = *other->Allocate((size_t{8} << 20) - (size_t{1} << 12));
    ModelOptions options = Options();
    options.kv_budget = KvBudget();
    // Before any has read its weights.
    float loaded = 0;
    options.progress = [&loaded](absl::string_view, float fraction) {
      loaded = std::max(loaded, fraction);
    };
    const absl::Status status = Refused(dir_, backend, 2, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("rank ", full, ": ")));
    EXPECT_EQ(loaded, 0);
  }
}

TEST_F(CudaRanksModelTest, ALimitBelowAByteARankIsALimit) {
  ASSERT_NE(Load("f32", 1), nullptr);
  auto backend = Backend("cuda", "f32");
  backend.max_memory_bytes = 1;
  ModelOptions options = Options();
  options.kv_budget = KvBudget();
  const absl::Status status = Refused(dir_, backend, 2, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST_F(CudaRanksModelTest, DevicesThatComputeOtherwiseAreRefused) {
  ASSERT_NE(Load("bf16", 1), nullptr);
  emulation::settings.older_device = 1;
  const absl::Status status =
      Refused(dir_, Backend("cuda", "bf16"), 2, Options());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda-sm90"), HasSubstr("cuda-sm80")));
}

class CudaFailingRanksTest : public CudaRanksModelTest,
                             public ::testing::WithParamInterface<std::string> {
};

INSTANTIATE_TEST_SUITE_P(By, CudaFailingRanksTest,
                         ::testing::ValuesIn(DevicesOfRanks::Transports()),
                         [](const auto& test) { return test.param; });

TEST_P(CudaFailingRanksTest, ADeviceThatFailsEndsTheModelForGood) {
  const auto model = Load("f32", 4, GetParam());
  ASSERT_NE(model, nullptr);
  const auto sequence = *model->NewSequence(20);
  const std::vector<int32_t> tokens = {1};
  EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  emulation::settings.fault = cudaErrorIllegalAddress;
  emulation::settings.fault_device = 2;
  absl::Status first;
  for (int i = 0; i < 2; ++i) {
    const absl::Status status =
        model->Forward({{sequence.get(), tokens, 1}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("rank 2: "), HasSubstr("emulated error")));
    EXPECT_EQ(sequence->length(), 1);
    // It stays so, whatever the device says later.
    emulation::settings.fault = cudaSuccess;
    if (i == 0) first = status;
    EXPECT_EQ(status, first);
  }
}

// With no wait of the host for another rank in between.
TEST_F(CudaRanksModelTest, AStepOfPeersIsAGraphOnEachRank) {
  const auto model = Load("bf16", 2, "peer");
  ASSERT_NE(model, nullptr);
  const auto sequence = *model->NewSequence(20);
  int graphs = 0;
  for (int step = 0; step < 6; ++step) {
    const std::vector<int32_t> tokens = {step};
    EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
    // The first ones are queued as they come: buffers may still grow.
    if (step < 2) graphs = emulation::counts.graph_launches;
  }
  EXPECT_EQ(emulation::counts.graph_launches - graphs, 2 * 4);
}

TEST_F(CudaRanksModelTest, RefusesRanksThatAreNoPeers) {
  ASSERT_NE(Load("f32", 1), nullptr);
  kernels::BackendOptions backend = Backend("cuda", "f32");
  backend.rank_transport = "peer";
  const auto message = [&](int ranks) {
    return std::string(Refused(dir_, backend, ranks).message());
  };
  const std::string flag = "--tensor-parallel-transport peer: ";
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(1), flag + "one rank has no peers");
  emulation::settings.strangers = {{0, 3}};
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(4), flag + "device 0 cannot read the memory of device 3");
  backend.devices = {1, 1};
  EXPECT_EQ(message(2),
            flag + "two ranks have device 1, each needs one of its own");
}

#ifdef NACRE_NCCL_LIBRARY
// Whatever NCCL refuses in the middle of a step.
TEST_F(CudaRanksModelTest, ACallOfNcclThatFailsEndsTheModelForGood) {
  for (const int call : {0, 5, 11}) {
    const auto model = Load("f32", 4, "nccl");
    ASSERT_NE(model, nullptr);
    const auto sequence = *model->NewSequence(20);
    const std::vector<int32_t> tokens = {1};
    EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
    auto* const nccl = kernels::cuda::LoadNcclOfTests();
    nccl->failing_call = call;
    const absl::Status first =
        model->Forward({{sequence.get(), tokens, 1}}).status();
    EXPECT_EQ(first.code(), absl::StatusCode::kInternal) << call;
    EXPECT_THAT(std::string(first.message()),
                AllOf(StartsWith("rank "), HasSubstr(": other error")));
    EXPECT_EQ(model->Forward({{sequence.get(), tokens, 1}}).status(), first);
    EXPECT_EQ(sequence->length(), 1);
    EXPECT_EQ(nccl->aborts, 4);
  }
}

// From another thread, while devices wait for each other.
TEST_F(CudaRanksModelTest, AnAbortEndsAStepThatWaits) {
  const auto model = Load("f32", 2, "nccl");
  ASSERT_NE(model, nullptr);
  const auto sequence = *model->NewSequence(20);
  const std::vector<int32_t> tokens = {1};
  EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  kernels::cuda::LoadNcclOfTests()->holds_values = true;
  const absl::Status reason = absl::UnavailableError("the power went");
  std::thread abort([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    model->Abort(reason);
  });
  EXPECT_EQ(model->Forward({{sequence.get(), tokens, 1}}).status(), reason);
  abort.join();
}

// In the middle of a step, by which devices wait for each other.
TEST_F(CudaRanksModelTest, ALostNodeEndsTheRanksOfAllByNccl) {
  ASSERT_NE(Load("f32", 1), nullptr);
  kernels::BackendOptions backend = Backend("cuda", "f32");
  backend.rank_transport = "nccl";
  NodeGroup group(dir_, backend, 4, 2, SmallOptions());
  const auto sequence = *group.leader()->NewSequence(20);
  const std::vector<int32_t> tokens = {1};
  EXPECT_TRUE(group.leader()->Forward({{sequence.get(), tokens, 1}}).ok());
  auto* const nccl = kernels::cuda::LoadNcclOfTests();
  nccl->holds_values = true;
  const absl::Status reason = absl::UnavailableError("node 1 is lost");
  std::thread loses([&] { group.network().Lose(reason); });
  EXPECT_EQ(group.leader()->Forward({{sequence.get(), tokens, 1}}).status(),
            reason);
  EXPECT_EQ(group.FailureOf(1), reason);
  loses.join();
  EXPECT_EQ(nccl->aborts, 4);
  EXPECT_EQ(sequence->length(), 1);
}

TEST_F(CudaRanksModelTest, ADeviceOfAnotherNodeThatFailsIsNamed) {
  ASSERT_NE(Load("f32", 1), nullptr);
  kernels::BackendOptions backend = Backend("cuda", "f32");
  backend.rank_transport = "nccl";
  NodeGroup group(dir_, backend, 4, 2, SmallOptions());
  const auto sequence = *group.leader()->NewSequence(20);
  const std::vector<int32_t> tokens = {1};
  EXPECT_TRUE(group.leader()->Forward({{sequence.get(), tokens, 1}}).ok());
  emulation::settings.fault = cudaErrorIllegalAddress;
  emulation::settings.fault_device = 3;
  // It may have done its part before it fails.
  static_cast<void>(group.leader()->Forward({{sequence.get(), tokens, 1}}));
  const absl::Status failure = group.FailureOf(1);
  EXPECT_THAT(std::string(failure.message()),
              AllOf(StartsWith("rank 3: "), HasSubstr("emulated error")));
  EXPECT_EQ(group.leader()->Forward({{sequence.get(), tokens, 1}}).status(),
            failure);
}

TEST_F(CudaRanksModelTest, TakesNcclWhereItCan) {
  const auto described = [&](const std::string& transport,
                             const std::vector<int>& devices) {
    kernels::BackendOptions backend = Backend("cuda", "f32");
    backend.rank_transport = transport;
    backend.devices = devices;
    const auto model =
        TensorParallelModel::Load(dir_, backend, 2, SmallOptions());
    return model.ok() ? (*model)->backend_description()
                      : std::string(model.status().message());
  };
  ASSERT_NE(Load("f32", 1), nullptr);
  EXPECT_THAT(described("auto", {}), EndsWith(", sums by NCCL"));
  EXPECT_THAT(described("auto", {1, 1}),
              EndsWith(", sums in host memory; not by NCCL: two ranks have "
                       "device 1, NCCL needs one for each"));
  EXPECT_EQ(described("nccl", {1, 1}),
            "--tensor-parallel-transport nccl: two ranks have device 1, NCCL "
            "needs one for each");
  EXPECT_THAT(described("host", {}),
              EndsWith("not by NCCL: --tensor-parallel-transport host"));
  auto* const nccl = kernels::cuda::LoadNcclOfTests();
  nccl->version = 21605;
  EXPECT_THAT(described("auto", {}),
              AllOf(HasSubstr("sums in host memory; not by NCCL: libnccl.so.2 "
                              "is too old: version 21605"),
                    Not(HasSubstr("sums by NCCL"))));
  EXPECT_THAT(described("nccl", {}),
              StartsWith("--tensor-parallel-transport nccl: libnccl.so.2 is "
                         "too old"));
  // One that is there, and refuses.
  nccl->version = 22703;
  nccl->result = ncclSystemError;
  EXPECT_THAT(described("auto", {}),
              EndsWith("not by NCCL: ncclGetUniqueId: other error"));
  EXPECT_EQ(nccl->comms, 0);
}
#endif
#endif

}  // namespace
}  // namespace nacre::model
