// A Llama of random blocks of integers for benchmarks, as a GGUF file.
//
// Pure functions on distinct files.

#ifndef TESTS_BENCHMARKS_RANDOM_GGUF_H_
#define TESTS_BENCHMARKS_RANDOM_GGUF_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "model/config.h"

namespace nacre::model {

// Matrices are of `type`: "q8_0", "q4_k" or "q6_k". There is no vocabulary.
// INVALID_ARGUMENT: another type, or rows that are no whole blocks.
absl::Status WriteRandomGguf(const ModelConfig& config, absl::string_view type,
                             const std::string& path);

}  // namespace nacre::model

#endif  // TESTS_BENCHMARKS_RANDOM_GGUF_H_
