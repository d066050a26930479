#include "tools/calibrate/cali_ts_network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"

namespace nacre::tools {

namespace {

using speculation::CaliTsModel;

}  // namespace

CaliTsScale ScaleOf(absl::Span<const CaliTsExample> examples) {
  NACRE_CHECK(!examples.empty(), "the scale of no example");
  RootMeanSquare target;
  RootMeanSquare draft;
  for (const CaliTsExample& example : examples) {
    target.Add(example.target_state);
    draft.Add(example.draft_state);
  }
  return {target.value(), draft.value()};
}

CaliTsNetwork::CaliTsNetwork(int target_size, int draft_size, CaliTsScale scale,
                             uint64_t seed)
    : target_size_(target_size),
      draft_size_(draft_size),
      scale_(scale),
      target_(target_size),
      mixed_(target_size + draft_size) {
  NACRE_CHECK(target_size >= 1 && draft_size >= 1 && scale.target > 0.0 &&
                  scale.draft > 0.0,
              "a model of states without numbers, or that are 0");
  parameters_.setZero(mix(2));
  for (int step = 0; step < CaliTsModel::kSteps; ++step) {
    Eigen::Map<RowMatrix>(&parameters_[step_weights(step)], target_size_,
                          target_size_)
        .setIdentity();
  }
  std::mt19937_64 random(seed);
  FillNormal(1.0 / static_cast<double>(mixed_.size()), random,
             parameters_.tail(2 * mixed_.size()));
}

Eigen::Index CaliTsNetwork::step_weights(int step) const {
  // Those of the tenth token serve all after it.
  const int last = CaliTsModel::kSteps - 1;
  return std::min(step, last) * target_size_ * target_size_;
}

Eigen::Index CaliTsNetwork::mix(Eigen::Index row) const {
  return CaliTsModel::kSteps * target_size_ * target_size_ +
         row * mixed_.size();
}

double CaliTsNetwork::Forward(const CaliTsExample& example) {
  const auto target = example.target_state;
  const auto draft = example.draft_state;
  NACRE_CHECK(target.size() == static_cast<size_t>(target_size_) &&
                  draft.size() == static_cast<size_t>(draft_size_) &&
                  example.step >= 0,
              "states of other models");
  using State = Eigen::Map<const Eigen::VectorXf>;
  target_ = State(target.data(), target_size_).cast<double>() / scale_.target;
  const Eigen::Map<const RowMatrix> weights(
      &parameters_[step_weights(example.step)], target_size_, target_size_);
  mixed_.head(target_size_).noalias() = weights * target_;
  mixed_.tail(draft_size_) =
      State(draft.data(), draft_size_).cast<double>() / scale_.draft;
  return (parameters_.segment(mix(1), mixed_.size()) -
          parameters_.segment(mix(0), mixed_.size()))
      .dot(mixed_);
}

WeightedLoss CaliTsNetwork::Loss(const CaliTsExample& example) {
  return {CrossEntropy(Forward(example), example.accepted), 1.0};
}

WeightedLoss CaliTsNetwork::AddGradient(const CaliTsExample& example,
                                        Parameters* gradient) {
  NACRE_CHECK(gradient->size() == parameters_.size(),
              "a gradient of another size");
  const double logit = Forward(example);
  // Of the accepted logit; the rejected one's is its opposite.
  const double error = Sigmoid(logit) - (example.accepted ? 1.0 : 0.0);
  gradient->segment(mix(0), mixed_.size()) -= error * mixed_;
  gradient->segment(mix(1), mixed_.size()) += error * mixed_;
  // In place: the error of what was mixed of the target.
  mixed_.head(target_size_) =
      error * (parameters_.segment(mix(1), target_size_) -
               parameters_.segment(mix(0), target_size_));
  Eigen::Map<RowMatrix> weights(&(*gradient)[step_weights(example.step)],
                                target_size_, target_size_);
  weights.noalias() += mixed_.head(target_size_) * target_.transpose();
  return {CrossEntropy(logit, example.accepted), 1.0};
}

speculation::CaliTsModel CaliTsNetwork::Weights() const {
  CaliTsModel model;
  model.target_size = static_cast<int>(target_size_);
  model.draft_size = static_cast<int>(draft_size_);
  model.step_weights = Floats(parameters_.head(mix(0)));
  // Of a state that is not scaled.
  Eigen::Matrix<double, 2, Eigen::Dynamic, Eigen::RowMajor> mixes = Eigen::Map<
      const Eigen::Matrix<double, 2, Eigen::Dynamic, Eigen::RowMajor>>(
      &parameters_[mix(0)], 2, mixed_.size());
  mixes.leftCols(target_size_) /= scale_.target;
  mixes.rightCols(draft_size_) /= scale_.draft;
  model.mix = Floats(mixes.reshaped<Eigen::RowMajor>());
  return model;
}

}  // namespace nacre::tools
