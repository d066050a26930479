// `heuristic`: two tokens more after a chunk that was accepted whole, one less
// after any other. Hugging Face transformers, "heuristic" schedule of
// num_assistant_tokens (generation/candidate_generator.py). It starts anew with
// each request, as their "heuristic_transient".

#ifndef SPECULATION_POLICIES_HEURISTIC_H_
#define SPECULATION_POLICIES_HEURISTIC_H_

#include <memory>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// `start` >= 1: the length of the first chunk; `max` >= 1: of the longest. A
// chunk counts as whole by the tokens that it had, which may be fewer than were
// planned.
std::unique_ptr<LengthPolicy> MakeHeuristicPolicy(int start, int max);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_HEURISTIC_H_
