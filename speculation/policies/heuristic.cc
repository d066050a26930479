#include "speculation/policies/heuristic.h"

#include <algorithm>

namespace nacre::speculation {
namespace {

class HeuristicPolicy final : public LengthPolicy {
 public:
  HeuristicPolicy(int start, int max)
      : max_(max), length_(std::min(start, max)) {}

  bool EndsAfter(int chunk_length) const override {
    return chunk_length + 1 >= length_;
  }
  LengthDecision Decide(const DraftRow& row) override {
    return EndsAfter(row.chunk_length) ? LengthDecision::kStop
                                       : LengthDecision::kContinue;
  }

  void OnVerified(const VerifiedTokens& verified) override {
    for (const ChunkOutcome& chunk : verified.chunks) {
      length_ = chunk.accepted == chunk.drafted ? std::min(length_ + 2, max_)
                                                : std::max(length_ - 1, 1);
    }
  }

 private:
  const int max_;
  int length_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeHeuristicPolicy(int start, int max) {
  return std::make_unique<HeuristicPolicy>(start, max);
}

}  // namespace nacre::speculation
