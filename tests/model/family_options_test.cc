// Each option of each family against Hugging Face
// (tests/data/model/make_option_goldens.py), and bit for bit in every batch.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "nlohmann/json.hpp"
#include "tests/model/named_backend.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::WriteRandomCheckpoint;
using Row = std::vector<float>;
using Tokens = std::vector<int32_t>;

struct Prompt {
  Tokens token_ids;
  std::vector<size_t> positions;
  std::vector<Row> logits;  // at the positions
  Tokens greedy;            // what follows
};

struct Golden {
  std::string name;
  std::string config_json;
  std::vector<Prompt> prompts;
};

std::vector<Golden> ReadGoldens([[maybe_unused]] const std::string& backend) {
  const std::string dir = std::string(NACRE_TEST_DATA) + "/model/options";
  std::vector<Golden> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const auto json =
        nlohmann::json::parse(nacre::testing::ReadFile(entry.path().string()));
#ifdef NACRE_EMULATED_CUDA
    // Hundreds of small launches: of what rounds, one backend suffices.
    if (json["config"].contains("num_experts_per_tok") && backend != "cuda") {
      continue;
    }
#endif
    Golden golden;
    golden.name = entry.path().stem().string();
    golden.config_json = json["config"].dump(1);
    for (const auto& prompt : json["prompts"]) {
#ifdef NACRE_EMULATED_CUDA
      if (prompt["token_ids"].size() > 100) continue;  // it takes minutes
#endif
      golden.prompts.push_back({prompt["token_ids"], prompt["positions"],
                                prompt["logits"], prompt["greedy"]});
    }
    goldens.push_back(std::move(golden));
  }
  std::sort(goldens.begin(), goldens.end(),
            [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return goldens;
}

class FamilyOptionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  FamilyOptionsTest() : backend_(NamedBackend(GetParam())) {}

  void SetUp() override {
    if (backend_ == nullptr) GTEST_SKIP() << "no CUDA device";
  }

  std::unique_ptr<LanguageModel> Load(const Golden& golden) {
    const std::string dir = TestFolder(golden.name);
    WriteRandomCheckpoint(golden.config_json, dir);
    auto model = LoadModel(dir, backend_.get(), {1 << 22, {}});
    EXPECT_TRUE(model.ok()) << golden.name << ": " << model.status();
    return *std::move(model);
  }

  std::unique_ptr<kernels::Backend> backend_;
};

std::vector<Row> RowsOf(LanguageModel* model,
                        absl::Span<const SequenceRows> batch) {
  const auto logits = model->Forward(batch);
  EXPECT_TRUE(logits.ok()) << logits.status();
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  std::vector<Row> rows;
  for (size_t i = 0; i + vocab <= logits->size(); i += vocab) {
    rows.emplace_back(logits->begin() + i, logits->begin() + i + vocab);
  }
  return rows;
}

std::unique_ptr<Sequence> SequenceOf(LanguageModel* model, size_t length) {
  auto sequence = model->NewSequence(static_cast<int>(length));
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return *std::move(sequence);
}

SequenceRows AllOf(Sequence* sequence, absl::Span<const int32_t> tokens) {
  return {sequence, tokens, static_cast<int>(tokens.size())};
}

// The largest difference of the rows at `prompt.positions` from its logits,
// relative to the largest of these. `rows` are those of all positions.
float DifferenceOf(absl::Span<const Row> rows, const Prompt& prompt) {
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < prompt.positions.size(); ++i) {
    const Row& expected = prompt.logits[i];
    const Row& actual = rows[prompt.positions[i]];
    EXPECT_EQ(actual.size(), expected.size());
    for (size_t id = 0; id < expected.size(); ++id) {
      largest = std::max(largest, std::abs(expected[id]));
      const float error = std::abs(actual[id] - expected[id]);
      difference = std::isnan(error) ? error : std::max(difference, error);
    }
  }
  return difference / largest;
}

bool SameRows(absl::Span<const Row> a, absl::Span<const Row> b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const Row& x, const Row& y) {
        return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
      });
}

// The first prompt alone; all three in one batch; token by token after a
// roll-back.
TEST_P(FamilyOptionsTest, MatchesHuggingFaceInEveryBatch) {
  // Weights of random Gemma and routers make more of rounding than others do.
  float tolerance = LogitTolerance(GetParam());
  if (tolerance > 1e-3f) tolerance *= 4;
  const std::vector<Golden> goldens = ReadGoldens(GetParam());
  ASSERT_FALSE(goldens.empty());
  for (const Golden& golden : goldens) {
    const auto model = Load(golden);
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<SequenceRows> batch;
    for (const Prompt& prompt : golden.prompts) {
      const Tokens& ids = prompt.token_ids;
      sequences.push_back(SequenceOf(model.get(), ids.size() + 5));
      batch.push_back(AllOf(sequences.back().get(), ids));
    }
    const std::vector<Row> together = RowsOf(model.get(), batch);
    absl::Span<const Row> left = together;
    float difference = 0;
    for (size_t i = 0; i < golden.prompts.size(); ++i) {
      const Prompt& prompt = golden.prompts[i];
      const absl::Span<const int32_t> ids = prompt.token_ids;
      const absl::Span<const Row> rows = left.first(ids.size());
      left.remove_prefix(ids.size());
      difference = std::max(difference, DifferenceOf(rows, prompt));

      const auto alone = SequenceOf(model.get(), ids.size());
      EXPECT_TRUE(
          SameRows(RowsOf(model.get(), {AllOf(alone.get(), ids)}), rows))
          << golden.name << ", alone";

      // Other tokens after the prompt, and back to the middle.
      const Tokens others = {7, 3, 9, 11, 130};
      RowsOf(model.get(), {AllOf(sequences[i].get(), others)});
      const size_t kept = ids.size() - 9;
      sequences[i]->Truncate(static_cast<int>(kept));
      for (size_t at = kept; at < ids.size(); ++at) {
        const auto row = RowsOf(
            model.get(), {AllOf(sequences[i].get(), ids.subspan(at, 1))});
        EXPECT_TRUE(SameRows(row, rows.subspan(at, 1)))
            << golden.name << ", row " << at << " after a roll-back";
      }
    }
    EXPECT_LE(difference, tolerance) << golden.name;
    RecordProperty(golden.name, std::to_string(difference));
  }
}

TEST_P(FamilyOptionsTest, GreedyTokensAreHuggingFaces) {
  if (LogitTolerance(GetParam()) > 1e-3f) GTEST_SKIP() << "rounds too much";
  for (const Golden& golden : ReadGoldens(GetParam())) {
    const auto model = Load(golden);
    for (const Prompt& prompt : golden.prompts) {
      Tokens next = prompt.token_ids;
      const auto sequence =
          SequenceOf(model.get(), next.size() + prompt.greedy.size());
      for (const int32_t expected : prompt.greedy) {
        const Row row =
            RowsOf(model.get(), {{sequence.get(), next, 1}}).front();
        const auto best = std::max_element(row.begin(), row.end());
        ASSERT_EQ(best - row.begin(), expected) << golden.name;
        next = {expected};
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FamilyOptionsTest,
                         ::testing::Values(NACRE_MODEL_BACKENDS),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace nacre::model
