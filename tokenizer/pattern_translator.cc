#include "tokenizer/pattern_translator.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/character_set.h"
#include "tokenizer/class_reader.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

// PCRE2's limit.
constexpr uint32_t kMaxRepeat = 65535;

class Translator : private ClassReader {
 public:
  Translator(absl::string_view pattern, bool additions)
      : ClassReader(pattern, additions) {}

  absl::StatusOr<std::string> Run();

 private:
  // What a quantifier would apply to.
  enum class Atom { kNothing, kAssertion, kCharacter, kGroup };
  struct Interval {
    uint32_t min;
    std::optional<uint32_t> max;
    size_t size;  // of its text
  };

  // Each reads from pos_ on and appends to out_.
  absl::Status Alternatives();
  absl::Status Piece();
  absl::StatusOr<Atom> ReadAtom();
  absl::StatusOr<Atom> Group();
  absl::StatusOr<Atom> OptionGroup();
  absl::StatusOr<Atom> NamedGroup();
  absl::Status GroupBody(absl::string_view opening);
  absl::StatusOr<Atom> Escape();
  absl::StatusOr<Atom> BackReference();
  absl::Status Literal(char32_t c);
  absl::Status Quantifiers(size_t begin, Atom atom);
  absl::Status ApplyInterval(const Interval& interval, size_t begin, Atom* atom,
                             bool* complete);
  CharacterSet Words() const;
  void Boundary(bool inside);
  void Character(const CharacterSet& set);
  void SkipIgnored();
  std::optional<Interval> ReadInterval() const;
  bool QuantifierAhead() const;

  std::string out_;
  int groups_ = 0;  // capturing ones, so far
  bool named_ = false;
  bool numbered_ = false;  // a reference by number
  char previous_ = 0;      // the letter before, where case is ignored
};

absl::StatusOr<std::string> Translator::Run() {
  if (FindInvalidUtf8(pattern_) != absl::string_view::npos) {
    pos_ = FindInvalidUtf8(pattern_);
    return Invalid("invalid UTF-8");
  }
  NACRE_RETURN_IF_ERROR(Alternatives());
  if (!AtEnd()) return Invalid("an unmatched ')'");
  if (named_ && numbered_) {
    return Invalid("a reference by number beside named groups");
  }
  return std::move(out_);
}

// Up to the end or a ')'.
absl::Status Translator::Alternatives() {
  if (++depth_ > kMaxDepth) {
    return Unsupported(absl::StrCat("nesting deeper than ", kMaxDepth));
  }
  while (!AtEnd() && !Ahead(")")) {
    if (Accept("|")) {
      out_ += '|';
      previous_ = 0;
      continue;
    }
    NACRE_RETURN_IF_ERROR(Piece());
    if (out_.size() > kMaxTranslatedBytes) {
      return Unsupported(absl::StrCat("a translation of more than ",
                                      kMaxTranslatedBytes, " bytes"));
    }
  }
  --depth_;
  return absl::OkStatus();
}

absl::Status Translator::Piece() {
  SkipIgnored();
  if (AtEnd() || Ahead(")") || Ahead("|")) return absl::OkStatus();
  const size_t begin = out_.size();
  NACRE_ASSIGN_OR_RETURN(const Atom atom, ReadAtom());
  return Quantifiers(begin, atom);
}

// Comments, and white space where it is ignored.
void Translator::SkipIgnored() {
  for (;;) {
    if (Ahead("(?#")) {
      const size_t end = pattern_.find_first_of(")\\", pos_);
      if (end == absl::string_view::npos || pattern_[end] != ')') return;
      pos_ = end + 1;
    } else if (options_.extended && Ahead("#")) {
      const size_t end = pattern_.find('\n', pos_);
      pos_ = end == absl::string_view::npos ? pattern_.size() : end + 1;
    } else if (options_.extended && !AtEnd() &&
               absl::ascii_isspace(pattern_[pos_])) {
      ++pos_;
    } else {
      return;
    }
  }
}

