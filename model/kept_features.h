// What a forward keeps of all its rows at a model's taps, in host memory.
//
// Thread-compatible, as the model.

#ifndef MODEL_KEPT_FEATURES_H_
#define MODEL_KEPT_FEATURES_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "model/feature_tap.h"

namespace nacre::model {

class KeptFeatures {
 public:
  void Set(absl::Span<const FeatureTap> taps, int hidden_size) {
    taps_.assign(taps.begin(), taps.end());
    values_.assign(taps.size(), {});
    hidden_size_ = static_cast<size_t>(hidden_size);
  }

  bool Has(const FeatureTap& tap) const {
    for (const FeatureTap& own : taps_) {
      if (own == tap) return true;
    }
    return false;
  }

  // Nothing is kept of the last forward any more.
  void Clear() {
    for (std::vector<float>& values : values_) values.clear();
  }

  // Where it is one of the taps.                        x [rows, hidden_size]
  void Keep(const FeatureTap& tap, const float* x, int rows) {
    for (size_t i = 0; i < taps_.size(); ++i) {
      if (taps_[i] != tap) continue;
      values_[i].assign(x, x + static_cast<size_t>(rows) * hidden_size_);
    }
  }

  // Of a tap by its index.                              [rows, hidden_size]
  absl::Span<const float> At(size_t index) const { return values_[index]; }

 private:
  size_t hidden_size_ = 0;
  std::vector<FeatureTap> taps_;
  std::vector<std::vector<float>> values_;  // of each
};

}  // namespace nacre::model

#endif  // MODEL_KEPT_FEATURES_H_
