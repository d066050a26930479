// A step of the bundled pair on the cuda backend neither waits nor uploads more
// than it must; a device that fails does so in a Status. On the emulated
// device.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/cuda/cuda_backend.h"
#include "model/load_model.h"
#include "model/model_backend.h"
#include "model/sampler.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/model/option_goldens.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<kernels::Backend> MakeBackend(
    const std::string& kind, const std::string& kv_type,
    const std::string& weights = "auto") {
  kernels::BackendOptions options;
  options.weights = weights;
  options.kind = kind;
  options.kv_type = kv_type;
  return *kernels::CreateBackend(options);
}

std::unique_ptr<LanguageModel> Load(const std::string& name,
                                    kernels::Backend* backend) {
  auto model =
      LoadModel(std::string(NACRE_MODELS "/") + name, backend, {4 << 20, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

class CudaModelTest : public ::testing::Test {
 protected:
  CudaModelTest() { emulation::ResetDevice(); }
  ~CudaModelTest() override { emulation::ResetDevice(); }
};

TEST_F(CudaModelTest, AStepUploadsOnceAndWaitsAtItsEnd) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto first = *model->NewSequence(40);
  const auto second = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9, 33};
  ASSERT_TRUE(
      model->Forward({{first.get(), tokens, 1}, {second.get(), tokens, 4}})
          .ok());
  emulation::counts.uploads = 0;
  emulation::counts.waits = 0;
  const auto logits =
      model->Forward({{first.get(), tokens, 1}, {second.get(), tokens, 4}});
  ASSERT_TRUE(logits.ok());
  // Token ids, cosines, sines, where rows stand, their tiles.
  EXPECT_EQ(emulation::counts.uploads, 1);
  EXPECT_EQ(emulation::counts.waits, 1);
}

// Whatever changes from one token to the next: draws, the block that a row is
// in, attention's splits. Of models with learned positions, or two kinds of
// angles, too.
TEST_F(CudaModelTest, ADecodeStepUploadsOnce) {
  const std::set<std::string> options = {"big_code", "gemma3", "llama_linear"};
  size_t tested = 0;
  for (const OptionGolden& option : ReadOptionGoldens()) {
    if (options.count(option.name) == 0) continue;
    ++tested;
    const auto backend = MakeBackend("cuda", "f32");
    const auto model = LoadOption(option, backend.get());
    const auto sequence = *model->NewSequence(20);
    for (int i = 0; i < 20; ++i) {
      const int32_t token = 1 + i;
      const std::vector<absl::optional<TokenDraw>> draws = {
          TokenDraw{1, i + 1, 1.0f, model->info().vocab_size}};
      emulation::counts.uploads = 0;
      const auto status =
          model->Forward({{sequence.get(), {&token, 1}, 1, draws}}).status();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(emulation::counts.uploads, 1) << option.name << ", token " << i;
    }
  }
  EXPECT_EQ(tested, options.size());
}

TEST_F(CudaModelTest, OnlyLogitsThatAreWantedCrossTheBus) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("target", backend.get());
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  const std::vector<int32_t> tokens = {1, 5, 9, 33};
  const auto first = *model->NewSequence(40);
  const auto second = *model->NewSequence(40);
  const auto logits =
      model->Forward({{first.get(), tokens, 1}, {second.get(), tokens, 4}});
  ASSERT_TRUE(logits.ok());
  const std::vector<float> all(logits->begin(), logits->end());
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = 12;
  Sampler sampler(params, static_cast<int>(vocab));
  std::vector<int32_t> expected;
  for (const size_t row : {0, 1, 2, 4}) {
    expected.push_back(
        sampler.Sample(absl::MakeConstSpan(all).subspan(row * vocab, vocab),
                       3 + static_cast<int>(row), TokenHistory(0)));
  }
  const std::vector<absl::optional<TokenDraw>> of_first = {
      sampler.DeviceDraw(3)};
  const std::vector<absl::optional<TokenDraw>> of_second = {
      sampler.DeviceDraw(4), sampler.DeviceDraw(5), absl::nullopt,
      sampler.DeviceDraw(7)};
  for (int i = 0; i < 2; ++i) {  // what the first allocates waits
    first->Truncate(0);
    second->Truncate(0);
    emulation::counts.uploads = 0;
    emulation::counts.waits = 0;
    emulation::counts.downloaded_bytes = 0;
    const auto rest = model->Forward({{first.get(), tokens, 1, of_first},
                                      {second.get(), tokens, 4, of_second}});
    ASSERT_TRUE(rest.ok()) << rest.status();
    EXPECT_EQ(*rest, absl::MakeConstSpan(all).subspan(3 * vocab, vocab));
    EXPECT_EQ(model->drawn_tokens(), absl::MakeConstSpan(expected));
  }
  EXPECT_EQ(emulation::counts.uploads, 1);
  EXPECT_EQ(emulation::counts.waits, 1);
  EXPECT_EQ(emulation::counts.downloaded_bytes,
            vocab * sizeof(float) + 4 * sizeof(int32_t));
}

