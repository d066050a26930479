#include "model/tied_head.h"

#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/expected_tensors.h"
#include "model/families.h"
#include "model/load_model.h"
#include "tests/model/with_tensors.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;

absl::Status LoadStatus(const std::string& dir) {
  kernels::BackendOptions options;
  options.kind = "reference";
  const auto backend = *kernels::CreateBackend(options);
  return LoadModel(dir, backend.get(), {1 << 20, {}}).status();
}

std::string WriteTied(kernels::DType dtype, const std::string& name) {
  TinyCheckpoint shape;
  shape.tie_word_embeddings = true;
  shape.dtype = dtype;
  shape.vocab_size = 301;  // more than is compared at once
  const std::string dir = TestFolder(name);
  WriteTinyCheckpoint(shape, dir);
  return dir;
}

FurtherTensor Embedding(const std::string& dir, const std::string& name) {
  const auto checkpoint = *Checkpoint::Open(dir);
  const Tensor tensor = *checkpoint->Find(name);
  return {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
}

constexpr char kTable[] = "model.embed_tokens.weight";

// As many published checkpoints have it.
TEST(TiedHeadTest, AHeadThatIsTheEmbeddingIsAccepted) {
  for (const auto dtype :
       {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
    const std::string dir = WriteTied(dtype, absl::StrCat("same", int(dtype)));
    AddTensors(dir, {{"lm_head.weight", Embedding(dir, kTable)}});
    EXPECT_EQ(LoadStatus(dir), absl::OkStatus());
  }
}

// The same values in a wider type.
TEST(TiedHeadTest, TypesMayDifferWhereValuesDoNot) {
  const std::string dir = WriteTied(kernels::DType::kBF16, "wider");
  const FurtherTensor table = Embedding(dir, kTable);
  FurtherTensor head{kernels::DType::kF32, table.shape, ""};
  for (size_t i = 0; i < table.bytes.size(); i += 2) {
    head.bytes += std::string(2, '\0') + table.bytes.substr(i, 2);
  }
  AddTensors(dir, {{"lm_head.weight", head}});
  EXPECT_EQ(LoadStatus(dir), absl::OkStatus());
  head.bytes[4 * 52 * 7] = 1;  // the last bit of a value of row 7
  AddTensors(dir, {{"lm_head.weight", head}});
  EXPECT_EQ(LoadStatus(dir).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TiedHeadTest, AnotherHeadIsRefusedWithItsRow) {
  const std::string dir = WriteTied(kernels::DType::kF32, "other");
  FurtherTensor head = Embedding(dir, kTable);
  head.bytes[4 * 52 * 300] ^= 1;  // the last row
  AddTensors(dir, {{"lm_head.weight", head}});
  const absl::Status status = LoadStatus(dir);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr(
                  "tie_word_embeddings is true, but row 300 of 301 of "
                  "lm_head.weight is not that of model.embed_tokens.weight"));
}

TEST(TiedHeadTest, AHeadOfAnotherShapeIsRefused) {
  const std::string dir = WriteTied(kernels::DType::kF32, "shape");
  AddTensors(dir, {{"lm_head.weight", {kernels::DType::kF32, {301, 51}, ""}}});
  EXPECT_THAT(std::string(LoadStatus(dir).message()),
              ::testing::HasSubstr("tensor lm_head.weight has shape"));
}

// Each under its own name.
TEST(TiedHeadTest, HeadsOfAllFamiliesAreCompared) {
  size_t count = 0;
  for (const char* golden : {"neox", "big_code", "starcoder2"}) {
    auto config = nlohmann::json::parse(nacre::testing::ReadFile(absl::StrCat(
        NACRE_TEST_DATA, "/model/options/", golden, ".json")))["config"];
    config["tie_word_embeddings"] = true;
    const std::string dir = TestFolder(golden);
    nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
    ASSERT_EQ(LoadStatus(dir), absl::OkStatus());
    const auto parsed = *ParseConfig(config.dump());
    const ExpectedTensor head = ExpectedTensors::UntiedHead(parsed);
    EXPECT_EQ(head.name, golden == std::string("neox") ? "embed_out.weight"
                                                       : "lm_head.weight");
    AddTensors(dir, {{head.name, {kernels::DType::kF32, head.shape, ""}}});
    EXPECT_THAT(std::string(LoadStatus(dir).message()),
                ::testing::HasSubstr(absl::StrCat("of ", head.name)));
    ++count;
  }
  EXPECT_EQ(count, 3u);
}

}  // namespace
}  // namespace nacre::model
