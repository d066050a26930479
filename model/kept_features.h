// What a forward keeps of all its rows at a model's taps, and brings to the
// host.
//
// Thread-compatible, as the model.

#ifndef MODEL_KEPT_FEATURES_H_
#define MODEL_KEPT_FEATURES_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/feature_tap.h"
#include "model/step_values.h"

namespace nacre::model {

class KeptFeatures {
 public:
  // Of the model that `backend` runs, which outlives it.
  explicit KeptFeatures(kernels::Backend* backend) : backend_(backend) {}

  void Set(absl::Span<const FeatureTap> taps, int hidden_size);
  bool Has(const FeatureTap& tap) const;
  bool empty() const { return kept_.empty(); }  // no taps

  // Nothing is kept of the last forward any more. Makes room for one of so many
  // rows. RESOURCE_EXHAUSTED.
  absl::Status Begin(int rows);
  // In the middle of a step, where it is one of the taps; x: of the backend.
  //                                                      x [rows, hidden_size]
  void Keep(const FeatureTap& tap, const float* x);
  // Queues what brings to the host what was kept.
  void Bring();
  // Nothing is kept any more.
  void Clear() { rows_ = 0; }

  // Of a tap by its index, after the backend's next Synchronize.
  //                                                        [rows, hidden_size]
  absl::Span<const float> At(size_t index) const;

 private:
  struct Kept {
    FeatureTap tap;
    StepValues values;
    BroughtValues brought;
  };

  size_t Count() const { return static_cast<size_t>(rows_) * hidden_size_; }

  kernels::Backend* const backend_;
  size_t hidden_size_ = 0;
  int rows_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace nacre::model

#endif  // MODEL_KEPT_FEATURES_H_
