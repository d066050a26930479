#include "speculation/policies/constant.h"

namespace nacre::speculation {
namespace {

class ConstantPolicy final : public LengthPolicy {
 public:
  explicit ConstantPolicy(int length) : length_(length) {}

  LengthDecision Decide(const DraftRow& row) override {
    return row.chunk_length + 1 >= length_ ? LengthDecision::kStop
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
