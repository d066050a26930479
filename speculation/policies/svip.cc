#include "speculation/policies/svip.h"

#include <cmath>

namespace nacre::speculation {
namespace {

class SvipPolicy final : public LengthPolicy {
 public:
  SvipPolicy(double c, double h) : c_(c), h_(h) {}

  RowNeeds needs() const override { return {.entropy = true}; }

  LengthDecision Decide(const DraftRow& row) override {
    return std::sqrt(c_ * row.entropy) > h_ ? LengthDecision::kStop
                                            : LengthDecision::kContinue;
  }

 private:
  const double c_;
  const double h_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeSvipPolicy(double c, double h) {
  return std::make_unique<SvipPolicy>(c, h);
}

}  // namespace nacre::speculation
