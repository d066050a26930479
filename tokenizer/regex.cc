#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/pattern_translator.h"
#include "tokenizer/unicode_additions.h"
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

// What of a pattern an error shows.
constexpr size_t kShownBytes = 64;

std::string Shown(absl::string_view pattern) {
  return absl::StrCat("'", CutUtf8(pattern, kShownBytes),
                      pattern.size() > kShownBytes ? "...'" : "'");
}

// Finds matches of one pattern in one text.
class Search {
 public:
  // A match, none (count PCRE2_ERROR_NOMATCH), or another error.
  struct Result {
    int count = PCRE2_ERROR_NOMATCH;
    TextRange match = {0, 0};
  };

  Search(const pcre2_code* code, absl::string_view text, bool looks_at_start,
         StepBudget* steps)
      : code_(code),
        // An empty view may have no address, which PCRE2 refuses.
        begin_(text.data() == nullptr ? "" : text.data()),
        size_(text.size()),
        looks_at_start_(looks_at_start),
        steps_(steps),
        data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
        context_(pcre2_match_context_create(nullptr),
                 pcre2_match_context_free) {
    if (is_good()) pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  bool is_good() const { return data_ != nullptr && context_ != nullptr; }

  // The first one from `position` on. Most take few steps at each place. Only
  // where one takes more are the places gone through one by one, and paid for.
  Result Next(size_t position) {
    Result result = At(position, size_, StepBudget::kUncounted);
    if (result.count != PCRE2_ERROR_MATCHLIMIT) return result;
    if (looks_at_start_) return Paid(position, size_);
    while (position <= size_) {
      result = At(position, position, StepBudget::kUncounted);
      if (result.count == PCRE2_ERROR_MATCHLIMIT) {
        result = Paid(position, position);
      }
      if (result.count != PCRE2_ERROR_NOMATCH) return result;
      if (position == size_) break;
      size_t size;
      DecodeUtf8({begin_ + position, size_ - position}, &size);
      position += size;
    }
    return {};
  }

 private:
  // The same with as many steps as are left, four times more at each try.
  Result Paid(size_t position, size_t last) {
    Result result{PCRE2_ERROR_MATCHLIMIT};
    uint32_t limit = StepBudget::kUncounted;
    while (result.count == PCRE2_ERROR_MATCHLIMIT && limit < kMatchLimit) {
      limit = std::min(4 * limit, kMatchLimit);
      if (!steps_->Take(limit)) return result;
      result = At(position, last, limit);
    }
    return result;
  }

  // One that begins in [position, last].
  Result At(size_t position, size_t last, uint32_t limit) {
    pcre2_set_match_limit(context_.get(), limit);
    pcre2_set_offset_limit(context_.get(), last);
    int count = Match(position, 0);
    // The interpreter keeps its stack on the heap and can go deeper.
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = Match(position, PCRE2_NO_JIT);
    }
    if (count < 0) return {count};
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(data_.get());
    // \K in a look-ahead could report an end before the start.
    return {count, {bounds[0], std::max(bounds[0], bounds[1])}};
  }

  int Match(size_t position, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(begin_), size_,
                       position, PCRE2_NO_UTF_CHECK | options, data_.get(),
                       context_.get());
  }

  const pcre2_code* const code_;
  const char* const begin_;
  const size_t size_;
  const bool looks_at_start_;
  StepBudget* const steps_;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>
      data_;
  const std::unique_ptr<pcre2_match_context,
                        decltype(&pcre2_match_context_free)>
      context_;
};

const pcre2_code* CodeOf(const std::shared_ptr<const void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

absl::StatusOr<std::shared_ptr<const void>> CompileCode(
    absl::string_view pattern, const std::string& translated,
    absl::string_view path) {
  const std::unique_ptr<pcre2_compile_context,
                        decltype(&pcre2_compile_context_free)>
      context(pcre2_compile_context_create(nullptr),
              pcre2_compile_context_free);
  if (context == nullptr) {
    return absl::ResourceExhaustedError("out of memory for a pattern");
  }
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma ^ and $ always match at line ends.
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
          PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, context.get());
  if (code == nullptr) {
    const size_t shown = std::min<size_t>(offset, kShownBytes);
    const std::string place =
        absl::StrCat(" (after '", translated.substr(offset - shown, shown),
                     "' of its translation)");
    if (error == PCRE2_ERROR_UNKNOWN_UNICODE_PROPERTY) {
      return absl::UnimplementedError(
          absl::StrCat(path, " ", Shown(pattern),
                       " has a property that is not supported", place));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, " ", Shown(pattern),
                     " is no regular expression: ", ErrorText(error), place));
  }
  // Without JIT on a platform matching is slower and otherwise the same.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const void>(code, [](const void* pointer) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(pointer)));
  });
}

absl::StatusOr<std::string> Translate(absl::string_view pattern, bool additions,
                                      absl::string_view path) {
  absl::StatusOr<std::string> translated = TranslatePattern(pattern, additions);
  if (translated.ok()) return translated;
  const absl::Status& error = translated.status();
  return absl::IsUnimplemented(error)
             ? absl::UnimplementedError(
                   absl::StrCat(path, " ", Shown(pattern), " has ",
                                error.message(), ", which is not supported"))
             : absl::InvalidArgumentError(absl::StrCat(
                   path, " ", Shown(pattern),
                   " is no regular expression: ", error.message()));
}

}  // namespace

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern,
                                     absl::string_view path) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", pattern.size(), " bytes, the limit is ",
                     kMaxPatternBytes));
  }
  NACRE_ASSIGN_OR_RETURN(const std::string plain,
                         Translate(pattern, /*additions=*/false, path));
  NACRE_ASSIGN_OR_RETURN(const std::string added,
                         Translate(pattern, /*additions=*/true, path));
  Regex regex;
  NACRE_ASSIGN_OR_RETURN(regex.code_, CompileCode(pattern, plain, path));
  if (added != plain) {
    NACRE_ASSIGN_OR_RETURN(regex.added_code_,
                           CompileCode(pattern, added, path));
  }
  regex.pattern_ = std::string(pattern);
  regex.looks_at_start_ = absl::StrContains(plain, "\\G");
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
  std::vector<TextRange> matches;
  NACRE_RETURN_IF_ERROR(ForEachMatch(text, [&](const TextRange& match) {
    matches.push_back(match);
    return absl::OkStatus();
  }));
  return matches;
}

absl::Status Regex::ForEachMatch(absl::string_view text, TakeMatch take,
                                 StepBudget* steps) const {
  StepBudget own(text.size());
  const auto& code =
      added_code_ != nullptr && HasUnicodeAddition(text) ? added_code_ : code_;
  Search search(CodeOf(code), text, looks_at_start_,
                steps == nullptr ? &own : steps);
  if (!search.is_good()) {
    return absl::ResourceExhaustedError("out of memory for a pattern match");
  }
  size_t position = 0;
  bool any = false;
  size_t last_end = 0;
  while (position <= text.size()) {
    const auto [count, match] = search.Next(position);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("pattern ", Shown(pattern_), " failed at byte ",
                       position, " of ", text.size(), ": ", ErrorText(count)));
    }
    if (match.end == match.begin && any && match.end == last_end) {
      // An empty match just after the last one is none: step on.
      if (position >= text.size()) break;
      size_t size;
      DecodeUtf8(text.substr(position), &size);
      position += size;
      continue;
    }
    position = match.end;
    last_end = match.end;
    any = true;
    NACRE_RETURN_IF_ERROR(take(match));
  }
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
