// Python's view of characters: spaces, case, what repr shows; and the escapes
// of its string literals.
//
// Pure functions.

#ifndef CHAT_STRING_UNITS_H_
#define CHAT_STRING_UNITS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace nacre::chat {

// str.isspace() of one character.
bool IsSpace(char32_t code_point);
// str.strip(), at one end or both.
std::string_view StripSpace(std::string_view text, bool left, bool right);

// A character that str.splitlines() splits at. "\r\n" is one line end.
bool IsLineEnd(char32_t code_point);

bool IsPrintable(char32_t code_point);
bool IsAlpha(char32_t code_point);
bool IsDecimal(char32_t code_point);
bool IsDigit(char32_t code_point);
bool IsNumeric(char32_t code_point);
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);
bool IsTitle(char32_t code_point);
// Has upper and lower forms.
inline bool IsCased(char32_t code_point) {
  return IsUpper(code_point) || IsLower(code_point) || IsTitle(code_point);
}

// Appends the character's full mapping: "ß" in upper case is "SS".
void AppendUpper(char32_t code_point, std::string* text);
void AppendLower(char32_t code_point, std::string* text);
void AppendTitle(char32_t code_point, std::string* text);

inline constexpr char32_t kCapitalSigma = 0x3A3;
inline constexpr char32_t kFinalSmallSigma = 0x3C2;
// The capital sigma at byte `at` ends a word, where its lower case differs.
bool IsFinalSigma(std::string_view text, size_t at);
// str.istitle().
bool IsTitleCase(std::string_view text);

// The value of a literal, without its quotes. INVALID_ARGUMENT: a cut escape;
// UNIMPLEMENTED: \N{...} and surrogates.
absl::StatusOr<std::string> Unescape(std::string_view literal);

}  // namespace nacre::chat

#endif  // CHAT_STRING_UNITS_H_
