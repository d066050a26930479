// From generated tokens to the text of one answer. Decodes them, holds back
// what may be the beginning of a stop string, and ends the text at one.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_TEXT_STREAM_H_
#define COORDINATOR_DISPATCH_TEXT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"
#include "speculation/pipeline.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

class TextStream {
 public:
  // The tokenizer must outlive it.
  TextStream(std::shared_ptr<const RequestSpec> request,
             const tokenizer::Tokenizer* tokenizer)
      : request_(std::move(request)), tokenizer_(tokenizer) {}

  // Takes what its request resumes, whose text its client has: what can be
  // shown of it is not shown again. First, if at all.
  void Resume();

  // What tokens add to the answer.
  struct Piece {
    int first_index = 0;             // of token_ids, in the answer
    std::vector<int32_t> token_ids;  // up to the end of the text
    std::string text;                // that may be shown by now
    std::vector<int> text_bytes;     // of `text`, with each of token_ids
  };
  // Requires: not finished. `finish`: why the target ends with these tokens;
  // kNone: it goes on.
  Piece Append(const std::vector<int32_t>& token_ids,
               speculation::FinishReason finish);

  // All so far.
  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  const std::string& text() const { return text_; }
  // Why the text has ended; nullopt: it goes on. The stop string, if it was
  // one.
  const absl::optional<Finish>& finish() const { return finish_; }
  const std::string& stop_match() const { return stop_match_; }

 private:
  // Made with the first tokens: a waiting request needs none.
  struct State {
    State(const RequestSpec& request, const tokenizer::Tokenizer* tokenizer);
    tokenizer::StreamDecoder decoder;
    tokenizer::StopMatcher stop_matcher;
  };

  // Appends tokens up to a stop string, and to the piece the text that may be
  // shown. The last `num_silent` tokens have no text.
  void AppendTokens(const std::vector<int32_t>& token_ids, size_t num_silent,
                    Piece* piece);
  // The text that a token lets be shown. Ends the text at a stop string.
  std::string TextOf(int32_t token_id);
  std::string Flush();
  void MakeState();
  // Before that no stop string ends the text.
  bool MayStop() const {
    return static_cast<int>(token_ids_.size()) > request_->min_tokens;
  }

  const std::shared_ptr<const RequestSpec> request_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::unique_ptr<State> state_;
  std::vector<int32_t> token_ids_;
  std::string text_;
  absl::optional<Finish> finish_;
  std::string stop_match_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_TEXT_STREAM_H_
