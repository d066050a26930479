#include "tools/calibrate/dataset.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace nacre::tools {
namespace {

// Of the two smaller parts.
constexpr double kHeldOutShare = 0.15;

Example MakeExample(const FeatureLine& line) {
  Example example;
  std::copy(line.top.begin(), line.top.end(), example.inputs.begin());
  example.inputs[speculation::kTopProbabilities] = line.entropy;
  example.inputs[speculation::kTopProbabilities + 1] =
      speculation::kDiscoIndexScale * static_cast<float>(line.position);
  example.accepted = line.accepted;
  return example;
}

}  // namespace

absl::StatusOr<PromptSplit> SplitPrompts(int num_prompts, uint64_t seed) {
  if (num_prompts < kMinPrompts) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_prompts,
                     " prompts are too few: training, validation and test need "
                     "one each, so at least ",
                     kMinPrompts));
  }
  std::vector<int> order(static_cast<size_t>(num_prompts));
  std::iota(order.begin(), order.end(), 0);
  // Fisher-Yates by hand: std::shuffle differs between libraries.
  std::mt19937_64 random(seed);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[random() % (i + 1)]);
  }
  const int held_out =
      std::max(1, static_cast<int>(kHeldOutShare * num_prompts));
  PromptSplit split;
  const auto first = order.begin();
  split.validation.assign(first, first + held_out);
  split.test.assign(first + held_out, first + 2 * held_out);
  split.training.assign(first + 2 * held_out, order.end());
  for (std::vector<int>* part :
       {&split.training, &split.validation, &split.test}) {
    std::sort(part->begin(), part->end());
  }
  return split;
}

std::string RecordingId(int prompt) {
  return absl::StrCat("calibrate-", prompt);
}

std::vector<Example> ExamplesOf(absl::Span<const FeatureLine> lines,
                                absl::Span<const int> prompts) {
  absl::flat_hash_set<std::string> requests;
  for (const int prompt : prompts) requests.insert(RecordingId(prompt));
  std::vector<Example> examples;
  for (const FeatureLine& line : lines) {
    if (requests.contains(line.request)) examples.push_back(MakeExample(line));
  }
  return examples;
}

}  // namespace nacre::tools
