#include "speculation/policies/constant.h"

namespace nacre::speculation {
namespace {

class ConstantPolicy final : public LengthPolicy {
 public:
  explicit ConstantPolicy(int length) : length_(length) {}

  bool EndsAfter(int chunk_length) const override {
    return chunk_length + 1 >= length_;
  }
  LengthDecision Decide(const DraftRow& row) override {
    return EndsAfter(row.chunk_length) ? LengthDecision::kStop
                                       : LengthDecision::kContinue;
  }

 private:
  const int length_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeConstantPolicy(int length) {
  return std::make_unique<ConstantPolicy>(length);
}

}  // namespace nacre::speculation
