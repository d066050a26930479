// Floats as blocks of small integers, as GGUF files hold them: the layouts of
// ggml, written anew, with rounding of our own.
//
// Pure functions.

#ifndef TESTS_TESTING_GGUF_BLOCKS_H_
#define TESTS_TESTING_GGUF_BLOCKS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace nacre::gguf {

// ggml's numbers of types.
inline constexpr uint32_t kF16Id = 1;
inline constexpr uint32_t kQ8_0Id = 8;
inline constexpr uint32_t kQ4_KId = 12;
inline constexpr uint32_t kQ6_KId = 14;

std::string F16(absl::Span<const float> values);
std::string Q8_0(absl::Span<const float> values);  // of whole blocks of 32
// Of whole blocks of 256.
std::string Q4_K(absl::Span<const float> values);
std::string Q6_K(absl::Span<const float> values);

}  // namespace nacre::gguf

#endif  // TESTS_TESTING_GGUF_BLOCKS_H_
