#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr uint32_t kMatchLimit = 4'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) {
    return absl::StrCat("PCRE2 error ", code);
  }
  return reinterpret_cast<const char*>(buffer);
}

// Unicode's White_Space and Word, as lists for a character class. PCRE2's own
// \s takes in U+180E and its \w leaves out marks.
constexpr char kSpaceClass[] =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr char kWordClass[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

// Replaces \s, \S, \w, \W by the lists above; inside a class \S and \W, which
// no list can say there, stay PCRE2's.
std::string TranslateClasses(absl::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (!in_class && c == '[') {
        in_class = true;
        // A bracket that comes first stands for itself.
        result.push_back(c);
        if (i + 1 < pattern.size() && pattern[i + 1] == '^') {
          result.push_back(pattern[++i]);
        }
        if (i + 1 < pattern.size() && pattern[i + 1] == ']') {
          result.push_back(pattern[++i]);
        }
        continue;
      }
      if (in_class && c == '[' && i + 1 < pattern.size() &&
          pattern[i + 1] == ':') {
        const size_t end = pattern.find(":]", i + 2);
        if (end != absl::string_view::npos) {
          absl::StrAppend(&result, pattern.substr(i, end + 2 - i));
          i = end + 1;
          continue;
        }
      }
      if (in_class && c == ']') in_class = false;
      result.push_back(c);
      continue;
    }
    const char escaped = pattern[++i];
    const char* const list = escaped == 's' || escaped == 'S'   ? kSpaceClass
                             : escaped == 'w' || escaped == 'W' ? kWordClass
                                                                : nullptr;
    const bool negated = escaped == 'S' || escaped == 'W';
    if (list == nullptr || (in_class && negated)) {
      result.push_back('\\');
      result.push_back(escaped);
    } else if (in_class) {
      result += list;
    } else {
      absl::StrAppend(&result, negated ? "[^" : "[", list, "]");
    }
  }
  return result;
}

const pcre2_code* CodeOf(const std::shared_ptr<const void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

}  // namespace

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern,
                                     absl::string_view path) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", pattern.size(), " bytes, the limit is ",
                     kMaxPatternBytes));
  }
  const std::string translated = TranslateClasses(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma ^ and $ always match at line ends.
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " '", pattern.substr(0, 256),
        "' is no regular expression: ", ErrorText(error), " (at byte ", offset,
        " of '", translated.substr(0, 256), "')"));
  }
  // Without JIT on a platform matching is slower and otherwise the same.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.code_ = std::shared_ptr<const void>(code, [](const void* pointer) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(pointer)));
  });
  regex.pattern_ = std::string(pattern);
  return regex;
}

std::string Regex::Escape(absl::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || (c & 0x80) != 0;
    if (c == '\0') {
      pattern += "\\x{0}";
    } else if (c < ' ' && (c & 0x80) == 0) {
      absl::StrAppend(&pattern, "\\x{", absl::Hex(c), "}");
    } else {
      if (!plain) pattern.push_back('\\');
      pattern.push_back(c);
    }
  }
  return pattern;
}

absl::StatusOr<std::vector<TextRange>> Regex::FindAll(
    absl::string_view text) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>
      data(pcre2_match_data_create_from_pattern(CodeOf(code_), nullptr),
           pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context,
                        decltype(&pcre2_match_context_free)>
      context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (data == nullptr || context == nullptr) {
    return absl::ResourceExhaustedError("out of memory for a pattern match");
  }
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);

  std::vector<TextRange> matches;
  // An empty view may have no address, which PCRE2 refuses.
  const char* const begin = text.data() == nullptr ? "" : text.data();
  const auto match_at = [&](size_t position, uint32_t options) {
    return pcre2_match(CodeOf(code_), reinterpret_cast<PCRE2_SPTR>(begin),
                       text.size(), position, PCRE2_NO_UTF_CHECK | options,
                       data.get(), context.get());
  };
  size_t position = 0;
  bool any = false;
  size_t last_end = 0;
  while (position <= text.size()) {
    int count = match_at(position, 0);
    // The interpreter keeps its stack on the heap and can go deeper.
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = match_at(position, PCRE2_NO_JIT);
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "pattern '", pattern_.substr(0, 256), "' failed at byte ", position,
          " of ", text.size(), ": ", ErrorText(count)));
    }
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(data.get());
    // \K in a look-ahead could report an end before the start.
    const TextRange match{bounds[0], std::max(bounds[0], bounds[1])};
    if (match.end == match.begin && any && match.end == last_end) {
      // An empty match just behind the last one is none: step on.
      if (position >= text.size()) break;
      size_t size;
      DecodeUtf8(text.substr(position), &size);
      position += size;
      continue;
    }
    position = match.end;
    last_end = match.end;
    any = true;
    matches.push_back(match);
  }
  return matches;
}

}  // namespace nacre::tokenizer
