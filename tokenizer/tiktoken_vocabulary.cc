#include "tokenizer/tiktoken_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {
namespace {

std::string ShownBytes(absl::string_view bytes) {
  return absl::StrCat("'", absl::CHexEscape(bytes.substr(0, 64)),
                      bytes.size() > 64 ? "...'" : "'");
}

absl::Status AtLine(size_t line, absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line + 1, ": ", message));
}

// The token of a line's base64 text.
absl::StatusOr<std::string> ParseToken(absl::string_view text, size_t line) {
  std::string token;
  // What has other characters, or bits, than the token needs is refused.
  if (!absl::Base64Unescape(text, &token) ||
      absl::Base64Escape(token) != text) {
    return AtLine(line, absl::StrCat(ShownBytes(text), " is no base64"));
  }
  if (token.empty() || token.size() > kMaxTiktokenTokenBytes) {
    return AtLine(
        line, absl::StrCat("the token has ", token.size(),
                           " bytes, expected 1 to ", kMaxTiktokenTokenBytes));
  }
  return token;
}

// The rank that a line says. Only digits: no sign, no spaces.
absl::StatusOr<size_t> ParseRank(absl::string_view text, size_t line,
                                 size_t num_lines) {
  uint32_t rank = 0;
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &rank)) {
    return AtLine(line,
                  absl::StrCat("rank ", ShownBytes(text), " is no number"));
  }
  if (rank >= num_lines) {
    return AtLine(line, absl::StrCat("rank ", rank, " of a file of ", num_lines,
                                     " tokens, expected one below that"));
  }
  return rank;
}

}  // namespace

bool IsTiktoken(absl::string_view content) {
  const absl::string_view line = content.substr(0, content.find('\n'));
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos) return false;
  std::string piece;
  int rank = 0;
  return absl::Base64Unescape(line.substr(0, space), &piece) &&
         absl::SimpleAtoi(line.substr(space + 1), &rank);
}

absl::StatusOr<std::vector<std::string>> ParseTiktokenVocabulary(
    absl::string_view content) {
  if (content.size() > kMaxTiktokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tiktoken vocabulary of ", content.size(),
                     " bytes, the limit is ", kMaxTiktokenBytes));
  }
  if (!content.empty() && content.back() == '\n') content.remove_suffix(1);
  const size_t num_lines = 1 + std::count(content.begin(), content.end(), '\n');
  if (num_lines > kMaxVocabularySize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tiktoken vocabulary of ", num_lines,
                     " lines, the limit is ", kMaxVocabularySize));
  }
  std::vector<std::string> tokens(num_lines);
  std::vector<size_t> lines(num_lines);  // of the ranks
  absl::flat_hash_map<std::string, size_t> lines_of_tokens;
  lines_of_tokens.reserve(num_lines);
  for (size_t line = 0; line < num_lines; ++line) {
    const absl::string_view text = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(text.size() + 1, content.size()));
    const size_t space = text.find(' ');
    if (space == absl::string_view::npos) {
      return AtLine(line, absl::StrCat(ShownBytes(text),
                                       " is no token in base64, a "
                                       "space and a rank"));
    }
    NACRE_ASSIGN_OR_RETURN(std::string token,
                           ParseToken(text.substr(0, space), line));
    NACRE_ASSIGN_OR_RETURN(const size_t rank,
                           ParseRank(text.substr(space + 1), line, num_lines));
    if (!tokens[rank].empty()) {
      return AtLine(line, absl::StrCat("rank ", rank, " is that of line ",
                                       lines[rank] + 1, ", too"));
    }
    const auto [known, is_new] = lines_of_tokens.try_emplace(token, line);
    if (!is_new) {
      return AtLine(
          line, absl::StrCat("token ", ShownBytes(text.substr(0, space)),
                             " is that of line ", known->second + 1, ", too"));
    }
    lines[rank] = line;
    tokens[rank] = std::move(token);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!lines_of_tokens.contains(std::string(1, static_cast<char>(byte)))) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "byte 0x%02X has no token: some texts would have no ids", byte));
    }
  }
  return tokens;
}

}  // namespace nacre::tokenizer
