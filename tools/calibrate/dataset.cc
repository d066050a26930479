#include "tools/calibrate/dataset.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::tools {
namespace {

// Of the two smaller parts.
constexpr double kHeldOutShare = 0.15;

Example MakeExample(const RecordedToken& token) {
  const FeatureLine& line = token.line;
  Example example;
  std::copy(line.top.begin(), line.top.end(), example.inputs.begin());
  example.inputs[speculation::kTopProbabilities] = line.entropy;
  example.inputs[speculation::kTopProbabilities + 1] =
      speculation::kDiscoIndexScale * static_cast<float>(line.position);
  example.accepted = token.accepted;
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
  const auto test = first + held_out;
  const auto training = test + held_out;
  split.validation.assign(first, test);
  split.test.assign(test, training);
  split.training.assign(training, order.end());
  for (std::vector<int>* part :
       {&split.training, &split.validation, &split.test}) {
    std::sort(part->begin(), part->end());
  }
  return split;
}

std::vector<Example> ExamplesOf(absl::Span<const RecordedToken* const> tokens) {
  std::vector<Example> examples;
  examples.reserve(tokens.size());
  for (const RecordedToken* token : tokens) {
    examples.push_back(MakeExample(*token));
  }
  return examples;
}

std::vector<StateExample> StateExamplesOf(
    absl::Span<const RecordedToken* const> tokens) {
  std::vector<StateExample> examples;
  examples.reserve(tokens.size());
  for (const RecordedToken* token : tokens) {
    NACRE_CHECK(!token->fed_state.empty(), "a token without a hidden state");
    examples.push_back({token->fed_state, token->accepted ? 1.0 : 0.0});
  }
  return examples;
}

std::vector<CaliTsExample> CaliTsExamplesOf(
    absl::Span<const DraftedStep> steps) {
  std::vector<CaliTsExample> examples;
  examples.reserve(steps.size());
  for (const DraftedStep& drafted : steps) {
    examples.push_back({drafted.target_state, drafted.token->row_state,
                        drafted.step, drafted.token->accepted});
  }
  return examples;
}

}  // namespace nacre::tools
