// What Hugging Face says of each option of each family
// (tests/data/model/make_option_goldens.py), and how far logits are from it.
//
// Thread-safe: pure functions on distinct folders and models.

#ifndef TESTS_MODEL_OPTION_GOLDENS_H_
#define TESTS_MODEL_OPTION_GOLDENS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {

using OptionRow = std::vector<float>;

struct OptionPrompt {
  std::vector<int32_t> token_ids;
  std::vector<size_t> positions;
  std::vector<OptionRow> logits;  // at the positions
  std::vector<int32_t> greedy;    // what follows; empty: it is not known

  // The first `count` tokens; what is said of them holds.
  void CutTo(size_t count) {
    if (token_ids.size() <= count) return;
    token_ids.resize(count);
    while (positions.back() >= count) {
      positions.pop_back();
      logits.pop_back();
    }
    greedy.clear();
  }
};

struct OptionGolden {
  std::string name;
  std::string config_json;
  bool has_experts = false;
  std::vector<OptionPrompt> prompts;
};

// In the order of their names.
inline std::vector<OptionGolden> ReadOptionGoldens() {
  const std::string dir = std::string(NACRE_TEST_DATA) + "/model/options";
  std::vector<OptionGolden> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const auto json =
        nlohmann::json::parse(nacre::testing::ReadFile(entry.path().string()));
    OptionGolden golden;
    golden.name = entry.path().stem().string();
    golden.config_json = json["config"].dump(1);
    golden.has_experts = json["config"].contains("num_experts_per_tok");
    for (const auto& prompt : json["prompts"]) {
      golden.prompts.push_back({prompt["token_ids"], prompt["positions"],
                                prompt["logits"], prompt["greedy"]});
    }
    goldens.push_back(std::move(golden));
  }
  std::sort(goldens.begin(), goldens.end(),
            [](const OptionGolden& a, const OptionGolden& b) {
              return a.name < b.name;
            });
  return goldens;
}

// Its random weights, in float32, on `backend`.
inline std::unique_ptr<LanguageModel> LoadOption(const OptionGolden& golden,
                                                 kernels::Backend* backend) {
  const std::string dir = nacre::testing::TestFolder(golden.name);
  nacre::testing::WriteRandomCheckpoint(golden.config_json, dir);
  auto model = LoadModel(dir, backend, {1 << 22, {}});
  EXPECT_TRUE(model.ok()) << golden.name << ": " << model.status();
  return *std::move(model);
}

inline std::vector<OptionRow> RowsOf(LanguageModel* model,
                                     absl::Span<const SequenceRows> batch) {
  const auto logits = model->Forward(batch);
  EXPECT_TRUE(logits.ok()) << logits.status();
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  std::vector<OptionRow> rows;
  for (size_t i = 0; i + vocab <= logits->size(); i += vocab) {
    rows.emplace_back(logits->begin() + i, logits->begin() + i + vocab);
  }
  return rows;
}

inline std::unique_ptr<Sequence> SequenceOf(LanguageModel* model,
                                            size_t length) {
  auto sequence = model->NewSequence(static_cast<int>(length));
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return *std::move(sequence);
}

inline SequenceRows AllOf(Sequence* sequence,
                          absl::Span<const int32_t> tokens) {
  return {sequence, tokens, static_cast<int>(tokens.size())};
}

// All rows of all prompts, read in one batch.
inline std::vector<OptionRow> RowsOfAll(LanguageModel* model,
                                        const OptionGolden& golden) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<SequenceRows> batch;
  for (const OptionPrompt& prompt : golden.prompts) {
    sequences.push_back(SequenceOf(model, prompt.token_ids.size()));
    batch.push_back(AllOf(sequences.back().get(), prompt.token_ids));
  }
  return RowsOf(model, batch);
}

// The largest difference of two rows; NaN where there is one.
inline float DifferenceOf(const OptionRow& actual, const OptionRow& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  float difference = 0;
  for (size_t id = 0; id < expected.size(); ++id) {
    const float error = std::abs(actual[id] - expected[id]);
    difference = std::isnan(error) ? error : std::max(error, difference);
    if (std::isnan(difference)) break;
  }
  return difference;
}

inline float LargestOf(absl::Span<const OptionRow> rows) {
  float largest = 0;
  for (const OptionRow& row : rows) {
    for (const float value : row) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// The largest difference of the rows at `prompt.positions` from its logits,
// relative to the largest of these. `rows` are those of all positions.
inline float DifferenceOf(absl::Span<const OptionRow> rows,
                          const OptionPrompt& prompt) {
  float difference = 0;
  for (size_t i = 0; i < prompt.positions.size(); ++i) {
    const float of_row =
        DifferenceOf(rows[prompt.positions[i]], prompt.logits[i]);
    if (std::isnan(of_row)) return of_row;
    difference = std::max(difference, of_row);
  }
  return difference / LargestOf(prompt.logits);
}

inline bool SameRows(absl::Span<const OptionRow> a,
                     absl::Span<const OptionRow> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const OptionRow& x, const OptionRow& y) {
                      return std::memcmp(x.data(), y.data(),
                                         x.size() * sizeof(float)) == 0;
                    });
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_OPTION_GOLDENS_H_
