// Rotary position embedding: the angles, computed as Hugging Face does it
// (frequencies and angles rounded to float32), on the host.
//
// Thread-compatible.

#ifndef MODEL_ROPE_H_
#define MODEL_ROPE_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "model/config.h"

namespace nacre::model {

// The angle per position of each pair that turns, [rotary_pairs()], scaled
// as config.rope.scaling says (Llama 3: Dubey et al. 2024, as in the public
// reference code: low frequencies divided by `factor`, smooth in between; YaRN:
// Peng et al. 2023; LongRoPE: Ding et al. 2024).
std::vector<float> InverseFrequencies(const ModelConfig& config);

// Cosines and sines by position, times the scaling's magnitude, computed on
// first use and kept. The pairs that turn come first; of the others the cosine
// is 1 and the sine 0.
class RopeTable {
 public:
  // `local`: of the layers that turn by config.windows.rope_theta.
  explicit RopeTable(const ModelConfig& config, bool local = false);

  // Makes room for positions below `length`: up to it Extend allocates nothing.
  void Reserve(int length);

  // Makes positions 0..position available. Not more often than once in
  // kGrowth positions does it do any work.
  void Extend(int position);

  // [head_dim / 2] of a position that Extend covers; valid until the next
  // Extend.
  absl::Span<const float> Cos(int position) const;
  absl::Span<const float> Sin(int position) const;

 private:
  static constexpr int kGrowth = 256;

  std::vector<float> inverse_frequencies_;
  size_t pairs_;  // head_dim / 2
  double magnitude_;
  int num_positions_ = 0;
  std::vector<float> cos_;  // [num_positions_, pairs_]
  std::vector<float> sin_;
};

}  // namespace nacre::model

#endif  // MODEL_ROPE_H_
