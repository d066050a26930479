// Fake models for the ratio test: what target and draft draw from is a fixed
// function of the last token and the position, so that the law of whole streams
// can be computed. Small vocabularies. No threads.

#ifndef TESTS_SPECULATION_RATIO_MODELS_H_
#define TESTS_SPECULATION_RATIO_MODELS_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "simulation/random.h"
#include "speculation/pipeline.h"
#include "speculation/ratio_test.h"

namespace nacre::speculation {

// What the draft makes of the target's law.
enum class DraftKind {
  kEqual,
  kOther,     // weights of its own
  kReversed,  // the likeliest are the least likely
  kNarrow,    // half of the tokens only
  kSingle,    // always the target's least likely token
};

class RatioModels {
 public:
  RatioModels(int vocabulary, DraftKind kind)
      : vocabulary_(vocabulary), kind_(kind) {}

  int vocabulary() const { return vocabulary_; }

  // The same shape as a tail's: ids ascending, all of them.
  DraftDistribution Target(absl::Span<const int32_t> prefix) const {
    return Weights(prefix, /*salt=*/1);
  }

  DraftDistribution Draft(absl::Span<const int32_t> prefix) const {
    DraftDistribution target = Target(prefix);
    switch (kind_) {
      case DraftKind::kEqual:
        return target;
      case DraftKind::kOther:
        return Weights(prefix, /*salt=*/2);
      case DraftKind::kReversed: {
        std::vector<float> sorted = target.weights;
        std::sort(sorted.begin(), sorted.end());
        DraftDistribution reversed = target;
        for (float& weight : reversed.weights) {
          const auto rank =
              std::lower_bound(sorted.begin(), sorted.end(), weight);
          weight = *(sorted.end() - 1 - (rank - sorted.begin()));
        }
        return reversed;
      }
      case DraftKind::kNarrow: {
        DraftDistribution narrow = Weights(prefix, /*salt=*/3);
        const size_t half = (narrow.token_ids.size() + 1) / 2;
        narrow.token_ids.resize(half);
        narrow.weights.resize(half);
        return narrow;
      }
      case DraftKind::kSingle: {
        const auto least =
            std::min_element(target.weights.begin(), target.weights.end());
        return {{static_cast<int32_t>(least - target.weights.begin())}, {1.0f}};
      }
    }
    return target;
  }

 private:
  DraftDistribution Weights(absl::Span<const int32_t> prefix,
                            uint64_t salt) const {
    const uint64_t state =
        simulation::MixBits(simulation::MixBits(prefix.size() * 8 + salt) +
                            static_cast<uint64_t>(prefix.back()));
    DraftDistribution distribution;
    distribution.token_ids.resize(static_cast<size_t>(vocabulary_));
    std::iota(distribution.token_ids.begin(), distribution.token_ids.end(), 0);
    for (const int32_t id : distribution.token_ids) {
      const double unit = simulation::UnitFromBits(
          simulation::MixBits(state + static_cast<uint64_t>(id)));
      distribution.weights.push_back(
          static_cast<float>(0.05 + unit * unit * unit));
    }
    return distribution;
  }

  int vocabulary_;
  DraftKind kind_;
};

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_RATIO_MODELS_H_
