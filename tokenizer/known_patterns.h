// Patterns of pre-tokenizers that files without one name or imply. Constants.

#ifndef TOKENIZER_KNOWN_PATTERNS_H_
#define TOKENIZER_KNOWN_PATTERNS_H_

#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// Of the tokenizer.json files of the models that have these names.
inline constexpr absl::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Of the first Qwen, too.
inline constexpr absl::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_KNOWN_PATTERNS_H_
