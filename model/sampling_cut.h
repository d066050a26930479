// Where top-k and top-p cut a row of logits: which tokens may be drawn.
//
// The order is: larger scaled values (model/logit_row.h) first, of equal ones
// the lower id. Top-k keeps the first k; top-p, of these, the shortest
// beginning whose probability mass (model/probability_mass.h) is top_p of
// theirs.
//
// Thread-compatible: `scratch` is the only state.

#ifndef MODEL_SAMPLING_CUT_H_
#define MODEL_SAMPLING_CUT_H_

#include <cstdint>
#include <limits>

#include "common/sampling_params.h"
#include "model/logit_row.h"
#include "model/sampling_scratch.h"

namespace nacre::model {

// What is left: larger values, and of equal ones the tokens up to `last_id`.
// NaN and what is infinitely unlikely are left out or not, they are never
// drawn.
struct SamplingCut {
  float value = std::numeric_limits<float>::lowest();
  int32_t last_id = std::numeric_limits<int32_t>::max();

  bool Keeps(float scaled, int32_t id) const {
    return scaled > value || (scaled == value && id <= last_id);
  }
};

// `best`, the largest scaled value, is finite. `estimated_sum` is that of
// FindMaximaAndEstimateSum, or 0: it saves top-p a pass and changes nothing.
// `scratch` has room for the row.
SamplingCut FindCut(const SamplingParams& params, const LogitRow& row,
                    float best, double estimated_sum, SamplingScratch* scratch);

}  // namespace nacre::model

#endif  // MODEL_SAMPLING_CUT_H_
