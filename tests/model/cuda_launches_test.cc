// How many kernels a layer of a decoding step takes, of models whose products
// have slices where those of Llama's sizes have them. The emulated device
// counts launches, and runs none.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/cuda/gemm_order.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;

struct Shape {
  int hidden;
  int intermediate;
  int heads;
  int kv_heads;
  int head_dim;
};

// Which products of a layer have slices: queries, keys and values; attention's
// output; gate and up; down.
std::vector<bool> Slices(const Shape& shape) {
  const int queries = shape.heads * shape.head_dim;
  const int kv = 2 * shape.kv_heads * shape.head_dim;
  const int products[][2] = {{queries + kv, shape.hidden},
                             {shape.hidden, queries},
                             {2 * shape.intermediate, shape.hidden},
                             {shape.hidden, shape.intermediate}};
  std::vector<bool> slices;
  for (const auto& [outputs, inputs] : products) {
    slices.push_back(kernels::cuda::GemmOrderOf(outputs, inputs).slices > 1);
  }
  return slices;
}

struct Case {
  const char* name;
  Shape of;       // the model that it stands for
  Shape smaller;  // with slices where that one has them
  // Kernels of a layer whose context is longer than a split, of 1 row and of
  // 16; likewise where kernels do what others would after them.
  std::vector<int> kernels;
  std::vector<int> fused;
};

class LaunchesTest : public ::testing::TestWithParam<Case> {
 protected:
  LaunchesTest() { emulation::ResetDevice(); }
  ~LaunchesTest() override { emulation::ResetDevice(); }

  // Of steps of 1 and of 16 rows behind 200 positions.
  static std::vector<int> Launches(int layers, bool fusion) {
    const Shape& shape = GetParam().smaller;
    const std::string dir = nacre::testing::TestFolder("launches");
    nacre::testing::WriteTinyCheckpoint(
        {.hidden_size = shape.hidden,
         .intermediate_size = shape.intermediate,
         .num_hidden_layers = layers,
         .num_attention_heads = shape.heads,
         .num_key_value_heads = shape.kv_heads,
         .head_dim = shape.head_dim,
         .dtype = kernels::DType::kBF16},
        dir);
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.kv_type = "bf16";
    options.graphs = false;  // each launch is one
    options.fusion = fusion;
    const auto backend = *kernels::CreateBackend(options);
    const auto model = *LoadModel(dir, backend.get(), {1 << 23, {}});
    emulation::settings.runs_kernels = false;
    const auto sequence = *model->NewSequence(300);
    const auto step = [&](int count) {
      const std::vector<int32_t> tokens(static_cast<size_t>(count), 1);
      EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
    };
    step(200);
    std::vector<int> launches;
    for (const int rows : {1, 16}) {
      emulation::counts.launches = 0;
      step(rows);
      launches.push_back(emulation::counts.launches);
    }
    emulation::settings.runs_kernels = true;
    return launches;
  }

  static std::vector<int> LaunchesOfALayer(bool fusion) {
    std::vector<int> launches = Launches(2, fusion);
    const std::vector<int> less = Launches(1, fusion);
    for (size_t i = 0; i < less.size(); ++i) launches[i] -= less[i];
    return launches;
  }
};

TEST_P(LaunchesTest, HasItsProductsInSlices) {
  EXPECT_EQ(Slices(GetParam().smaller), Slices(GetParam().of));
}

TEST_P(LaunchesTest, OfALayer) {
  EXPECT_EQ(LaunchesOfALayer(false), GetParam().kernels);
  EXPECT_EQ(LaunchesOfALayer(true), GetParam().fused);
}

INSTANTIATE_TEST_SUITE_P(Llamas, LaunchesTest,
                         ::testing::Values(Case{"1B",
                                                {2048, 8192, 32, 8, 64},
                                                {2048, 2048, 32, 8, 64},
                                                {14, 14},
                                                {6, 8}},
                                           Case{"8B",
                                                {4096, 14336, 32, 8, 128},
                                                {256, 2048, 4, 1, 64},
                                                {12, 12},
                                                {6, 8}},
                                           Case{"70B",
                                                {8192, 28672, 64, 8, 128},
                                                {2048, 2016, 16, 2, 128},
                                                {15, 15},
                                                {6, 8}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nacre::model
