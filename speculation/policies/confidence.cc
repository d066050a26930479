#include "speculation/policies/confidence.h"

#include "common/check.h"

namespace nacre::speculation {
namespace {

class ConfidencePolicy final : public LengthPolicy {
 public:
  explicit ConfidencePolicy(double threshold) : threshold_(threshold) {}

  RowNeeds needs() const override { return {.token_probability = true}; }
  bool looks_at_token() const override { return true; }

  LengthDecision Decide(const DraftRow& row) override {
    NACRE_CHECK(row.token.has_value(), "confidence looks at the token");
    return row.token->probability < threshold_ ? LengthDecision::kStop
                                               : LengthDecision::kContinue;
  }

 private:
  const double threshold_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeConfidencePolicy(double threshold) {
  return std::make_unique<ConfidencePolicy>(threshold);
}

}  // namespace nacre::speculation
