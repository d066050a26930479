#include "tools/calibrate/cali_ts_network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {
namespace {

using speculation::CaliTsModel;

class SquareMean {
 public:
  void Add(absl::Span<const float> values) {
    for (const float value : values) sum_ += static_cast<double>(value) * value;
    count_ += values.size();
  }
  double Root() const {
    return sum_ > 0.0 ? std::sqrt(sum_ / static_cast<double>(count_)) : 1.0;
  }

 private:
  double sum_ = 0.0;
  size_t count_ = 0;
};

}  // namespace

CaliTsScale ScaleOf(absl::Span<const CaliTsExample> examples) {
  NACRE_CHECK(!examples.empty(), "the scale of no example");
  SquareMean target;
  SquareMean draft;
  for (const CaliTsExample& example : examples) {
    target.Add(example.target_state);
    draft.Add(example.draft_state);
  }
  return {target.Root(), draft.Root()};
}

CaliTsNetwork::CaliTsNetwork(int target_size, int draft_size, CaliTsScale scale,
                             uint64_t seed)
    : target_size_(static_cast<size_t>(target_size)),
      draft_size_(static_cast<size_t>(draft_size)),
      scale_(scale),
      target_(target_size_),
      mixed_(target_size_ + draft_size_) {
  NACRE_CHECK(target_size >= 1 && draft_size >= 1 && scale.target > 0.0 &&
                  scale.draft > 0.0,
              "a model of states without numbers, or that are 0");
  parameters_.assign(mix(2), 0.0);
  for (int step = 0; step < CaliTsModel::kSteps; ++step) {
    for (size_t i = 0; i < target_size_; ++i) {
      parameters_[step_weights(step) + i * target_size_ + i] = 1.0;
    }
  }
  std::mt19937_64 random(seed);
  const double spread = std::sqrt(1.0 / static_cast<double>(mixed_.size()));
  for (size_t i = mix(0); i < mix(2); ++i) {
    parameters_[i] = spread * Normal(random);
  }
}

size_t CaliTsNetwork::step_weights(int step) const {
  // Those of the tenth token serve all behind it.
  const int last = CaliTsModel::kSteps - 1;
  return static_cast<size_t>(std::min(step, last)) * target_size_ *
         target_size_;
}

size_t CaliTsNetwork::mix(size_t row) const {
  return static_cast<size_t>(CaliTsModel::kSteps) * target_size_ *
             target_size_ +
         row * mixed_.size();
}

double CaliTsNetwork::Forward(const CaliTsExample& example) {
  NACRE_CHECK(example.target_state.size() == target_size_ &&
                  example.draft_state.size() == draft_size_ &&
                  example.step >= 0,
              "states of other models");
  for (size_t i = 0; i < target_size_; ++i) {
    target_[i] = example.target_state[i] / scale_.target;
  }
  const double* weights = &parameters_[step_weights(example.step)];
  for (size_t i = 0; i < target_size_; ++i) {
    mixed_[i] = DotOf(weights + i * target_size_, target_.data(), target_size_);
  }
  for (size_t i = 0; i < draft_size_; ++i) {
    mixed_[target_size_ + i] = example.draft_state[i] / scale_.draft;
  }
  return DotOf(&parameters_[mix(1)], mixed_.data(), mixed_.size()) -
         DotOf(&parameters_[mix(0)], mixed_.data(), mixed_.size());
}

double CaliTsNetwork::Loss(const CaliTsExample& example) {
  return CrossEntropy(Forward(example), example.accepted);
}

double CaliTsNetwork::MeanLoss(absl::Span<const CaliTsExample> examples) {
  NACRE_CHECK(!examples.empty(), "the loss of no example");
  double sum = 0.0;
  for (const CaliTsExample& example : examples) sum += Loss(example);
  return sum / static_cast<double>(examples.size());
}

double CaliTsNetwork::AddGradient(const CaliTsExample& example,
                                  std::vector<double>* gradient) {
  NACRE_CHECK(gradient->size() == parameters_.size(),
              "a gradient of another size");
  const double logit = Forward(example);
  // Of the accepted logit; the rejected one's is its opposite.
  const double error = Sigmoid(logit) - (example.accepted ? 1.0 : 0.0);
  AddScaled(-error, mixed_.data(), mixed_.size(), &(*gradient)[mix(0)]);
  AddScaled(error, mixed_.data(), mixed_.size(), &(*gradient)[mix(1)]);
  double* weights = &(*gradient)[step_weights(example.step)];
  for (size_t i = 0; i < target_size_; ++i) {
    const double moved_error =
        error * (parameters_[mix(1) + i] - parameters_[mix(0) + i]);
    AddScaled(moved_error, target_.data(), target_size_,
              weights + i * target_size_);
  }
  return CrossEntropy(logit, example.accepted);
}

speculation::CaliTsModel CaliTsNetwork::Weights() const {
  CaliTsModel model;
  model.target_size = static_cast<int>(target_size_);
  model.draft_size = static_cast<int>(draft_size_);
  for (size_t i = 0; i < mix(0); ++i) {
    model.step_weights.push_back(static_cast<float>(parameters_[i]));
  }
  for (size_t i = mix(0); i < mix(2); ++i) {
    const bool of_target = (i - mix(0)) % mixed_.size() < target_size_;
    model.mix.push_back(static_cast<float>(
        parameters_[i] / (of_target ? scale_.target : scale_.draft)));
  }
  return model;
}

}  // namespace nacre::tools
