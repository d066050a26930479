// What PyTorch says of the tiny GliDe drafts of tests/data/model/glide
// (make_glide_goldens.py), and one of them beside its target.

#ifndef TESTS_MODEL_GLIDE_GOLDEN_H_
#define TESTS_MODEL_GLIDE_GOLDEN_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "model/glide_model.h"
#include "model/load_model.h"
#include "tests/model/eagle_golden.h"
#include "tests/model/named_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {

inline constexpr const char* kGlideKinds[] = {"one_layer", "two_layers"};

inline std::string GlideFolder(const std::string& kind) {
  return std::string(NACRE_TEST_DATA) + "/model/glide/" + kind;
}

// A copy that a test changes, of a test's own name.
inline std::string CopyOfGlide(const std::string& kind,
                               const std::string& name) {
  const std::string folder = nacre::testing::TestFolder(name);
  for (const auto& entry :
       std::filesystem::directory_iterator(GlideFolder(kind))) {
    std::filesystem::copy(entry.path(), folder);
  }
  return folder;
}

struct GlideCase {
  int target = 0;  // positions of it that are there
  int first = 0;   // token of the prompt that is fed
  std::vector<int32_t> fed;
  std::vector<LogitRow> said;  // of the prompt's tokens, then of `fed`
};

struct GlideGolden {
  std::vector<int32_t> prompt;
  std::vector<GlideCase> cases;
};

inline GlideGolden ReadGlideGolden(const std::string& kind) {
  const auto json = nlohmann::json::parse(
      nacre::testing::ReadFile(GlideFolder(kind) + "/golden.json"));
  GlideGolden golden;
  golden.prompt = json["prompt"].get<std::vector<int32_t>>();
  for (const auto& from : json["cases"]) {
    GlideCase& each = golden.cases.emplace_back();
    each.target = from["target"];
    each.first = from["first"];
    each.fed = from["fed"].get<std::vector<int32_t>>();
    for (const char* part : {"rows", "steps"}) {
      for (const auto& row : from[part]) {
        each.said.push_back(row.get<LogitRow>());
      }
    }
  }
  return golden;
}

// The target and a draft of it.
struct GlidePair {
  static constexpr int kSlots = 8;

  GlidePair(const std::string& backend_name, const std::string& folder)
      : backend(NamedBackend(backend_name)) {
    auto loaded = LoadModel(EagleFolder("target"), backend.get(),
                            {.kv_cache_bytes = 1 << 18});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    target = *std::move(loaded);
    auto draft = GlideModel::Load(folder, *target);
    status = draft.status();
    if (draft.ok()) glide = *std::move(draft);
  }

  // Of tokens that the target is fed.
  std::unique_ptr<Sequence> Fed(absl::Span<const int32_t> ids) {
    std::unique_ptr<Sequence> sequence = *target->NewTreeSequence(40, 4, ids);
    const SequenceRows rows = {sequence.get(), ids, 1};
    EXPECT_TRUE(target->Forward({&rows, 1}).ok());
    return sequence;
  }

  std::vector<LogitRow> Rows(const FeatureRows& rows) {
    const auto logits = glide->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    const size_t vocab = static_cast<size_t>(target->info().vocab_size);
    std::vector<LogitRow> result;
    for (size_t at = 0; at < logits->size(); at += vocab) {
      result.emplace_back(logits->begin() + at, logits->begin() + at + vocab);
    }
    return result;
  }

  // All of a case: `chunk` tokens of the prompt at a time, then what it was
  // fed, beside what `kept` has.
  std::vector<LogitRow> Run(const std::vector<int32_t>& prompt,
                            const GlideCase& each, const Sequence& kept,
                            size_t chunk = 100) {
    const auto sequence = *glide->NewSequence(40, kSlots);
    FeatureRows rows;
    rows.sequence = sequence.get();
    rows.target = {target->KvTable(kept), each.target};
    rows.first_position = each.first;
    std::vector<LogitRow> all;
    for (size_t at = static_cast<size_t>(each.first); at < prompt.size();
         at += chunk) {
      rows.token_ids = absl::MakeConstSpan(prompt).subspan(at, chunk);
      rows.num_logits = static_cast<int>(rows.token_ids.size());
      const auto said = Rows(rows);
      all.insert(all.end(), said.begin(), said.end());
    }
    const int length = sequence->length();
    for (size_t i = 0; i < each.fed.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      const TreeNode node = {slot, slot == 0 ? kNoSlot : slot - 1,
                             length + slot};
      rows.token_ids = {&each.fed[i], 1};
      rows.nodes = {&node, 1};
      rows.num_logits = 1;
      const auto said = Rows(rows);
      all.insert(all.end(), said.begin(), said.end());
    }
    EXPECT_EQ(sequence->length(), static_cast<int>(prompt.size()) - each.first);
    return all;
  }

  // The largest difference from PyTorch, of all cases.
  float Difference(const GlideGolden& golden) {
    const auto kept = Fed(golden.prompt);
    float largest = 0;
    for (const GlideCase& each : golden.cases) {
      largest = std::max(
          largest,
          LargestDifference(Run(golden.prompt, each, *kept), each.said));
    }
    return largest;
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<LanguageModel> target;
  absl::Status status;
  std::unique_ptr<GlideModel> glide;
};

}  // namespace nacre::model

#endif  // TESTS_MODEL_GLIDE_GOLDEN_H_