// A caller that wants them on the host copies them, and only what it wants.
TEST_F(CudaModelTest, HiddenStatesStayOnTheDevice) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const size_t size = static_cast<size_t>(model->info().hidden_size);
  const std::vector<int32_t> tokens = {1, 5, 9, 33};
  const auto sequence = *model->NewSequence(40);
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 3}}).ok());
  emulation::counts.downloaded_bytes = 0;
  const kernels::FloatView hidden = model->final_hidden();
  EXPECT_EQ(hidden.location(), kernels::Location::kDevice);
  EXPECT_EQ(hidden.size(), 3 * size);
  const kernels::FloatView last = hidden.subview(2 * size, size);
  EXPECT_EQ(emulation::counts.downloaded_bytes, 0u);
  std::vector<float> scratch;
  const absl::Span<const float> values = last.OnHost(&scratch);
  EXPECT_EQ(emulation::counts.downloaded_bytes, size * sizeof(float));

  const auto reference = MakeBackend("reference", "f32");
  const auto truth = Load("draft", reference.get());
  const auto alone = *truth->NewSequence(40);
  ASSERT_TRUE(truth->Forward({{alone.get(), tokens, 1}}).ok());
  const absl::Span<const float> expected = truth->final_hidden().host();
  ASSERT_EQ(values.size(), expected.size());
  float largest = 0;
  for (const float value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < size; ++i) {
    EXPECT_NEAR(values[i], expected[i], 0.02f * largest) << i;
  }
}

TEST_F(CudaModelTest, AFailingDeviceFailsTheDraws) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9};
  const std::vector<absl::optional<TokenDraw>> draws = {
      TokenDraw{1, 3, 1.0f, model->info().vocab_size}};
  const SequenceRows rows = {sequence.get(), tokens, 1, draws};
  ASSERT_TRUE(model->Forward({rows}).ok());
  emulation::settings.fault = cudaErrorIllegalAddress;
  EXPECT_EQ(model->Forward({rows}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(sequence->length(), 3);
}

TEST_F(CudaModelTest, ALayerIsSixKernels) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto config = ReadConfig(NACRE_MODELS "/draft");
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9};
  emulation::counts.launches = 0;
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  // Product, attention, rounding, product; product, product. Around them the
  // embedding, and a norm, rounding and a product.
  EXPECT_EQ(emulation::counts.launches, 6 * config->num_hidden_layers + 4);
}

TEST_F(CudaModelTest, BiasesAreOneKernelMore) {
  const auto backend = MakeBackend("cuda", "f32");
  const std::string dir = NACRE_TEST_DATA "/model/families/qwen2";
  const auto model = *LoadModel(dir, backend.get(), {1 << 20, {}});
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9};
  emulation::counts.launches = 0;
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  EXPECT_EQ(emulation::counts.launches,
            11 * ReadConfig(dir)->num_hidden_layers + 4);
}

// Loads a random checkpoint on a backend of bf16 weights.
std::unique_ptr<LanguageModel> LoadRandom(
    const nacre::testing::TinyCheckpoint& shape, kernels::Backend* backend) {
  const std::string dir = nacre::testing::TestFolder("random");
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  return *LoadModel(dir, backend, {1 << 20, {}});
}

// A step is launched when all of it is recorded. Its products ask for 104 KB of
// shared memory, but the last for 96: of one kernel, so what it was told for
// the last must serve the others, too.
TEST_F(CudaModelTest, ProductsOfAStepNeedUnequalSharedMemory) {
  const auto backend = MakeBackend("cuda", "bf16", "bf16");
  const auto model = LoadRandom({.hidden_size = 1024,
                                 .intermediate_size = 512,
                                 .num_attention_heads = 8,
                                 .head_dim = 128},
                                backend.get());
  const auto sequence = *model->NewSequence(4);
  const int32_t token = 1;
  ASSERT_TRUE(model->Forward({{sequence.get(), {&token, 1}, 1}}).ok());
  EXPECT_GT(emulation::counts.kernel_attributes, 0);
  emulation::counts.kernel_attributes = 0;
  const auto second = model->Forward({{sequence.get(), {&token, 1}, 1}});
  EXPECT_TRUE(second.ok()) << second.status();
  // Each kernel is told once.
  EXPECT_EQ(emulation::counts.kernel_attributes, 0);
  for (const void* const kernel : emulation::counts.kernels) {
    EXPECT_EQ(emulation::SharedCarveout(kernel),
              cudaSharedmemCarveoutMaxShared);
  }
}

