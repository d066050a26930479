#include "tokenizer/unicode_normalization.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "tokenizer/unicode_additions.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

using CodePoint = utf8proc_int32_t;

// Sorts each run of combining marks by class. utf8proc's own loop is quadratic
// in the length of a run, which a hostile text could use.
void OrderMarks(std::vector<CodePoint>& code_points) {
  std::vector<std::pair<int, CodePoint>> marks;
  for (size_t i = 0; i < code_points.size();) {
    marks.clear();
    size_t end = i;
    for (; end < code_points.size(); ++end) {
      const int combining_class =
          utf8proc_get_property(code_points[end])->combining_class;
      if (combining_class == 0) break;
      marks.push_back({combining_class, code_points[end]});
    }
    if (marks.size() > 1) {
      std::stable_sort(
          marks.begin(), marks.end(),
          [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = 0; k < marks.size(); ++k) {
        code_points[i + k] = marks[k].second;
      }
    }
    i = std::max(end, i + 1);
  }
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c & 0x80) == 0; });
}

// Appends the form of `text` to *result. Of more than `most` characters it is
// not put in order and not composed, and has no more than that takes.
void NormalizeRun(absl::string_view text, UnicodeForm form, size_t most,
                  std::string* result) {
  if (text.empty()) return;
  const int options = UTF8PROC_STABLE |
                      (form.compatibility ? UTF8PROC_COMPAT : 0) |
                      (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  std::vector<CodePoint> code_points;
  code_points.reserve(text.size());
  for (size_t offset = 0; offset < text.size() && code_points.size() <= most;) {
    size_t size;
    const CodePoint code_point =
        static_cast<CodePoint>(DecodeUtf8(text.substr(offset), &size));
    offset += size;
    // The longest decomposition has 18 characters (U+FDFA).
    CodePoint buffer[32];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code_point, buffer, 32, static_cast<utf8proc_option_t>(options),
        &boundary);
    NACRE_CHECK(count >= 0 && count <= 32, "decomposition does not fit");
    code_points.insert(code_points.end(), buffer, buffer + count);
  }
  const bool is_too_long = code_points.size() > most;
  if (!is_too_long) OrderMarks(code_points);
  if (form.compose && !is_too_long) {
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
        static_cast<utf8proc_option_t>(options));
    NACRE_CHECK(count >= 0, "composition failed");
    code_points.resize(count);
  }
  for (const CodePoint code_point : code_points) {
    AppendUtf8(static_cast<char32_t>(code_point), result);
  }
}

}  // namespace

std::string NormalizeUnicode(absl::string_view text, UnicodeForm form,
                             size_t most) {
  if (IsAscii(text)) return std::string(text);
  std::string result;
  result.reserve(text.size());
  // Inert characters stand between what is normalized.
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size() && result.size() <= most;) {
    size_t size;
    if (IsInert(DecodeUtf8(text.substr(offset), &size))) {
      NormalizeRun(text.substr(begin, offset - begin), form, most, &result);
      result.append(text.data() + offset, size);
      begin = offset + size;
    }
    offset += size;
  }
  if (result.size() <= most) {
    NormalizeRun(text.substr(begin), form, most, &result);
  }
  return result;
}

std::string LowercaseUnicode(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    size_t size;
    const char32_t c = DecodeUtf8(text.substr(offset), &size);
    offset += size;
    if (c == 0x130) {
      // The one character whose lower case is two (SpecialCasing.txt).
      result += "i\xCC\x87";
    } else {
      const char32_t lower =
          static_cast<char32_t>(utf8proc_tolower(static_cast<CodePoint>(c)));
      AppendUtf8(lower == c && c >= 0x80 ? AddedLowercase(c) : lower, &result);
    }
  }
  return result;
}

}  // namespace nacre::tokenizer