absl::StatusOr<Translator::Atom> Translator::ReadAtom() {
  if (Ahead("(")) return Group();
  if (Ahead("[")) {
    NACRE_ASSIGN_OR_RETURN(const CharacterSet set, Class());
    previous_ = 0;
    // Case, if ignored, is ignored by the class too.
    out_ += set.Pattern();
    return Atom::kCharacter;
  }
  if (QuantifierAhead()) return Invalid("a quantifier without anything before");
  if (Accept(".")) {
    previous_ = 0;
    out_ += options_.dot_all ? "\\p{Any}" : ".";
    return Atom::kCharacter;
  }
  if (Ahead("^") || Ahead("$")) {
    previous_ = 0;
    out_ += pattern_[pos_++];
    return Atom::kAssertion;
  }
  if (Ahead("\\")) return Escape();
  const char32_t c = Next();
  if (options_.extended && IsWhitespace(c)) {
    return Unsupported("white space beyond ASCII under (?x)");
  }
  NACRE_RETURN_IF_ERROR(Literal(c));
  return Atom::kCharacter;
}

absl::Status Translator::Literal(char32_t c) {
  if (options_.ignore_case) {
    NACRE_RETURN_IF_ERROR(CheckCase(c, c));
    // There are single characters that equal these pairs.
    const char lower = c < 0x80 ? absl::ascii_tolower(static_cast<char>(c)) : 0;
    const bool pair =
        (previous_ == 's' && (lower == 's' || lower == 't')) ||
        (previous_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'));
    if (pair) {
      return Unsupported(absl::StrCat("'", std::string(1, previous_),
                                      std::string(1, lower), "' under (?i)"));
    }
    previous_ = lower;
  }
  if (c < 0x80 && absl::ascii_isalnum(static_cast<char>(c))) {
    out_ += static_cast<char>(c);
  } else {
    absl::StrAppend(&out_, "\\x{", absl::Hex(static_cast<uint32_t>(c)), "}");
  }
  return absl::OkStatus();
}

void Translator::Character(const CharacterSet& set) {
  previous_ = 0;
  const std::string pattern = set.Pattern();
  // Properties do not ignore case.
  absl::StrAppend(&out_, options_.ignore_case ? "(?-i:" : "", pattern,
                  options_.ignore_case ? ")" : "");
}

absl::Status Translator::GroupBody(absl::string_view opening) {
  absl::StrAppend(&out_, opening);
  const Options outer = options_;
  NACRE_RETURN_IF_ERROR(Alternatives());
  options_ = outer;
  if (!Accept(")")) return Invalid("a group without its ')'");
  out_ += ')';
  return absl::OkStatus();
}

absl::StatusOr<Translator::Atom> Translator::Group() {
  for (const char* opening : {"(?:", "(?>"}) {
    if (!Accept(opening)) continue;
    NACRE_RETURN_IF_ERROR(GroupBody(opening));
    return Atom::kGroup;
  }
  for (const char* opening : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (!Accept(opening)) continue;
    NACRE_RETURN_IF_ERROR(GroupBody(opening));
    return Atom::kAssertion;
  }
  if (Ahead("(?#")) return Unsupported("a comment of this form");
  if (Ahead("(?<")) return NamedGroup();
  if (Ahead("(?")) return OptionGroup();
  if (Ahead("(*")) return Unsupported("'(*'");
  ++pos_;
  ++groups_;
  NACRE_RETURN_IF_ERROR(GroupBody("("));
  return Atom::kGroup;
}

absl::StatusOr<Translator::Atom> Translator::NamedGroup() {
  const size_t begin = pos_;
  pos_ += 3;
  while (!AtEnd() && (absl::ascii_isalnum(pattern_[pos_]) || Ahead("_"))) {
    ++pos_;
  }
  if (pos_ == begin + 3 || absl::ascii_isdigit(pattern_[begin + 3]) ||
      !Accept(">")) {
    return Unsupported("the name of a group");
  }
  ++groups_;
  named_ = true;
  NACRE_RETURN_IF_ERROR(GroupBody(pattern_.substr(begin, pos_ - begin)));
  return Atom::kGroup;
}

// (?imx-imx) and (?imx-imx:...)
absl::StatusOr<Translator::Atom> Translator::OptionGroup() {
  const size_t begin = pos_;
  Options options = options_;
  bool value = true;
  for (pos_ += 2; !AtEnd() && !Ahead(":") && !Ahead(")"); ++pos_) {
    switch (pattern_[pos_]) {
      case '-':
        value = false;
        break;
      case 'i':
        options.ignore_case = value;
        break;
      case 'm':
        options.dot_all = value;
        break;
      case 'x':
        options.extended = value;
        break;
      default:
        pos_ = begin;
        return Unsupported(
            absl::StrCat("'", CutUtf8(pattern_.substr(begin), 8), "'"));
    }
  }
  if (pos_ == begin + 2) return Unsupported("'(?' without an option");
  const absl::string_view opening = options.ignore_case ? "(?i:" : "(?-i:";
  const Options outer = options_;
  options_ = options;
  if (Accept(":")) {
    NACRE_RETURN_IF_ERROR(GroupBody(opening));
    options_ = outer;
    return Atom::kGroup;
  }
  if (!Accept(")")) return Invalid("a group without its ')'");
  // Holds for all alternatives that follow in the group around it.
  absl::StrAppend(&out_, opening);
  NACRE_RETURN_IF_ERROR(Alternatives());
  out_ += ')';
  options_ = outer;
  return Atom::kNothing;
}

bool Translator::QuantifierAhead() const {
  return Ahead("*") || Ahead("+") || Ahead("?") || ReadInterval().has_value();
}

// {n}, {n,}, {,n} and {n,m}; all else that begins with '{' is text.
std::optional<Translator::Interval> Translator::ReadInterval() const {
  if (!Ahead("{")) return std::nullopt;
  size_t i = pos_ + 1;
  const auto number = [&]() -> std::optional<uint32_t> {
    std::optional<uint32_t> value;
    for (; i < pattern_.size() && absl::ascii_isdigit(pattern_[i]); ++i) {
      value = std::min<uint32_t>(
          value.value_or(0) * 10 + static_cast<uint32_t>(pattern_[i] - '0'),
          1'000'000);
    }
    return value;
  };
  const std::optional<uint32_t> min = number();
  std::optional<uint32_t> max = min;
  if (i < pattern_.size() && pattern_[i] == ',') {
    ++i;
    max = number();
    if (!min && !max) return std::nullopt;
  }
  if (!min && !max) return std::nullopt;
  if (i >= pattern_.size() || pattern_[i] != '}') return std::nullopt;
  return Interval{min.value_or(0), max, i + 1 - pos_};
}

absl::Status Translator::Quantifiers(size_t begin, Atom atom) {
  bool complete = false;
  for (;;) {
    SkipIgnored();
    if (!QuantifierAhead()) return absl::OkStatus();
    if (atom == Atom::kNothing || atom == Atom::kAssertion) {
      return Unsupported("a quantifier after what it cannot repeat");
    }
    if (complete) return Unsupported("a quantifier of a quantifier");
    previous_ = 0;
    if (const std::optional<Interval> interval = ReadInterval()) {
      NACRE_RETURN_IF_ERROR(ApplyInterval(*interval, begin, &atom, &complete));
      continue;
    }
    out_ += pattern_[pos_++];
    if (Ahead("?") || Ahead("+")) out_ += pattern_[pos_++];
    complete = true;
  }
}

absl::Status Translator::ApplyInterval(const Interval& interval, size_t begin,
                                       Atom* atom, bool* complete) {
  const auto [min, max, size] = interval;
  if (std::max(min, max.value_or(0)) > kMaxRepeat) {
    return Unsupported(absl::StrCat("a repetition over ", kMaxRepeat));
  }
  if (max && *max < min) return Unsupported("an interval that counts down");
  pos_ += size;
  const std::string text = !max ? absl::StrCat("{", min, ",}")
                           : *max == min
                               ? absl::StrCat("{", min, "}")
                               : absl::StrCat("{", min, ",", *max, "}");
  if (Accept("?")) {
    // After a fixed number the '?' is a quantifier of its own.
    const bool fixed = max && *max == min;
    if (fixed) out_.insert(begin, "(?:");
    absl::StrAppend(&out_, text, fixed ? ")?" : "?");
    *complete = true;
    return absl::OkStatus();
  }
  SkipIgnored();
  // Here a '+' is a quantifier too, not a mark of possession.
  const bool lazy = Ahead("+?");
  if (Ahead("+") && !lazy && min == 1 && *atom == Atom::kCharacter) {
    // "One to three, as often as can be" is "as often as can be".
    return absl::OkStatus();
  }
  if (!QuantifierAhead()) {
    out_ += text;
    return absl::OkStatus();
  }
  out_.insert(begin, "(?:");
  absl::StrAppend(&out_, text, ")");
  *atom = Atom::kGroup;
  return absl::OkStatus();
}

CharacterSet Translator::Words() const {
  CharacterSet words(additions_);
  words.AddWords();
  words.AddLatinWords();
  return words;
}

void Translator::Boundary(bool inside) {
  const std::string word = Words().Pattern();
  absl::StrAppend(&out_, "(?:(?<=", word, inside ? ")(?=" : ")(?!", word,
                  ")|(?<!", word, inside ? ")(?!" : ")(?=", word, "))");
}

absl::StatusOr<Translator::Atom> Translator::Escape() {
  ++pos_;
  if (AtEnd()) return Invalid("a '\\' without anything behind");
  const char c = pattern_[pos_];
  switch (c) {
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'K':
      ++pos_;
      previous_ = 0;
      out_ += '\\';
      out_ += c;
      return Atom::kAssertion;
    case 'b':
    case 'B':
      ++pos_;
      previous_ = 0;
      Boundary(c == 'B');
      return Atom::kAssertion;
    case 'R':
      ++pos_;
      previous_ = 0;
      out_ += "(?>\\x{D}\\x{A}|[\\x{A}-\\x{D}\\x{85}\\x{2028}\\x{2029}])";
      return Atom::kGroup;
    case 'k':
      return BackReference();
    default:
      break;
  }
  if (c >= '1' && c <= '9') return BackReference();
  NACRE_ASSIGN_OR_RETURN(const std::optional<CharacterSet> set,
                         SetEscape(/*in_class=*/false));
  if (set) {
    Character(*set);
    return Atom::kCharacter;
  }
  NACRE_ASSIGN_OR_RETURN(const char32_t character,
                         CharacterEscape(/*in_class=*/false));
  NACRE_RETURN_IF_ERROR(Literal(character));
  return Atom::kCharacter;
}

// \1 to \9 and \k<name>
absl::StatusOr<Translator::Atom> Translator::BackReference() {
  previous_ = 0;
  if (options_.ignore_case) return Unsupported("a reference under (?i)");
  const size_t begin = pos_;
  if (!Accept("k")) {
    const int group = pattern_[pos_++] - '0';
    if (group > groups_ || (!AtEnd() && absl::ascii_isdigit(pattern_[pos_]))) {
      return Unsupported("a reference to no group before it");
    }
    numbered_ = true;
    absl::StrAppend(&out_, "\\g{", group, "}");
    return Atom::kGroup;
  }
  if (!Accept("<")) return Unsupported("'\\k'");
  while (!AtEnd() && (absl::ascii_isalnum(pattern_[pos_]) || Ahead("_"))) {
    ++pos_;
  }
  if (!Accept(">") || absl::ascii_isdigit(pattern_[begin + 2])) {
    return Unsupported("the name of a group");
  }
  absl::StrAppend(&out_, "\\", pattern_.substr(begin, pos_ - begin));
  return Atom::kGroup;
}

}  // namespace

absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern,
                                             bool additions) {
  return Translator(pattern, additions).Run();
}

}  // namespace nacre::tokenizer
