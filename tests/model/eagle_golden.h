// What PyTorch says of the tiny EAGLE drafts of tests/data/model/eagle
// (make_eagle_goldens.py).

#ifndef TESTS_MODEL_EAGLE_GOLDEN_H_
#define TESTS_MODEL_EAGLE_GOLDEN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/json.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {

using LogitRow = std::vector<float>;

inline constexpr float kNeverSaid = -std::numeric_limits<float>::infinity();
inline constexpr const char* kEagleKinds[] = {
    "safeailab",          "specforge", "modelopt", "speculators",
    "speculators_normed", "eagle1",    "hass",     "speculators_first"};

inline std::string EagleFolder(const std::string& kind) {
  return std::string(NACRE_TEST_DATA) + "/model/eagle/" + kind;
}

// A copy that a test changes, of a test's own name.
inline std::string CopyOfEagle(const std::string& kind,
                               const std::string& name) {
  const std::string folder = nacre::testing::TestFolder(name);
  for (const auto& entry :
       std::filesystem::directory_iterator(EagleFolder(kind))) {
    std::filesystem::copy(entry.path(), folder);
  }
  return folder;
}

struct EagleGolden {
  std::vector<int32_t> prompt;
  std::vector<LogitRow> rows;  // of its tokens but the first
  std::vector<int32_t> fed;
  std::vector<LogitRow> steps;  // of those

  std::vector<LogitRow> All() const {
    std::vector<LogitRow> all = rows;
    all.insert(all.end(), steps.begin(), steps.end());
    return all;
  }
};

inline EagleGolden ReadEagleGolden(const std::string& kind) {
  const auto json = nlohmann::json::parse(
      nacre::testing::ReadFile(EagleFolder(kind) + "/golden.json"));
  const auto rows = [](const nlohmann::json& from) {
    std::vector<LogitRow> all;
    for (const auto& row : from) {
      LogitRow& values = all.emplace_back();
      for (const auto& value : row) {
        values.push_back(value.is_null() ? kNeverSaid : value.get<float>());
      }
    }
    return all;
  };
  return {json["prompt"], rows(json["rows"]), json["fed"], rows(json["steps"])};
}

// The largest difference of two lists of rows, relative to the largest of b;
// infinite where one has a token that the other never says.
inline float LargestDifference(absl::Span<const LogitRow> a,
                               absl::Span<const LogitRow> b) {
  float largest = 0;
  float difference = 0;
  if (a.size() != b.size()) return -kNeverSaid;
  for (size_t row = 0; row < b.size(); ++row) {
    for (size_t id = 0; id < b[row].size(); ++id) {
      if (a[row][id] == kNeverSaid || b[row][id] == kNeverSaid) {
        if (a[row][id] != b[row][id]) return -kNeverSaid;
        continue;
      }
      const float error = std::abs(a[row][id] - b[row][id]);
      if (!(error <= difference)) difference = error;
      largest = std::max(largest, std::abs(b[row][id]));
    }
  }
  return difference / largest;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_EAGLE_GOLDEN_H_
