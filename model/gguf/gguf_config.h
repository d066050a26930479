// The metadata of a GGUF file as the config.json that the checkpoint had before
// it was converted.
//
// Pure functions.

#ifndef MODEL_GGUF_GGUF_CONFIG_H_
#define MODEL_GGUF_GGUF_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/gguf_file.h"

namespace nacre::model {

// Whether the converter wrote the rows of queries and keys of this
// architecture in the order in which ggml turns them: pairs side by side.
bool HasPairedRows(absl::string_view architecture);

// For ParseConfig, which checks the numbers. NOT_FOUND or INVALID_ARGUMENT
// names the key or tensor that is missing or of the wrong type. UNIMPLEMENTED:
// an architecture other than llama, qwen2 and qwen3, experts, a rope scaling or
// any other key of the architecture that is not read.
absl::StatusOr<std::string> GgufConfigJson(const gguf::Contents& contents);

}  // namespace nacre::model

#endif  // MODEL_GGUF_GGUF_CONFIG_H_
