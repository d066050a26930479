#include "coordinator/dispatch/text_stream.h"

#include <algorithm>

#include "absl/types/span.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

// Enough of the prompt to know whether the first token keeps its leading space;
// a long prompt is not decoded.
constexpr size_t kContextTokens = 64;

Finish FromFinishReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return Finish::kEos;
    case FinishReason::kStop:
      return Finish::kStop;
    default:
      return Finish::kLength;
  }
}

}  // namespace

TextStream::State::State(const RequestSpec& request,
                         const tokenizer::Tokenizer* tokenizer)
    : decoder(tokenizer, request.skip_special_tokens),
      stop_matcher(request.stop, request.include_stop_string) {
  const absl::Span<const int32_t> prompt = request.prompt_ids;
  decoder.SkipContext(
      prompt.last(std::min<size_t>(kContextTokens, prompt.size())));
}

void TextStream::MakeState() {
  if (state_ != nullptr) return;
  state_ = std::make_unique<State>(*request_, tokenizer_);
}

void TextStream::Resume() {
  const absl::Span<const int32_t> ids = request_->resumed_ids();
  if (ids.empty()) return;
  MakeState();
  Piece known;
  AppendTokens({ids.begin(), ids.end()}, /*num_silent=*/0, &known);
  text_ = std::move(known.text);
}

TextStream::Piece TextStream::Append(const std::vector<int32_t>& token_ids,
                                     FinishReason finish) {
  MakeState();
  Piece piece;
  piece.first_index = static_cast<int>(token_ids_.size());
  // The token that ends the text is, like a stop string, no part of it.
  const bool ends_with_token =
      finish == FinishReason::kEos || finish == FinishReason::kStop;
  AppendTokens(token_ids,
               ends_with_token && !request_->include_stop_string ? 1 : 0,
               &piece);
  if (!finish_.has_value() && finish != FinishReason::kNone) {
    finish_ = FromFinishReason(finish);
    const std::string rest = Flush();
    piece.text += rest;
    if (!piece.text_bytes.empty()) {
      piece.text_bytes.back() += static_cast<int>(rest.size());
    }
  }
  piece.token_ids.assign(token_ids_.begin() + piece.first_index,
                         token_ids_.end());
  text_ += piece.text;
  return piece;
}

void TextStream::AppendTokens(const std::vector<int32_t>& token_ids,
                              size_t num_silent, Piece* piece) {
  const size_t num_spoken = token_ids.size() - num_silent;
  for (size_t i = 0; i < token_ids.size() && !finish_.has_value(); ++i) {
    const int32_t token_id = token_ids[i];
    token_ids_.push_back(token_id);
    const std::string text = i < num_spoken ? TextOf(token_id) : "";
    piece->text += text;
    piece->text_bytes.push_back(static_cast<int>(text.size()));
  }
}

std::string TextStream::TextOf(int32_t token_id) {
  std::string text = state_->decoder.Append({&token_id, 1});
  // What must not end the text yet is not compared with a stop string.
  if (!MayStop()) return text;
  auto result = state_->stop_matcher.Push(text);
  if (result.matched.has_value()) {
    finish_ = Finish::kStop;
    stop_match_ = *result.matched;
  }
  return std::move(result.emit);
}

std::string TextStream::Flush() {
  std::string rest = state_->decoder.Flush();
  if (!MayStop()) return rest;
  auto result = state_->stop_matcher.Push(rest);
  if (!result.matched.has_value()) {
    return result.emit + state_->stop_matcher.Flush();
  }
  finish_ = Finish::kStop;
  stop_match_ = *result.matched;
  return result.emit;
}

}  // namespace nacre::coordinator
