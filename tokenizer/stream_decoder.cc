#include "tokenizer/stream_decoder.h"

namespace nacre::tokenizer {

void StreamDecoder::SkipContext(absl::Span<const int32_t> ids) {
  (void)Append(ids);
}

std::string StreamDecoder::Append(absl::Span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) decoder_->Append(id, &text);
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text;
  decoder_->Finish(&text);
  return text;
}

}  // namespace nacre::tokenizer
