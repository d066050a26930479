#include "coordinator/api/text_ids.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::coordinator {
namespace {

// The most that normalization makes of a byte where it drops none: four bytes
// of a mathematical letter become one.
constexpr int64_t kMaxShrinkage = 4;

absl::Status CheckTextLength(absl::string_view text,
                             const tokenizer::Tokenizer& tokenizer,
                             int context_length) {
  const int64_t most = context_length * kMaxShrinkage *
                       static_cast<int64_t>(tokenizer.longest_piece_bytes());
  if (static_cast<int64_t>(text.size()) <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "CONTEXT_LENGTH_EXCEEDED: the text has ", text.size(), " bytes; at most ",
      most, " may fit the context of ", context_length, " tokens"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> PromptTextIds(
    absl::string_view text, const tokenizer::Tokenizer& tokenizer,
    int context_length) {
  NACRE_RETURN_IF_ERROR(CheckTextLength(text, tokenizer, context_length));
  absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(text, {.max_ids = static_cast<size_t>(context_length)});
  if (!absl::IsOutOfRange(ids.status())) return ids;
  return absl::InvalidArgumentError(
      absl::StrCat("CONTEXT_LENGTH_EXCEEDED: the prompt has more than ",
                   context_length, " tokens, the context is ", context_length,
                   " and must hold at least one more"));
}

absl::StatusOr<std::vector<int32_t>> AnswerIds(
    absl::string_view text, bool add_special_tokens,
    const tokenizer::Tokenizer& tokenizer, absl::optional<int> context_length) {
  int most = kMaxAnswerIds;
  std::string limit =
      absl::StrCat("an answer has at most ", kMaxAnswerIds, " ids");
  if (context_length.has_value()) {
    NACRE_RETURN_IF_ERROR(CheckTextLength(text, tokenizer, *context_length));
    if (*context_length < most) {
      most = *context_length;
      limit = absl::StrCat("the context is ", most);
    }
  }
  absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(text, {.add_special_tokens = add_special_tokens,
                              .max_ids = static_cast<size_t>(most)});
  if (!absl::IsOutOfRange(ids.status())) return ids;
  return absl::InvalidArgumentError(absl::StrCat(
      most < kMaxAnswerIds ? "CONTEXT_LENGTH_EXCEEDED: " : "", "the text of ",
      text.size(), " bytes has more than ", most, " tokens, ", limit));
}

}  // namespace nacre::coordinator
