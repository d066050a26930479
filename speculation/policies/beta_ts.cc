#include "speculation/policies/beta_ts.h"

#include <algorithm>

#include "speculation/policies/policy_noise.h"

namespace nacre::speculation {
namespace {

class BetaTsPolicy final : public LengthPolicy {
 public:
  explicit BetaTsPolicy(const BetaTsOptions& options)
      : update_(options.update),
        noise_(options.seed),
        alpha_(options.alpha0),
        beta_(options.beta0) {}

  LengthDecision Decide(const DraftRow&) override {
    return noise_.Uniform() < alpha_ / (alpha_ + beta_)
               ? LengthDecision::kContinue
               : LengthDecision::kStop;
  }

  void OnVerified(const VerifiedTokens& verified) override {
    for (const ChunkOutcome& chunk : verified.chunks) {
      alpha_ += chunk.accepted;
      beta_ += Failures(chunk);
    }
  }

 private:
  int Failures(const ChunkOutcome& chunk) const {
    const int rejected = chunk.drafted - chunk.accepted;
    return std::min(rejected, update_ == BetaUpdate::kPaper ? 2 : 1);
  }

  const BetaUpdate update_;
  PolicyNoise noise_;
  double alpha_;
  double beta_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeBetaTsPolicy(const BetaTsOptions& options) {
  return std::make_unique<BetaTsPolicy>(options);
}

}  // namespace nacre::speculation
