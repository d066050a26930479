#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

std::string Tokenizer::Decode(absl::Span<const int32_t> ids,
                              bool skip_special_tokens) const {
  const std::unique_ptr<IncrementalDecoder> decoder =
      NewDecoder(skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) decoder->Append(id, &text);
  decoder->Finish(&text);
  return text;
}

}  // namespace nacre::tokenizer
