#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/check.h"

namespace nacre::model {
namespace {

// Room for `count` values; what is there stays.
float* Room(size_t count, std::vector<float>* values) {
  if (values->size() < count) values->resize(count);
  return values->data();
}

}  // namespace

void ChooseExperts(absl::Span<const float> logits, int count, bool normalize,
                   std::vector<ExpertChoice>* choices) {
  choices->clear();
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(double{logits[i]} - double{largest});
    total += weight;
    choices->push_back({static_cast<int>(i), static_cast<float>(weight)});
  }
  // NaN counts as the smallest, so that the order is one.
  const auto key = [&](const ExpertChoice& choice) {
    const float logit = logits[static_cast<size_t>(choice.expert)];
    return std::isnan(logit) ? -INFINITY : logit;
  };
  std::sort(choices->begin(), choices->end(),
            [&](const ExpertChoice& a, const ExpertChoice& b) {
              return key(a) > key(b) ||
                     (key(a) == key(b) && a.expert < b.expert);
            });
  choices->resize(static_cast<size_t>(count));
  if (normalize) {
    total = 0;
    for (const ExpertChoice& choice : *choices) total += double{choice.weight};
  }
  for (ExpertChoice& choice : *choices) {
    choice.weight = static_cast<float>(double{choice.weight} / total);
  }
  std::sort(choices->begin(), choices->end(),
            [](const ExpertChoice& a, const ExpertChoice& b) {
              return a.expert < b.expert;
            });
}

float* ExpertBlock::RouterLogits(const ModelConfig& config, int rows) {
  return Room(
      static_cast<size_t>(rows) * static_cast<size_t>(config.experts.count),
      &logits_);
}

void ExpertBlock::Run(const ModelConfig& config, kernels::Backend* backend,
                      absl::Span<const ExpertWeights> experts, const float* x,
                      int rows, float* out) {
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  NACRE_CHECK(experts.size() == static_cast<size_t>(config.experts.count),
              "experts of another model");
  assigned_.resize(experts.size());
  for (std::vector<Assigned>& assigned : assigned_) assigned.clear();
  for (int row = 0; row < rows; ++row) {
    ChooseExperts({logits_.data() + static_cast<size_t>(row) * experts.size(),
                   experts.size()},
                  config.experts.per_token, config.experts.normalize,
                  &choices_);
    for (const ExpertChoice& choice : choices_) {
      assigned_[static_cast<size_t>(choice.expert)].push_back(
          {row, choice.weight});
    }
  }
  std::fill_n(out, static_cast<size_t>(rows) * hidden, 0.0f);
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    const std::vector<Assigned>& assigned = assigned_[expert];
    if (assigned.empty()) continue;
    const int count = static_cast<int>(assigned.size());
    const int size = config.experts.size;
    const size_t inter = assigned.size() * static_cast<size_t>(size);
    float* const in = Room(assigned.size() * hidden, &in_);
    for (size_t i = 0; i < assigned.size(); ++i) {
      std::copy_n(x + static_cast<size_t>(assigned[i].row) * hidden, hidden,
                  in + i * hidden);
    }
    float* const gate_up = Room(2 * inter, &gate_up_);
    float* const gated = Room(inter, &gated_);
    float* const result = Room(assigned.size() * hidden, &out_);
    backend->MatMul(in, count, *experts[expert].gate_up, gate_up);
    if (config.activation == Activation::kSilu) {
      backend->SiluMul(gate_up, count, size, gated);
    } else {
      backend->GeluMul(gate_up, count, size, gated);
    }
    backend->MatMul(gated, count, *experts[expert].down, result);
    for (size_t i = 0; i < assigned.size(); ++i) {
      backend->Scale(result + i * hidden, hidden, assigned[i].weight);
      backend->AddInPlace(out + static_cast<size_t>(assigned[i].row) * hidden,
                          result + i * hidden, hidden);
    }
  }
}

}  // namespace nacre::model
