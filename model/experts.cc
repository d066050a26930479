#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"

namespace nacre::model {
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

void ExpertBlock::Choose(const ExpertOptions& options, int rows) {
  const size_t count = static_cast<size_t>(options.count);
  const size_t chosen =
      static_cast<size_t>(rows) * static_cast<size_t>(options.per_token);
  std::vector<int32_t>& experts = places_;  // at first which expert it is
  experts.clear();
  weights_.clear();
  begins_.assign(count + 1, 0);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    ChooseExperts({logits_.data() + row * count, count}, options.per_token,
                  options.normalize, &choices_);
    for (const ExpertChoice& choice : choices_) {
      experts.push_back(choice.expert);
      weights_.push_back(choice.weight);
      ++begins_[static_cast<size_t>(choice.expert) + 1];
    }
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  assigned_.resize(chosen);
  std::vector<size_t> next = begins_;
  for (size_t i = 0; i < chosen; ++i) {
    const size_t place = next[static_cast<size_t>(experts[i])]++;
    assigned_[place] =
        static_cast<int32_t>(i / static_cast<size_t>(options.per_token));
    places_[i] = static_cast<int32_t>(place);
  }
}

void ExpertBlock::Run(const ModelConfig& config, kernels::Backend* backend,
                      const kernels::PackedMatrix& router,
                      absl::Span<const ExpertWeights> experts, const float* x,
                      int rows, ExpertActivations* scratch, float* out) {
  NACRE_CHECK(experts.size() == static_cast<size_t>(config.experts.count),
              "experts of another model");
  backend->MatMul(x, rows, router, scratch->logits->f32());
  logits_.resize(static_cast<size_t>(rows) * experts.size());
  backend->CopyToHost(scratch->logits->f32(), logits_.size() * sizeof(float),
                      logits_.data());
  Choose(config.experts, rows);

  const size_t hidden = static_cast<size_t>(config.hidden_size);
  const size_t size = static_cast<size_t>(config.experts.size);
  float* const in = scratch->in->f32();
  float* const gate_up = scratch->gate_up->f32();
  float* const gated = scratch->gated->f32();
  float* const results = scratch->out->f32();
  backend->GatherRows(x, assigned_, config.hidden_size, in);
  // Calls visit(expert, its first row of those, how many).
  const auto for_experts = [&](const auto& visit) {
    for (size_t i = 0; i < experts.size(); ++i) {
      const size_t count = begins_[i + 1] - begins_[i];
      if (count > 0) visit(experts[i], begins_[i], static_cast<int>(count));
    }
  };
  for_experts([&](const ExpertWeights& expert, size_t first, int count) {
    backend->MatMul(in + first * hidden, count, *expert.gate_up,
                    gate_up + first * 2 * size);
  });
  const int chosen = static_cast<int>(assigned_.size());
  if (config.activation == Activation::kSilu) {
    backend->SiluMul(gate_up, chosen, config.experts.size, gated);
  } else {
    backend->GeluMul(gate_up, chosen, config.experts.size, gated);
  }
  for_experts([&](const ExpertWeights& expert, size_t first, int count) {
    backend->MatMul(gated + first * size, count, *expert.down,
                    results + first * hidden);
  });
  backend->CombineRows(results, places_, weights_, config.experts.per_token,
                       config.hidden_size, out);
}

}  // namespace nacre::model
