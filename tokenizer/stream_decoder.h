// Text of a growing sequence of tokens. Never splits a UTF-8 character; the
// cost of a token does not depend on how much came before. Used by one thread;
// borrows the tokenizer.

#ifndef TOKENIZER_STREAM_DECODER_H_
#define TOKENIZER_STREAM_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer,
                         bool skip_special_tokens = true)
      : decoder_(tokenizer->NewDecoder(skip_special_tokens)) {}

  // Ids that come before the streamed ones, such as the prompt. Their text is
  // not returned, but it decides whether the first streamed token keeps its
  // leading space. Call before Append.
  void SkipContext(absl::Span<const int32_t> ids);

  // The text that these ids complete. All results joined, and Flush, equal
  // Decode of the context and the streamed ids, less the text of the context
  // that was complete. Held back are the bytes of an unfinished character. With
  // a ByteFallback decoder in tokenizer.json it is a whole run of byte tokens:
  // one bad byte changes how all of them are shown.
  std::string Append(absl::Span<const int32_t> ids);

  // What was held back, incomplete bytes as U+FFFD. Nothing may follow.
  std::string Flush();

 private:
  std::unique_ptr<IncrementalDecoder> decoder_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_STREAM_DECODER_H_
