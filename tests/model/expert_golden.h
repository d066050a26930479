// Mixtures of experts on the cuda backend beside Hugging Face and beside the
// reference that rounds as it does: their logits, and which experts each row
// goes to with which weights.
//
// Thread-compatible.

#ifndef TESTS_MODEL_EXPERT_GOLDEN_H_
#define TESTS_MODEL_EXPERT_GOLDEN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/model/option_goldens.h"

namespace nacre::model {

// Of all layers, in the order of the steps. The rows of an expert lie together,
// in the order of the experts: where each row's are says which they are.
struct ExpertChoices {
  std::vector<int32_t> rows;    // of each expert
  std::vector<int32_t> places;  // of each row, among those
  std::vector<float> weights;   // likewise
};

// A backend that says what it was told of experts.
template <class Base>
class WithChoices final : public Base {
 public:
  using Base::Base;

  void GatherRows(const float* x, absl::Span<const int32_t> rows, int cols,
                  float* out) override {
    choices.rows.insert(choices.rows.end(), rows.begin(), rows.end());
    Base::GatherRows(x, rows, cols, out);
  }
  void CombineRows(float* y, absl::Span<const int32_t> rows,
                   absl::Span<const float> weights, int parts, int cols,
                   float* out) override {
    choices.places.insert(choices.places.end(), rows.begin(), rows.end());
    choices.weights.insert(choices.weights.end(), weights.begin(),
                           weights.end());
    Base::CombineRows(y, rows, weights, parts, cols, out);
  }

  ExpertChoices choices;
};

struct ExpertRun {
  std::vector<OptionRow> rows;  // of all prompts, read in one batch
  ExpertChoices choices;
};

inline ExpertRun RunOnCuda(const OptionGolden& golden,
                           kernels::WeightType weights) {
  auto device = *kernels::cuda::Device::Open(0);
  auto staging = *kernels::cuda::Staging::Create(device.get());
  WithChoices<kernels::CudaBackend> backend(
      std::move(device), std::move(staging), weights, kernels::DType::kF32);
  ExpertRun run;
  run.rows = RowsOfAll(LoadOption(golden, &backend).get(), golden);
  run.choices = std::move(backend.choices);
  return run;
}

inline ExpertRun RunOnReference(const OptionGolden& golden,
                                kernels::WeightType weights) {
  WithChoices<kernels::ReferenceBackend> backend(weights);
  ExpertRun run;
  run.rows = RowsOfAll(LoadOption(golden, &backend).get(), golden);
  run.choices = std::move(backend.choices);
  return run;
}

// The largest difference from Hugging Face, relative to its largest logit.
inline float ExpertDifference(const ExpertRun& run,
                              const OptionGolden& golden) {
  absl::Span<const OptionRow> left = run.rows;
  float difference = 0;
  for (const OptionPrompt& prompt : golden.prompts) {
    const size_t count = prompt.token_ids.size();
    const float of_prompt = DifferenceOf(left.first(count), prompt);
    if (std::isnan(of_prompt)) return of_prompt;
    difference = std::max(difference, of_prompt);
    left.remove_prefix(count);
  }
  return difference;
}

// Those with experts, each of its prompts cut to `count` tokens.
inline std::vector<OptionGolden> ExpertGoldens(size_t count) {
  std::vector<OptionGolden> found;
  std::vector<OptionGolden> goldens = ReadOptionGoldens();
  for (OptionGolden& golden : goldens) {
    if (!golden.has_experts) continue;
    for (OptionPrompt& prompt : golden.prompts) prompt.CutTo(count);
    found.push_back(std::move(golden));
  }
  EXPECT_EQ(found.size(), 4u);
  return found;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_EXPERT_GOLDEN_H_
