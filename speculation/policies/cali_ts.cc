#include "speculation/policies/cali_ts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "speculation/policies/mat_vec.h"
#include "speculation/policies/policy_noise.h"

namespace nacre::speculation {
namespace {

class CaliTsPolicy final : public LengthPolicy {
 public:
  CaliTsPolicy(const CaliTsScorer* model, const CaliTsOptions& options)
      : model_(model),
        options_(options),
        noise_(options.seed),
        validated_(options.theta0) {}

  RowNeeds needs() const override {
    return {.draft_hidden = model_ != nullptr};
  }

  LengthDecision Decide(const DraftRow& row) override {
    double score = 0.0;
    const bool has_score = model_ != nullptr && !target_parts_.empty();
    if (has_score) {
      const int step = std::min(row.unverified, CaliTsModel::kSteps - 1);
      score = model_->Score(target_parts_[static_cast<size_t>(step)],
                            row.draft_hidden);
    }
    const CaliTsPosterior posterior =
        PosteriorOf(options_, rounds_, validated_ / compared_,
                    has_score ? &score : nullptr);
    const double theta = std::clamp(
        posterior.mean + posterior.deviation * noise_.Normal(), 0.0, 1.0);
    return noise_.Uniform() < theta ? LengthDecision::kContinue
                                    : LengthDecision::kStop;
  }

  void OnVerified(const VerifiedTokens& verified) override {
    for (const ChunkOutcome& chunk : verified.chunks) {
      ++rounds_;
      validated_ += chunk.accepted;
      compared_ += std::min(chunk.accepted + 1, chunk.drafted);
    }
  }

  int target_hidden_size() const override {
    return model_ != nullptr ? model_->target_size() : 0;
  }

  void OnTargetHidden(absl::Span<const float> hidden) override {
    if (model_ == nullptr) return;
    target_parts_.clear();
    if (hidden.empty()) return;
    for (int step = 0; step < CaliTsModel::kSteps; ++step) {
      target_parts_.push_back(model_->TargetPart(step, hidden));
    }
  }

 private:
  const CaliTsScorer* const model_;
  const CaliTsOptions options_;
  PolicyNoise noise_;
  int rounds_ = 0;
  // The prior counts as one token.
  double validated_;
  double compared_ = 1.0;
  std::vector<double> target_parts_;  // [kSteps], or empty: no h_T
};

}  // namespace

CaliTsPosterior PosteriorOf(const CaliTsOptions& options, int rounds,
                            double share, const double* model_score) {
  const double model = options.sigma_model * options.sigma_model;
  const double sample = options.sigma_sample * options.sigma_sample;
  const double total = sample + rounds * model;
  CaliTsPosterior posterior;
  posterior.deviation = std::sqrt(model * sample / total);
  posterior.mean =
      model_score == nullptr
          ? share
          : (sample * *model_score + rounds * model * share) / total;
  return posterior;
}

absl::Status Validate(const CaliTsModel& model) {
  const auto target = static_cast<size_t>(std::max(model.target_size, 0));
  const auto draft = static_cast<size_t>(std::max(model.draft_size, 0));
  if (target == 0 || draft == 0 ||
      model.step_weights.size() != CaliTsModel::kSteps * target * target ||
      model.mix.size() != 2 * (target + draft)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cali-ts: step_weights has ", model.step_weights.size(),
        " values, mix ", model.mix.size(), "; for hidden sizes T = ",
        model.target_size, " and D = ", model.draft_size,
        " (both >= 1) they "
        "have ",
        CaliTsModel::kSteps, " * T * T and 2 * (T + D)"));
  }
  if (!AllFinite(model.step_weights) || !AllFinite(model.mix)) {
    return absl::InvalidArgumentError(
        "cali-ts: a weight is not a finite number");
  }
  return absl::OkStatus();
}

CaliTsScorer::CaliTsScorer(const CaliTsModel& model)
    : target_size_(static_cast<size_t>(model.target_size)) {
  const size_t size = target_size_;
  const size_t mixed = size + static_cast<size_t>(model.draft_size);
  const absl::Span<const float> rejected = MatrixRow(model.mix, 0, mixed);
  const absl::Span<const float> accepted = MatrixRow(model.mix, 1, mixed);
  std::vector<double> row(size);
  for (size_t step = 0; step < CaliTsModel::kSteps; ++step) {
    row.assign(size, 0.0);
    for (size_t i = 0; i < size; ++i) {
      const double weight = double{accepted[i]} - double{rejected[i]};
      const float* moved = &model.step_weights[(step * size + i) * size];
      for (size_t k = 0; k < size; ++k) row[k] += weight * moved[k];
    }
    target_rows_.insert(target_rows_.end(), row.begin(), row.end());
  }
  for (size_t i = size; i < mixed; ++i) {
    draft_row_.push_back(accepted[i] - rejected[i]);
  }
}

double CaliTsScorer::TargetPart(int step,
                                absl::Span<const float> target_hidden) const {
  return Dot(MatrixRow(target_rows_, static_cast<size_t>(step), target_size_),
             target_hidden);
}

double CaliTsScorer::Score(double target_part,
                           absl::Span<const float> draft_hidden) const {
  return 1.0 / (1.0 + std::exp(-(target_part + Dot(draft_row_, draft_hidden))));
}

std::unique_ptr<LengthPolicy> MakeCaliTsPolicy(const CaliTsScorer* model,
                                               const CaliTsOptions& options) {
  return std::make_unique<CaliTsPolicy>(model, options);
}

}  // namespace nacre::speculation
