#include "chat/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/string_units.h"
#include "chat/text.h"
#include "common/quoted.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

absl::Status SyntaxFault(int line, std::string_view message) {
  return absl::InvalidArgumentError(Concat("line ", line, ": ", message));
}

// The longest first.
constexpr std::string_view kOperators[] = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// One line end is one "\n", and the last one of the source goes.
std::string NormalizeLines(std::string_view source) {
  std::string text =
      absl::StrReplaceAll(AbslView(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run();

 private:
  struct Tag {
    size_t begin = std::string_view::npos;
    char kind = 0;  // '{', '%' or '#'
  };

  char At(size_t offset) const {
    return offset < source_.size() ? source_[offset] : '\0';
  }
  bool StartsAt(size_t offset, std::string_view text) const {
    return std::string_view(source_).substr(offset).starts_with(text);
  }
  void Advance(size_t end) {
    line_ += static_cast<int>(
        std::count(source_.begin() + position_, source_.begin() + end, '\n'));
    position_ = end;
    line_starting_ = end > 0 && source_[end - 1] == '\n';
  }
  size_t SkipSpace(size_t offset) const {
    while (offset < source_.size()) {
      size_t size = 0;
      if (!IsSpace(CodePointAt(source_, offset, &size))) break;
      offset += size;
    }
    return offset;
  }
  void Add(TokenKind kind, std::string text = "") {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  void AddData(std::string_view text, char sign, bool strip_line);
  Tag FindTag() const;
  absl::Status ReadTag(const Tag& tag);
  absl::Status ReadComment();
  absl::StatusOr<bool> ReadRaw(const Tag& tag, std::string_view data);
  absl::Status ReadExpression(char kind);
  bool ReadTagEnd(char kind);
  absl::Status ReadToken();
  absl::Status ReadString();
  absl::StatusOr<bool> ReadNumber();
  absl::Status ReadOperator();

  const std::string source_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones that are awaited
};

// `sign` is the mark after the tag's beginning; `strip_line`: lstrip_blocks
// applies to this tag.
void Lexer::AddData(std::string_view text, char sign, bool strip_line) {
  if (sign == '-') {
    text = StripSpace(text, /*left=*/false, /*right=*/true);
  } else if (sign != '+' && strip_line) {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((begin > 0 || line_starting_) && begin < text.size() &&
        StripSpace(text.substr(begin), true, false).empty()) {
      text = text.substr(0, begin);
    }
  }
  if (!text.empty()) Add(TokenKind::kData, std::string(text));
}

Lexer::Tag Lexer::FindTag() const {
  for (size_t at = source_.find('{', position_); at != std::string::npos;
       at = source_.find('{', at + 1)) {
    const char next = At(at + 1);
    if (next == '{' || next == '%' || next == '#') return {at, next};
  }
  return {};
}

absl::StatusOr<std::vector<Token>> Lexer::Run() {
  while (position_ < source_.size()) {
    const Tag tag = FindTag();
    if (tag.kind == 0) {
      Add(TokenKind::kData, source_.substr(position_));
      Advance(source_.size());
      break;
    }
    NACRE_RETURN_IF_ERROR(ReadTag(tag));
  }
  Add(TokenKind::kEnd);
  return std::move(tokens_);
}

absl::Status Lexer::ReadTag(const Tag& tag) {
  const std::string_view data =
      std::string_view(source_).substr(position_, tag.begin - position_);
  if (tag.kind == '%') {
    NACRE_ASSIGN_OR_RETURN(const bool raw, ReadRaw(tag, data));
    if (raw) return absl::OkStatus();
  }
  const char sign = At(tag.begin + 2);
  const bool has_sign = sign == '-' || sign == '+';
  AddData(data, has_sign ? sign : '\0', tag.kind != '{');
  Advance(tag.begin);
  if (tag.kind != '#') {
    Add(tag.kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
  }
  Advance(tag.begin + 2 + (has_sign ? 1 : 0));
  return tag.kind == '#' ? ReadComment() : ReadExpression(tag.kind);
}

absl::Status Lexer::ReadComment() {
  const size_t end = source_.find("#}", position_);
  if (end == std::string::npos) {
    return SyntaxFault(line_, "a comment does not end");
  }
  const char sign = end > position_ ? source_[end - 1] : '\0';
  size_t next = end + 2;
  if (sign == '-') {
    next = SkipSpace(next);
  } else if (sign != '+' && At(next) == '\n') {
    ++next;
  }
  Advance(next);
  return absl::OkStatus();
}

// {% raw %} ... {% endraw %}. False: the tag is another one.
absl::StatusOr<bool> Lexer::ReadRaw(const Tag& tag, std::string_view data) {
  const char sign = At(tag.begin + 2);
  const bool has_sign = sign == '-' || sign == '+';
  size_t at = SkipSpace(tag.begin + 2 + (has_sign ? 1 : 0));
  if (!StartsAt(at, "raw")) return false;
  at = SkipSpace(at + 3);
  const bool strip = At(at) == '-';
  if (strip) ++at;
  if (!StartsAt(at, "%}")) return false;
  at += 2;
  if (strip) at = SkipSpace(at);
  AddData(data, has_sign ? sign : '\0', true);
  Advance(at);
  for (size_t begin = source_.find("{%", at); begin != std::string::npos;
       begin = source_.find("{%", begin + 1)) {
    const char end_sign = At(begin + 2);
    const bool has_end_sign = end_sign == '-' || end_sign == '+';
    size_t end = SkipSpace(begin + 2 + (has_end_sign ? 1 : 0));
    if (!StartsAt(end, "endraw")) continue;
    end = SkipSpace(end + 6);
    const char last_sign = At(end);
    if (last_sign == '-' || last_sign == '+') ++end;
    if (!StartsAt(end, "%}")) continue;
    end += 2;
    if (last_sign == '-') {
      end = SkipSpace(end);
    } else if (last_sign != '+' && At(end) == '\n') {
      ++end;
    }
    AddData(std::string_view(source_).substr(at, begin - at),
            has_end_sign ? end_sign : '\0', true);
    Advance(end);
    return true;
  }
  return SyntaxFault(line_, "a raw block does not end");
}

absl::Status Lexer::ReadExpression(char kind) {
  const int begin_line = line_;
  brackets_.clear();
  while (true) {
    if (position_ >= source_.size()) {
      return SyntaxFault(begin_line, "a tag does not end");
    }
    if (brackets_.empty() && ReadTagEnd(kind)) return absl::OkStatus();
    const size_t next = SkipSpace(position_);
    if (next > position_) {
      Advance(next);
      continue;
    }
    NACRE_RETURN_IF_ERROR(ReadToken());
  }
}

bool Lexer::ReadTagEnd(char kind) {
  const std::string_view end = kind == '{' ? "}}" : "%}";
  const bool strip = At(position_) == '-';
  const bool keep = kind == '%' && At(position_) == '+';
  size_t next = position_ + (strip || keep ? 1 : 0);
  if (!StartsAt(next, end)) return false;
  Add(kind == '{' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
  next += 2;
  if (strip) {
    next = SkipSpace(next);
  } else if (kind == '%' && !keep && At(next) == '\n') {
    ++next;
  }
  Advance(next);
  return true;
}

absl::Status Lexer::ReadToken() {
  const char first = source_[position_];
  if (absl::ascii_isdigit(first)) {
    NACRE_ASSIGN_OR_RETURN(const bool read, ReadNumber());
    if (read) return absl::OkStatus();
  }
  if (absl::ascii_isalpha(first) || first == '_') {
    size_t end = position_;
    while (absl::ascii_isalnum(At(end)) || At(end) == '_') ++end;
    if (static_cast<unsigned char>(At(end)) < 0x80) {
      Add(TokenKind::kName, source_.substr(position_, end - position_));
      Advance(end);
      return absl::OkStatus();
    }
  }
  if (static_cast<unsigned char>(first) >= 0x80 || absl::ascii_isalpha(first) ||
      first == '_') {
    return Unsupported("line ", line_,
                       ": a character outside ASCII in an expression");
  }
  if (first == '\'' || first == '"') return ReadString();
  return ReadOperator();
}

// Digits with single underscores between them. Empty: there are none.
std::string_view DigitsAt(std::string_view text, size_t begin,
                          std::string_view digits) {
  size_t end = begin;
  const auto is_digit = [&](size_t at) {
    return at < text.size() &&
           digits.find(absl::ascii_tolower(text[at])) != std::string_view::npos;
  };
  while (is_digit(end) ||
         (end > begin && end < text.size() && text[end] == '_' &&
          is_digit(end + 1) && text[end - 1] != '_')) {
    ++end;
  }
  return text.substr(begin, end - begin);
}

constexpr std::string_view kDecimal = "0123456789";

// The part of a float after its first digits: ".5", "e3", ".5e3". Empty: it is
// an integer.
std::string_view FloatTail(std::string_view text, size_t begin) {
  size_t end = begin;
  if (end < text.size() && text[end] == '.') {
    const std::string_view digits = DigitsAt(text, end + 1, kDecimal);
    if (digits.empty()) return text.substr(begin, 0);
    end += 1 + digits.size();
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t power = end + 1;
    if (power < text.size() && (text[power] == '+' || text[power] == '-')) {
      ++power;
    }
    const std::string_view digits = DigitsAt(text, power, kDecimal);
    if (!digits.empty()) end = power + digits.size();
  }
  return text.substr(begin, end - begin);
}

absl::StatusOr<bool> Lexer::ReadNumber() {
  const std::string_view text = source_;
  const std::string_view decimal = DigitsAt(text, position_, kDecimal);
  // "x.1.5": after a dot there is no float.
  const bool after_dot = position_ > 0 && text[position_ - 1] == '.';
  const std::string_view tail =
      after_dot ? std::string_view()
                : FloatTail(text, position_ + decimal.size());
  Token token{.line = line_};
  size_t size = decimal.size();
  if (!tail.empty()) {
    size += tail.size();
    const std::string digits = absl::StrReplaceAll(
        AbslView(text.substr(position_, size)), {{"_", ""}});
    token.kind = TokenKind::kFloat;
    token.real = std::strtod(digits.c_str(), nullptr);
  } else {
    token.kind = TokenKind::kInteger;
    int base = 10;
    std::string_view digits = decimal;
    const char letter = absl::ascii_tolower(At(position_ + 1));
    if (text[position_] == '0') {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base == 10) {
        digits = DigitsAt(text, position_, "0");
        size = digits.size();
      } else {
        size_t begin = position_ + 2;
        if (At(begin) == '_') ++begin;
        digits = DigitsAt(text, begin,
                          std::string_view("0123456789abcdef").substr(0, base));
        size = begin - position_ + digits.size();
        if (digits.empty()) {
          base = 10;
          digits = "0";
          size = 1;
        }
      }
    }
    const std::string plain =
        absl::StrReplaceAll(AbslView(digits), {{"_", ""}});
    const auto [end, error] = std::from_chars(
        plain.data(), plain.data() + plain.size(), token.integer, base);
    if (error != std::errc()) {
      return Unsupported("line ", line_, ": the integer ", Quoted(plain),
                         " does not fit into 64 bits");
    }
  }
  tokens_.push_back(std::move(token));
  Advance(position_ + size);
  return true;
}

absl::Status Lexer::ReadString() {
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) {
    return SyntaxFault(line_, "a string does not end");
  }
  auto text = Unescape(
      std::string_view(source_).substr(position_ + 1, end - position_ - 1));
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        Concat("line ", line_, ": ", text.status().message()));
  }
  Add(TokenKind::kString, *std::move(text));
  Advance(end + 1);
  return absl::OkStatus();
}

absl::Status Lexer::ReadOperator() {
  for (const std::string_view op : kOperators) {
    if (!StartsAt(position_, op)) continue;
    const char letter = op.size() == 1 ? op[0] : '\0';
    if (letter == '(' || letter == '[' || letter == '{') {
      brackets_ += letter == '(' ? ')' : letter == '[' ? ']' : '}';
    } else if (letter == ')' || letter == ']' || letter == '}') {
      if (brackets_.empty() || brackets_.back() != letter) {
        return SyntaxFault(line_, Concat("unexpected '", op, "'"));
      }
      brackets_.pop_back();
    }
    Add(TokenKind::kOperator, std::string(op));
    Advance(position_ + op.size());
    return absl::OkStatus();
  }
  return SyntaxFault(line_, Concat("unexpected character ",
                                   Quoted(source_.substr(position_, 1))));
}

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeLines(source)).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return Concat("'", token.text, "'");
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return "a token";
}

}  // namespace nacre::chat
