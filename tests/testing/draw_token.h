// common/token_draw.h for one row, token by token, as fakes of devices do it.
//
// Thread-safe: a pure function.

#ifndef TESTS_TESTING_DRAW_TOKEN_H_
#define TESTS_TESTING_DRAW_TOKEN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/check.h"
#include "common/philox.h"
#include "common/token_draw.h"

namespace nacre::testing {

inline int32_t DrawToken(absl::Span<const float> logits,
                         const TokenDraw& draw) {
  NACRE_CHECK(draw.vocab_limit >= 1 &&
                  static_cast<size_t>(draw.vocab_limit) <= logits.size(),
              "a draw from more ids than there are, or from none");
  uint64_t largest = 0;
  for (int id = 0; id < draw.vocab_limit; ++id) {
    const PhiloxBlock noise =
        NoiseBlock(draw.seed, static_cast<uint32_t>(draw.position),
                   static_cast<uint32_t>(id / 4), NoisePurpose::kSample);
    largest = std::max(
        largest, DrawKey(draw.temperature, logits[static_cast<size_t>(id)],
                         noise[static_cast<size_t>(id % 4)], id));
  }
  return DrawnId(largest);
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_DRAW_TOKEN_H_
