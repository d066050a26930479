// `confidence`: stop after a token whose probability is below a threshold.
// Hugging Face transformers, assistant_confidence_threshold; the draft exit of
// Self-Speculative Decoding (arXiv:2309.08168) without its adaptation.

#ifndef SPECULATION_POLICIES_CONFIDENCE_H_
#define SPECULATION_POLICIES_CONFIDENCE_H_

#include <memory>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// `threshold` in [0, 1]; at 0 it never stops.
std::unique_ptr<LengthPolicy> MakeConfidencePolicy(double threshold);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_CONFIDENCE_H_
