#include "tokenizer/decoder_stages.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/sentencepiece_model.h"

namespace nacre::tokenizer {
namespace {

// The byte of "<0xE2>", or -1. Hexadecimal digits of either case, and a plus
// sign, count, as they do for Rust's from_str_radix.
int FallbackByte(absl::string_view token) {
  if (token.size() != 6) return -1;
  std::string piece(token);
  if (piece[3] == '+') piece[3] = '0';
  for (const size_t at : {size_t{3}, size_t{4}}) {
    piece[at] = absl::ascii_toupper(static_cast<unsigned char>(piece[at]));
  }
  return BytePieceValue(piece);
}

}  // namespace

void OutputStage::Write(absl::string_view fragment, bool) {
  absl::StrAppend(*output_, fragment);
}

void TokenStage::Write(absl::string_view fragment, bool ends_token) {
  if (!ends_token) {
    absl::StrAppend(&collected_, fragment);
    return;
  }
  if (collected_.empty()) {
    WriteToken(fragment);
    return;
  }
  absl::StrAppend(&collected_, fragment);
  WriteToken(collected_);
  collected_.clear();
}

void JoinStage::Write(absl::string_view fragment, bool ends_token) {
  if (!in_token_ && any_token_) next().Write(" ", false);
  next().Write(fragment, ends_token);
  any_token_ = true;
  in_token_ = !ends_token;
}

void ByteLevelStage::WriteToken(absl::string_view token) {
  std::string text;
  bytes_.Append(DecodeByteLevel(token), &text);
  if (!text.empty()) next().Write(text, false);
}

void ByteLevelStage::Finish() {
  std::string text;
  bytes_.Finish(&text);
  next().Write(text, true);
  next().Finish();
}

void ByteFallbackStage::WriteToken(absl::string_view token) {
  const int byte = FallbackByte(token);
  if (byte >= 0) {
    run_.push_back(static_cast<char>(byte));
    return;
  }
  EndRun();
  next().Write(token, true);
}

void ByteFallbackStage::EndRun() {
  if (run_.empty()) return;
  if (FindInvalidUtf8(run_) == absl::string_view::npos) {
    next().Write(run_, true);
  } else {
    for (size_t i = 0; i < run_.size(); ++i) {
      next().Write(kReplacementCharacter, true);
    }
  }
  run_.clear();
}

void ByteFallbackStage::Finish() {
  EndRun();
  next().Finish();
}

void FuseStage::Write(absl::string_view fragment, bool) {
  next().Write(fragment, false);
}

void FuseStage::Finish() {
  next().Write("", true);
  next().Finish();
}

void ReplaceStage::WriteToken(absl::string_view token) {
  absl::StatusOr<std::string> replaced = pattern_->ReplaceAll(token, content_);
  // Decoding cannot fail: a token on which the pattern gives up stays.
  next().Write(replaced.ok() ? absl::string_view(*replaced) : token, true);
}

void StripStage::Write(absl::string_view fragment, bool ends_token) {
  while (start_left_ > 0 && !fragment.empty()) {
    if (absl::ConsumePrefix(&fragment, character_)) {
      --start_left_;
    } else {
      start_left_ = 0;
    }
  }
  size_t trailing = 0;
  absl::string_view body = fragment;
  while (absl::ConsumeSuffix(&body, character_)) ++trailing;
  if (!body.empty()) {
    for (; held_ > 0; --held_) next().Write(character_, false);
    next().Write(body, false);
  }
  held_ += trailing;
  if (ends_token) {
    held_ -= held_ < stop_ ? held_ : stop_;
    for (; held_ > 0; --held_) next().Write(character_, false);
    next().Write("", true);
    start_left_ = start_;
    return;
  }
  for (; held_ > stop_; --held_) next().Write(character_, false);
}

void MetaspaceStage::Write(absl::string_view fragment, bool ends_token) {
  next().Write(absl::StrReplaceAll(fragment, {{symbol_, drop_ ? "" : " "}}),
               ends_token);
  if (ends_token) drop_ = false;
}

}  // namespace nacre::tokenizer