// The first step, as large as any, allocates what longer contexts will need.
TEST_F(CudaModelTest, NothingIsAllocatedWhileContextsGrow) {
  constexpr int kRows = 16;
  constexpr int kLength = 400;  // partial results of 4 splits, 25 blocks
  const auto backend = MakeBackend("cuda", "bf16", "bf16");
  const auto model = LoadRandom({}, backend.get());
  const auto sequence = *model->NewSequence(kLength);
  const std::vector<int32_t> tokens(kRows, 3);
  const auto step = [&] {
    const auto logits = model->Forward({{sequence.get(), tokens, kRows}});
    ASSERT_TRUE(logits.ok()) << logits.status();
  };
  step();
  emulation::counts.allocations = 0;
  emulation::counts.waits = 0;
  int steps = 0;
  for (; sequence->length() < kLength; ++steps) step();
  EXPECT_EQ(emulation::counts.allocations, 0);
  EXPECT_EQ(emulation::counts.waits, steps);
}

// Runs one batch on a model with graphs and on one without.
class GraphsTest : public CudaModelTest {
 protected:
  static constexpr int kModels = 2;

  GraphsTest() {
    const std::string dir = nacre::testing::TestFolder("graphs");
    nacre::testing::WriteTinyCheckpoint({}, dir);
    for (int i = 0; i < kModels; ++i) {
      auto device = *kernels::cuda::Device::Open(0);
      auto staging = *kernels::cuda::Staging::Create(device.get());
      backends_[i] = std::make_unique<kernels::CudaBackend>(
          std::move(device), std::move(staging), kernels::WeightType::kBF16,
          kernels::DType::kBF16, kernels::CudaBackendOptions{.graphs = i == 1});
      models_[i] = *LoadModel(dir, backends_[i].get(), {1 << 20, {}});
    }
  }

  // Of both models.
  struct Session {
    std::unique_ptr<Sequence> sequences[kModels];
  };
  Session NewSession() {
    Session session;
    for (int i = 0; i < kModels; ++i) {
      session.sequences[i] = *models_[i]->NewSequence(400);
    }
    return session;
  }

  // Feeds each session so many random tokens, and compares all logits.
  void Step(const std::vector<std::pair<Session*, int>>& rows) {
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& [session, count] : rows) {
      tokens.emplace_back();
      for (int i = 0; i < count; ++i) {
        tokens.back().push_back(static_cast<int32_t>(random_() % 101));
      }
    }
    absl::Span<const float> logits[kModels];
    for (int i = 0; i < kModels; ++i) {
      std::vector<SequenceRows> batch;
      for (size_t j = 0; j < rows.size(); ++j) {
        batch.push_back(
            {rows[j].first->sequences[i].get(), tokens[j], rows[j].second});
      }
      const auto result = models_[i]->Forward(batch);
      ASSERT_TRUE(result.ok()) << result.status();
      logits[i] = *result;
    }
    ASSERT_EQ(logits[0].size(), logits[1].size());
    ASSERT_EQ(std::memcmp(logits[0].data(), logits[1].data(),
                          logits[0].size() * sizeof(float)),
              0)
        << "step " << steps_;
    ++steps_;
  }

  std::mt19937 random_{1};
  int steps_ = 0;
  std::unique_ptr<kernels::Backend> backends_[kModels];
  std::unique_ptr<LanguageModel> models_[kModels];
};

