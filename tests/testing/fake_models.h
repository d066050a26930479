// A target that draws a hash of the last tokens, and a draft that draws the
// same or not, as decided. No threads.

#ifndef TESTS_TESTING_FAKE_MODELS_H_
#define TESTS_TESTING_FAKE_MODELS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "simulation/random.h"

namespace nacre::simulation {

class FakeModels {
 public:
  // `vocabulary` >= 2 tokens.
  FakeModels(uint64_t seed, int vocabulary)
      : seed_(MixBits(seed)), vocabulary_(vocabulary) {}

  // The token after `prefix`, which is not empty.
  int32_t TargetToken(absl::Span<const int32_t> prefix) const {
    return TargetToken(
        prefix.size(),
        prefix.subspan(prefix.size() - std::min(kContext, prefix.size())));
  }

  // After a sequence of `length` tokens, `last` being its last kContext or
  // all.
  static constexpr size_t kContext = 3;
  int32_t TargetToken(size_t length, absl::Span<const int32_t> last) const {
    uint64_t bits = seed_ + length;
    for (const int32_t token_id : last) {
      bits = MixBits(bits ^ static_cast<uint64_t>(token_id));
    }
    return static_cast<int32_t>(MixBits(bits) %
                                static_cast<uint64_t>(vocabulary_));
  }

  // What a step over the last of `committed` and `tail` draws, up to the first
  // that differs from the tail.
  std::vector<int32_t> TargetTokens(absl::Span<const int32_t> committed,
                                    absl::Span<const int32_t> tail) const {
    const size_t known = std::min(kContext, committed.size());
    std::vector<int32_t> last(committed.end() - known, committed.end());
    std::vector<int32_t> drawn;
    for (size_t row = 0; row <= tail.size(); ++row) {
      const size_t context = std::min(kContext, last.size());
      drawn.push_back(TargetToken(
          committed.size() + row,
          absl::MakeConstSpan(last).subspan(last.size() - context)));
      if (row == tail.size() || tail[row] != drawn.back()) break;
      last.push_back(drawn.back());
    }
    return drawn;
  }

  int32_t DraftToken(absl::Span<const int32_t> prefix, bool match) const {
    const int32_t token_id = TargetToken(prefix);
    if (match) return token_id;
    const int32_t step =
        1 + static_cast<int32_t>(MixBits(PositionBits(prefix.size())) %
                                 static_cast<uint64_t>(vocabulary_ - 1));
    return (token_id + step) % vocabulary_;
  }

  // Independent for each position: true with probability alpha.
  bool Matches(size_t position, double alpha) const {
    return UnitFromBits(PositionBits(position)) < alpha;
  }

 private:
  uint64_t PositionBits(size_t position) const {
    return MixBits(~seed_ + position);
  }

  uint64_t seed_;
  int vocabulary_;
};

}  // namespace nacre::simulation

#endif  // TESTS_TESTING_FAKE_MODELS_H_
