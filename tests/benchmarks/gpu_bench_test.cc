// bench_gpu runs, and what it says adds up: on the emulated device, whose times
// mean nothing.

#include "tests/benchmarks/gpu_bench.h"

#include <dlfcn.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#ifdef NACRE_CUBLAS_LIBRARY
#include "tests/kernels/cuda/cublas_library.h"
#endif

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;
using ::testing::HasSubstr;

class GpuBenchTest : public ::testing::Test {
 protected:
  GpuBenchTest() { emulation::ResetDevice(); }
  ~GpuBenchTest() override { emulation::ResetDevice(); }
};

TEST_F(GpuBenchTest, MeasuresEveryPart) {
  const GpuBenchPlan plan = TinyGpuBenchPlan();
  size_t saved = 0;  // models, the last time
  const auto json = RunGpuBench(plan, [&](const nlohmann::ordered_json& now) {
    saved = now.contains("models") ? now["models"].size() : 0;
  });
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(saved, plan.models.size());
  EXPECT_EQ((*json)["complete"], true) << json->dump(1);
  EXPECT_EQ((*json)["any_failed"], false) << json->dump(1);
  EXPECT_EQ((*json)["batch_invariant"], true);
  for (const char* limit :
       {"read_bytes_per_second", "copy_bytes_per_second", "bf16_per_second"}) {
    EXPECT_GT((*json)["limits"][limit], 0) << limit;
  }
  ASSERT_EQ((*json)["models"].size(), plan.models.size());
  for (const auto& model : (*json)["models"]) {
    for (const char* const steps : {"steps", "drawn_steps"}) {
      ASSERT_EQ(model[steps].size(), plan.rows.size());
      EXPECT_EQ(model[steps][0]["to_one_row"], 1.0);
    }
    EXPECT_EQ(model["prompts"].size(), plan.prompts.size());
    EXPECT_GT(model["draft_loop"]["seconds_per_token"], 0);
    EXPECT_EQ(model["batch_invariant"], true);
    EXPECT_EQ(model["kv_type"], "bf16");
  }
  // 2 layers of 64 x (2 x 64 + 2 x 32 + 3 x 128), a head of 512 x 64; a step
  // reads them in bf16, and in int8 with a scale for 64.
  const double weights = 2 * 64 * (128 + 64 + 384) + 512 * 64;
  EXPECT_EQ((*json)["models"][0]["step_bytes"], 2 * weights);
  EXPECT_EQ((*json)["models"][1]["step_bytes"], weights * (1 + 1.0 / 32));
  for (const auto& attention : (*json)["attention"]) {
    EXPECT_EQ(attention["cases"].size(), 4u);
  }
  EXPECT_EQ((*json)["sampling"]["cases"].size(), 4 * plan.rows.size());
  const auto& small = (*json)["small_kernels"]["cases"];
  EXPECT_EQ(small.size(), 3 * (plan.rows.size() + plan.prompts.size()));
  for (const auto& kernel : small) EXPECT_GT(kernel["seconds"], 0) << kernel;
}

TEST_F(GpuBenchTest, PromptsAreMeasuredByWarpgroupsToo) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.models.resize(1);
  plan.rows = {1};
  plan.warpgroup_attention = true;
  plan.attention_heads = 8;
  plan.attention_kv_heads = 2;
  plan.attention_head_dim = 64;
  plan.attention_prompt_rows = 64;
  const auto json = RunGpuBench(plan);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["any_failed"], false) << *json;
  const auto& f32 = (*json)["attention"][0]["cases"].back();
  EXPECT_FALSE(f32.contains("warpgroups"));
  const auto& bf16 = (*json)["attention"][1]["cases"].back();
  EXPECT_EQ(bf16["rows"], 64);
  EXPECT_GT(bf16["warpgroups"]["operations_per_second"], 0);
  EXPECT_EQ(bf16["warpgroups"]["same_bits"], true);
}

TEST_F(GpuBenchTest, SaysWhatThereWasNoTimeFor) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.seconds = 0;
  const auto json = RunGpuBench(plan);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["complete"], false);
  EXPECT_EQ((*json)["any_failed"], false);
  EXPECT_THAT((*json)["models"][0]["left_out"].get<std::string>(),
              HasSubstr("s are left"));
  EXPECT_TRUE((*json)["attention"][0].contains("left_out"));
}