// Contexts pass the ends of attention's splits (128, 256), steps have one row
// or several, batches grow and shrink, prompts of all sizes come between.
TEST_F(GraphsTest, ChangeNoBitOfAnyStep) {
  Session first = NewSession();
  Session second = NewSession();
  Step({{&first, 118}});
  for (int i = 0; i < 12; ++i) Step({{&first, 1}});
  EXPECT_GE(emulation::counts.graph_launches, 12 - 4);  // two steps to learn
  for (int i = 0; i < 4; ++i) Step({{&first, 4}});
  Step({{&second, 20}});
  for (int i = 0; i < 6; ++i) Step({{&first, 2}, {&second, 3}});
  for (int i = 0; i < 4; ++i) Step({{&second, 1}, {&first, 1}});
  Step({{&first, 75}, {&second, 1}});
  for (int i = 0; i < 14; ++i) Step({{&first, 2}});
  second = NewSession();
  for (int i = 0; i < 6; ++i) Step({{&second, 1}});
  for (int i = 0; i < 6; ++i) Step({{&second, 5}, {&first, 1}});
  const int graph_launches = emulation::counts.graph_launches;
  const int launches = emulation::counts.launches;
  Step({{&second, 5}, {&first, 1}});
  EXPECT_EQ(emulation::counts.graph_launches, graph_launches + 1);
  // The other model's, and the few that are in no graph.
  EXPECT_LT(emulation::counts.launches - launches, 40);
}

TEST_F(GraphsTest, FailToLaunchInAStatus) {
  Session session = NewSession();
  for (int i = 0; i < 3; ++i) Step({{&session, 1}});
  emulation::settings.next_graph_launch = cudaErrorLaunchFailure;
  const int32_t token = 1;
  Sequence* const sequence = session.sequences[1].get();
  const auto failed = models_[1]->Forward({{sequence, {&token, 1}, 1}});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.status().message()),
              HasSubstr("kernels of a step"));
  EXPECT_EQ(sequence->length(), 3);
}

// Unless told, keys are kept as products are computed.
TEST_F(CudaModelTest, KeysAreInBf16WhereTheCheckpointIs) {
  nacre::testing::TinyCheckpoint shape;
  const std::string f32 = nacre::testing::TestFolder("f32");
  nacre::testing::WriteTinyCheckpoint(shape, f32);
  shape.dtype = kernels::DType::kBF16;
  const std::string bf16 = nacre::testing::TestFolder("bf16");
  nacre::testing::WriteTinyCheckpoint(shape, bf16);
  const auto numerics = [](const std::string& dir,
                           kernels::BackendOptions options) {
    const auto backend = CreateBackendFor(dir, options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    const auto model = LoadModel(dir, backend->get(), {4 << 20, {}});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->info().numerics_id;
  };
  const char* const in_bf16 = "-kvbf16-";
  const char* const in_f32 = "-kvf32-";
  EXPECT_THAT(numerics(bf16, {.kind = "cuda"}), HasSubstr(in_bf16));
  EXPECT_THAT(numerics(f32, {.kind = "cuda"}), HasSubstr(in_f32));
  EXPECT_THAT(numerics(bf16, {.kind = "cpu"}), HasSubstr(in_f32));
  for (const char* weights : {"bf16", "int8", "fp8", "int4"}) {
    EXPECT_THAT(numerics(bf16, {.kind = "cuda", .weights = weights}),
                HasSubstr(in_bf16));
    EXPECT_THAT(numerics(f32, {.kind = "cuda", .weights = weights}),
                HasSubstr(in_f32));
  }
  EXPECT_THAT(numerics(bf16, {.kind = "cuda", .weights = "f32"}),
              HasSubstr(in_f32));
  EXPECT_THAT(numerics(bf16, {.kind = "cuda", .kv_type = "f32"}),
              HasSubstr(in_f32));
  EXPECT_THAT(numerics(f32, {.kind = "cuda", .kv_type = "bf16"}),
              HasSubstr(in_bf16));
}

TEST_F(CudaModelTest, AFailingDeviceFailsTheStepAndChangesNoLength) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9};
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  emulation::settings.fault = cudaErrorIllegalAddress;
  const auto failed = model->Forward({{sequence.get(), tokens, 1}});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(sequence->length(), 3);
  emulation::settings.fault = cudaSuccess;
  EXPECT_FALSE(model->Forward({{sequence.get(), tokens, 1}}).ok());
}

TEST_F(CudaModelTest, WeightsThatDoNotFitSayHowMuch) {
  const auto backend = MakeBackend("cuda", "f32");
  emulation::settings.memory_bytes = emulation::counts.used_bytes + (1 << 20);
  const auto model =
      LoadModel(NACRE_MODELS "/target", backend.get(), {4 << 20, {}});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(model.status().message()),
      AllOf(HasSubstr("the weights need"),
            HasSubstr("on the device, 1048576 of"), HasSubstr("are free")));
}

}  // namespace
}  // namespace nacre::model
