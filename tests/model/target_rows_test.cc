#include "model/target_rows.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/model/glide_golden.h"
#include "tests/model/named_backend.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/table_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

constexpr TargetRowShape kShape = {2, 2, 8};

// What a target of the goldens shows.
TargetRowShape ShapeOf(const LanguageModel& model, int num_layers) {
  const kernels::KvLayer& layer = model.kept_kv()->layers.front();
  return {num_layers, layer.num_kv_heads, layer.head_dim};
}

// Eight bits of keys are near what is kept in full, and every part of a row has
// its place.
TEST(TargetRowsTest, EachTypeOfCacheIsRead) {
  const GlideGolden golden = ReadGlideGolden("one_layer");
  std::vector<std::vector<float>> read;
  bool on_cuda = false;
  for (const char* kind : {NACRE_CACHE_BACKENDS}) {
    if (NamedBackend(kind) == nullptr) GTEST_SKIP() << "no CUDA device";
    on_cuda = on_cuda || absl::StartsWith(kind, "cuda");
    GlidePair pair(kind, GlideFolder("one_layer"));
    const auto kept = pair.Fed(golden.prompt);
    const TargetRowShape shape = ShapeOf(*pair.target, 3);
    ASSERT_TRUE(KeptRows(pair.target.get()).Check(shape).ok());
    KeptRows(pair.target.get()).Read(*kept, shape, 1, 5, &read.emplace_back());
    ASSERT_EQ(read.back().size(), 5u * static_cast<size_t>(shape.row_size()));
    // Of fewer layers the last ones, of each row.
    std::vector<float> last;
    KeptRows(pair.target.get())
        .Read(*kept, ShapeOf(*pair.target, 1), 3, 1, &last);
    const std::vector<float> tail(read.back().begin() + 3 * shape.row_size() -
                                      static_cast<ptrdiff_t>(last.size()),
                                  read.back().begin() + 3 * shape.row_size());
    EXPECT_EQ(last, tail) << kind;
  }
  for (size_t kind = 1; kind < read.size(); ++kind) {
    // Float32, as the first; then fewer and fewer bits, on cuda of all else,
    // too.
    const float rough = kind == 1              ? 1e-4f
                        : kind == 2 && on_cuda ? 0.05f
                        : kind == 2            ? 0.02f
                                               : 0.1f;
    float largest = 0;
    float difference = 0;
    for (size_t i = 0; i < read[0].size(); ++i) {
      largest = std::max(largest, std::abs(read[0][i]));
      difference = std::max(difference, std::abs(read[kind][i] - read[0][i]));
    }
    EXPECT_GT(largest, 0.1f);
    EXPECT_LE(difference, rough * std::max(1.0f, largest)) << kind;
  }
}

TEST(TargetRowsTest, OtherShapesAreRefused) {
  GlidePair pair("cpu", GlideFolder("one_layer"));
  const TargetRowShape right = ShapeOf(*pair.target, 2);
  EXPECT_TRUE(KeptRows(pair.target.get()).Check(right).ok());
  const auto refused = [&](TargetRowShape shape, const char* why) {
    const absl::Status status = KeptRows(pair.target.get()).Check(shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr(why));
  };
  TargetRowShape shape = right;
  shape.num_key_value_heads = 7;
  refused(shape, "keys of 7 heads, the target keeps ");
  shape = right;
  shape.head_dim = 5;
  refused(shape, "keys of 5 elements a head, the target keeps ");
  shape = right;
  shape.num_layers = 9;
  refused(shape, "keys of 9 layers, the target has 8");
  shape.num_layers = 0;
  refused(shape, "keys of 0 layers, the target has 8");
}

// Those elements stand elsewhere in its cache than a draft was trained to read.
TEST(TargetRowsTest, ATargetOfWhoseHeadsOnlyAPartTurnsIsRefused) {
  const std::string dir = nacre::testing::TestFolder("half_turning");
  const auto golden = nlohmann::json::parse(nacre::testing::ReadFile(
      std::string(NACRE_TEST_DATA) + "/model/options/neox.json"));
  nacre::testing::WriteRandomCheckpoint(golden["config"].dump(), dir);
  const auto backend = NamedBackend("cpu");
  const auto model = *LoadModel(dir, backend.get(), {});
  const absl::Status status = KeptRows(model.get()).Check(ShapeOf(*model, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.ToString(), HasSubstr("only a part of each"));
}

TEST(TargetRowsTest, AModelWithoutKeysIsRefused) {
  nacre::testing::TableModel model({.vocab_size = 8});
  EXPECT_EQ(KeptRows(&model).Check(kShape).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace nacre::model