TEST_F(GpuBenchTest, AModelThatDoesNotFitIsSkippedWithTheNumbers) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.attention_contexts.clear();
  plan.rows = {1};
  plan.models = {{"large", "bf16", {512, 1024, 4, 4, 4, 128, 4096, 256}}};
  emulation::settings.memory_bytes =
      emulation::counts.used_bytes + (size_t{16} << 20);
  const auto json = RunGpuBench(plan);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT((*json)["models"][0]["skipped"].get<std::string>(),
              HasSubstr("the weights need "));
  EXPECT_EQ((*json)["any_failed"], false);
}

TEST_F(GpuBenchTest, GraphsAndOverlapCanBeTurnedOff) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.attention_contexts.clear();
  plan.models.resize(1);
  ASSERT_TRUE(RunGpuBench(plan).ok());
  EXPECT_GT(emulation::counts.graph_launches, 0);
  EXPECT_FALSE(emulation::counts.early_kernels.empty());
  emulation::ResetDevice();
  plan.graphs = false;
  plan.overlap = false;
  plan.fusion = false;
  ASSERT_TRUE(RunGpuBench(plan).ok());
  EXPECT_EQ(emulation::counts.graph_launches, 0);
  EXPECT_TRUE(emulation::counts.early_kernels.empty());
}

TEST_F(GpuBenchTest, StepsCanBeOneKernel) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.attention_contexts.clear();
  plan.models.resize(1);
  plan.persistent = true;
  const auto json = RunGpuBench(plan);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["any_failed"], false) << *json;
  EXPECT_EQ((*json)["batch_invariant"], true);
  EXPECT_GT((*json)["models"][0]["graphs"]["persistent"], 0);
  EXPECT_GT(emulation::counts.cooperative_launches, 0);
}

#ifdef NACRE_CUBLAS_LIBRARY
TEST_F(GpuBenchTest, PromptsByCublasStandBesideOurs) {
  void* const library = dlopen(NACRE_CUBLAS_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  using Find = kernels::cuda::CublasLibraryState* (*)();
  auto* const state = reinterpret_cast<Find>(dlsym(library, "CublasLibrary"))();
  state->launch = &cudaLaunchHostFunc;
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.attention_contexts.clear();
  plan.rows = {1, 2};
  plan.models.resize(1);
  plan.models[0].weights = "bf16";
  plan.prefill = kernels::kCublasPrefill;
  plan.cublas_library = NACRE_CUBLAS_LIBRARY;
  const auto json = RunGpuBench(plan);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["any_failed"], false) << *json;
  EXPECT_EQ((*json)["batch_invariant"], true);
  const auto& prompts = (*json)["models"][0]["prompts"];
  ASSERT_EQ(prompts.size(), 2 * plan.prompts.size());
  EXPECT_EQ(prompts.front()["prefill"], "own");
  EXPECT_EQ(prompts.back()["prefill"], "cublas");
  EXPECT_FALSE(state->rows.empty());
}
#endif

TEST_F(GpuBenchTest, ADeviceThatBreaksIsAFailure) {
  GpuBenchPlan plan = TinyGpuBenchPlan();
  plan.attention_contexts.clear();
  plan.rows = {1};
  emulation::settings.next_launch = cudaErrorLaunchOutOfResources;
  EXPECT_EQ(RunGpuBench(plan).status().code(), absl::StatusCode::kInternal);
  emulation::settings.count_error = cudaErrorNoDevice;
  EXPECT_EQ(RunGpuBench(plan).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(GpuBenchTest, ModelsAreNamedWithTheTypesOfTheirWeights) {
  const auto models = ParseGpuModels("8B,33B:int8");
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].weights, "bf16");
  EXPECT_EQ((*models)[1].shape.layers, 60);
  EXPECT_EQ((*models)[1].weights, "int8");
  EXPECT_THAT(std::string(ParseGpuModels("9B").status().message()),
              HasSubstr("no model \"9B\", expected 1B, 1.3B, 8B, 33B or 70B"));
}

// Their names say how many parameters they have.
TEST_F(GpuBenchTest, TheModelsHaveTheirSizes) {
  // A random Llama has a head of its own; 1B's model shares its embeddings'.
  const double billions[] = {1.5, 1.3, 8.0, 32.5, 70.6};
  ASSERT_EQ(GpuModels().size(), std::size(billions));
  for (size_t i = 0; i < std::size(billions); ++i) {
    const LlamaShape& shape = GpuModels()[i].shape;
    const double parameters =
        1.0 * shape.layers * shape.hidden *
            (2.0 * shape.heads * shape.head_dim +
             2.0 * shape.kv_heads * shape.head_dim + 3.0 * shape.intermediate) +
        2.0 * shape.vocab * shape.hidden;
    EXPECT_NEAR(parameters * 1e-9, billions[i], 0.06 * billions[i]) << i;
  }
}

}  // namespace
}  // namespace nacre::model
