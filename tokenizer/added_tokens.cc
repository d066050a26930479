#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

bool TouchesWord(absl::string_view before, absl::string_view after) {
  size_t size;
  return (!before.empty() && IsWordCharacter(DecodeLastUtf8(before))) ||
         (!after.empty() && IsWordCharacter(DecodeUtf8(after, &size)));
}

// Where the white space that ends `text` begins, not before `limit`.
size_t TrailingSpaceBegin(absl::string_view text, size_t limit) {
  size_t end = text.size();
  while (end > limit && IsWhitespace(DecodeLastUtf8(text.substr(0, end)))) {
    do {
      --end;
    } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  }
  return std::max(end, limit);
}

size_t LeadingSpaceSize(absl::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    size_t size;
    if (!IsWhitespace(DecodeUtf8(text.substr(end), &size))) break;
    end += size;
  }
  return end;
}

// Published files do not call all of these special: not the role markers of
// DeepSeek's distilled models, for one. Their bars are full-width.
bool LooksSpecial(absl::string_view content) {
  for (const auto& [begin, end] :
       {std::pair<absl::string_view, absl::string_view>("<|", "|>"),
        std::pair<absl::string_view, absl::string_view>("<｜", "｜>")}) {
    if (content.size() > begin.size() + end.size() &&
        absl::StartsWith(content, begin) && absl::EndsWith(content, end)) {
      return true;
    }
  }
  return false;
}

// Whether a byte is in one of the ranges.
bool IsInside(absl::Span<const TextRange> ranges, size_t byte) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), byte,
      [](size_t at, const TextRange& range) { return at < range.end; });
  return after != ranges.end() && after->begin <= byte;
}

}  // namespace

absl::Status CheckTokenSize(absl::string_view content, absl::string_view path) {
  if (!content.empty() && content.size() <= kMaxTokenBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " has ", content.size(), " bytes, expected 1 to ", kMaxTokenBytes));
}

absl::StatusOr<AddedToken> ParseAddedToken(const Json& value,
                                           absl::string_view path) {
  NACRE_RETURN_IF_ERROR(CheckObject(value, path));
  AddedToken token;
  NACRE_ASSIGN_OR_RETURN(token.content, StringField(value, "content", path));
  NACRE_ASSIGN_OR_RETURN(token.special,
                         BoolFieldOr(value, "special", false, path));
  NACRE_ASSIGN_OR_RETURN(token.single_word,
                         BoolFieldOr(value, "single_word", false, path));
  NACRE_ASSIGN_OR_RETURN(token.lstrip,
                         BoolFieldOr(value, "lstrip", false, path));
  NACRE_ASSIGN_OR_RETURN(token.rstrip,
                         BoolFieldOr(value, "rstrip", false, path));
  NACRE_ASSIGN_OR_RETURN(
      token.normalized, BoolFieldOr(value, "normalized", !token.special, path));
  NACRE_RETURN_IF_ERROR(
      CheckTokenSize(token.content, absl::StrCat(path, ".content")));
  return token;
}

AddedTokens::AddedTokens(
    std::vector<AddedToken> tokens,
    const std::function<std::string(absl::string_view)>& normalize)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    guarded_.push_back(token.special || LooksSpecial(token.content));
    if (!token.normalized) {
      raw_.Add(token.content, static_cast<int32_t>(i));
      continue;
    }
    const std::string content = normalize(token.content);
    if (!content.empty()) normalized_.Add(content, static_cast<int32_t>(i));
  }
}

std::vector<TextSegment> AddedTokens::Split(
    absl::string_view text, Pass pass, bool parse_special, size_t max_tokens,
    absl::Span<const TextRange> user_text) const {
  const PrefixTrie& trie = TrieOf(pass);
  std::vector<TextSegment> segments;
  size_t done = 0;
  size_t num_tokens = 0;
  size_t position = trie.empty() ? text.size() : 0;
  while (position < text.size()) {
    const PrefixTrie::Match match = trie.LongestPrefix(
        text.substr(position), [&](const PrefixTrie::Match& found) {
          return !guarded_[found.value] ||
                 !(IsInside(user_text, position) ||
                   IsInside(user_text, position + found.size - 1));
        });
    if (match.size == 0) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position + match.size;
    // A match that is then refused still uses up its text. One may overlap
    // white space that the token before took. Both are as in `tokenizers`.
    position = end;
    const AddedToken& token = tokens_[match.value];
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        TouchesWord(text.substr(0, begin), text.substr(end))) {
      continue;
    }
    if (token.lstrip) {
      begin = TrailingSpaceBegin(text.substr(0, begin), std::min(done, begin));
      begin = std::max(begin, done);
    }
    if (token.rstrip) end += LeadingSpaceSize(text.substr(end));
    // The token before took all of it. `tokenizers` drops it, too, but fails
    // where that one took even more.
    if (begin >= end) continue;
    if (done < begin) segments.push_back({done, begin, -1});
    segments.push_back({begin, end, token.id});
    if (++num_tokens > max_tokens) return segments;
    // Also where the token before took white space beyond it.
    done = end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), -1});
  return segments;
}

}  // namespace nacre::tokenizer
