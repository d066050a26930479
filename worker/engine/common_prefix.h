// Prompts that begin alike, as the choices of one request do, are computed once
// where the model shares blocks. The oldest goes ahead, the others wait a step
// and take its blocks over.
//
// Pure functions of values.

#ifndef WORKER_ENGINE_COMMON_PREFIX_H_
#define WORKER_ENGINE_COMMON_PREFIX_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/step_budget.h"

namespace nacre::worker {

// A prompt on its way.
struct Prefill {
  absl::Span<const int32_t> token_ids;  // settled; the last one is fed later
  int length = 0;                       // positions that it has
  int unfed_rows = 0;                   // that it wants
};

// SharePrefill (step_budget.h) among those that do not wait, of `room` for rows
// at the price of their positions. A prompt waits,
// and gets no rows, while an older one gets some for the same block after the
// same tokens. The oldest never waits, and what it waits for grows with every
// step: none starves. `block_size` as of LanguageModel::shared_block_size.
std::vector<int> SharePrefillOfCommonPrefixes(absl::Span<const Prefill> prompts,
                                              int block_size,
                                              const PrefillRoom& room);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_COMMON_PREFIX_H_
