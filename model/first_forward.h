// What first forwards must give: numbers. Weights that hold NaN, or a device
// that computes wrongly, are refused where they start.
//
// The thread of the target's model, or one alone before it serves.

#ifndef MODEL_FIRST_FORWARD_H_
#define MODEL_FIRST_FORWARD_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/feature_drafter.h"
#include "model/feature_source.h"
#include "model/future_heads.h"
#include "model/language_model.h"

namespace nacre::model {

// DATA_LOSS names the row and the token of the first logit that no sound
// forward gives. A token that a draft never says has -inf.
//                                                  logits [rows, vocab_size]
absl::Status CheckNumbers(absl::Span<const float> logits, int vocab_size);

// Each has the target compute a few rows, and the draft read them. A target
// that itself gives no numbers says nothing of its draft: then they are OK.
// Errors: of CheckNumbers, and of NewSequence and Forward of both.
absl::Status ProbeHeads(LanguageModel* target, FutureHeads* heads);
// The target keeps the drafter's taps.
absl::Status ProbeDrafter(LanguageModel* target, FeatureDrafter* drafter);
// The target keeps what the source reads.
absl::Status ProbeSource(LanguageModel* target, FeatureSource* source);

}  // namespace nacre::model

#endif  // MODEL_FIRST_FORWARD_H_
