// Filters whose result is a text or a number.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "chat/errors.h"
#include "chat/filter_table.h"
#include "chat/format_text.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/string_methods.h"
#include "chat/string_units.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

using ValueOr = absl::StatusOr<Value>;

template <CaseForm kForm>
ValueOr CaseFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("the filter", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  return WithCase(context, text.text(), kForm);
}

bool BeginsWord(char c) {
  return absl::ascii_isspace(c) || c == '-' || c == '(' || c == '{' ||
         c == '[' || c == '<';
}

// Jinja2's title is not Python's: words begin after spaces and brackets only.
ValueOr TitleFilter(RenderContext& context, const Value& value,
                    const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("title", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(const Value whole, Str(context, value));
  const Text& text = whole.text();
  TextBuilder out = context.NewText();
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  while (begin < bytes.size()) {
    // A word, or what is between words.
    const auto separates = [&](size_t at, size_t* size) {
      const char32_t c = CodePointAt(bytes, at, size);
      return c < 0x80 ? BeginsWord(static_cast<char>(c)) || IsSpace(c)
                      : IsSpace(c);
    };
    size_t size = 0;
    const bool between = separates(begin, &size);
    const size_t first_end = begin + size;
    size_t end = first_end;
    while (end < bytes.size() && separates(end, &size) == between) end += size;
    NACRE_ASSIGN_OR_RETURN(const Value first,
                           context.Slice(text, begin, first_end));
    NACRE_ASSIGN_OR_RETURN(const Value rest,
                           context.Slice(text, first_end, end));
    NACRE_ASSIGN_OR_RETURN(const Value upper,
                           WithCase(context, first.text(), CaseForm::kUpper));
    NACRE_ASSIGN_OR_RETURN(const Value lower,
                           WithCase(context, rest.text(), CaseForm::kLower));
    out.Append(upper.text());
    out.Append(lower.text());
    begin = end;
  }
  return context.Finish(std::move(out));
}

ValueOr TrimFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("trim", arguments, {"chars"}));
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  return Strip(context, text.text(), bound[0].value_or(Value()), true, true);
}

ValueOr StringFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("string", arguments, {}).status());
  return Str(context, value);
}

ValueOr SafeFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("safe", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  TextBuilder out = context.NewText();
  out.Append(text.text());
  NACRE_ASSIGN_OR_RETURN(const Value copy, context.Finish(std::move(out)));
  const_cast<Text&>(copy.text()).safe = true;
  return copy;
}

ValueOr ReplaceFilter(RenderContext& context, const Value& value,
                      const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", arguments,
                                                 {"old", "new", "count"}, 2));
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  NACRE_ASSIGN_OR_RETURN(const Value from, Str(context, *bound[0]));
  NACRE_ASSIGN_OR_RETURN(const Value to, Str(context, *bound[1]));
  int64_t count = -1;
  if (bound[2].has_value() && !bound[2]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(count, Index(*bound[2], "count"));
  }
  return ReplaceAll(context, text.text(), from.text(), to.text(), count);
}

ValueOr CenterFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("center", arguments, {"width"}));
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  NACRE_ASSIGN_OR_RETURN(const int64_t width,
                         Index(bound[0].value_or(Value(int64_t{80})), "width"));
  return Center(context, text.text(), width, " ");
}

// What precedes a line: a text, or so many spaces.
ValueOr Indentation(RenderContext& context, const Value& width) {
  if (width.is(Kind::kString)) return width;
  NACRE_ASSIGN_OR_RETURN(const Value space, context.String(" "));
  return Arithmetic(context, Operator::kMultiply, space, width);
}

ValueOr IndentFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("indent", arguments,
                                                 {"width", "first", "blank"}));
  NACRE_ASSIGN_OR_RETURN(
      const Value indentation,
      Indentation(context, bound[0].value_or(Value(int64_t{4}))));
  const bool first = bound[1].has_value() && Truth(*bound[1]);
  const bool blank = bound[2].has_value() && Truth(*bound[2]);
  if (value.is_undefined()) return UndefinedUse(value);
  if (!value.is(Kind::kString)) {
    return TypeFault("indent takes a str, not ", TypeName(value));
  }
  if (value.text().safe) return Unsupported("indent of a text marked as safe");
  NACRE_ASSIGN_OR_RETURN(const Value newline, context.String("\n"));
  NACRE_ASSIGN_OR_RETURN(const Value whole,
                         Arithmetic(context, Operator::kAdd, value, newline));
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> lines,
                         SplitLines(context, whole.text()));
  TextBuilder out = context.NewText();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    const bool indents =
        i == 0 ? first : blank || !lines[i].text().bytes.empty();
    if (indents) out.Append(indentation.text());
    out.Append(lines[i].text());
  }
  return context.Finish(std::move(out));
}

// jinja2 counts \w+.
ValueOr WordCountFilter(RenderContext& context, const Value& value,
                        const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("wordcount", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
  const std::string_view bytes = text.text().bytes;
  int64_t words = 0;
  bool in_word = false;
  size_t size = 0;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const char32_t c = CodePointAt(bytes, at, &size);
    const bool is_word = IsAlpha(c) || IsNumeric(c) || IsDigit(c) || c == '_';
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value(words);
}

ValueOr ToJsonFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("tojson", arguments,
                                                 {"ensure_ascii", "indent",
                                                  "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound[0].has_value() && Truth(*bound[0]);
  style.sort_keys = bound[3].has_value() && Truth(*bound[3]);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(const Value indentation,
                           Indentation(context, *bound[1]));
    style.indent = indentation.text().bytes;
    style.item_separator = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<Value> marks,
                           Items(context, *bound[2]));
    if (marks.size() != 2 || !marks[0].is(Kind::kString) ||
        !marks[1].is(Kind::kString)) {
      return ValueFault("separators are not two strings");
    }
    style.item_separator = marks[0].text().bytes;
    style.key_separator = marks[1].text().bytes;
  }
  return ToJson(context, value, style);
}

// The number that Python's int() or float() reads in a text. False: none.
bool ReadReal(std::string_view text, double* real) {
  std::string plain(StripSpace(text, true, true));
  if (plain.empty()) return false;
  for (const char c : plain) {
    // strtod reads hexadecimal numbers, Python does not.
    if (c == 'x' || c == 'X' || c == '(' || c == '\0') return false;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] != '_') continue;
    if (i == 0 || i + 1 == plain.size() || !absl::ascii_isdigit(plain[i - 1]) ||
        !absl::ascii_isdigit(plain[i + 1])) {
      return false;
    }
  }
  plain = absl::StrReplaceAll(plain, {{"_", ""}});
  char* end = nullptr;
  *real = std::strtod(plain.c_str(), &end);
  return end == plain.c_str() + plain.size();
}

// int(text, base) in base 10. False: it is no integer.
absl::StatusOr<bool> ReadInteger(std::string_view text, int64_t* integer) {
  std::string_view digits = StripSpace(text, true, true);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  bool digit_before = false;
  int64_t value = 0;
  for (const char c : digits) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    if (static_cast<unsigned char>(c) >= 0x80) {
      return Unsupported("reading digits outside ASCII");
    }
    if (!absl::ascii_isdigit(c)) return false;
    digit_before = true;
    const int digit = negative ? '0' - c : c - '0';
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{digit}, &value)) {
      return Unsupported("an integer does not fit into 64 bits");
    }
  }
  *integer = value;
  return digit_before;
}

ValueOr IntFilter(RenderContext&, const Value& value,
                  const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("int", arguments, {"default", "base"}));
  const Value fallback = bound[0].value_or(Value(int64_t{0}));
  if (bound[1].has_value() &&
      !(bound[1]->is_integer() && bound[1]->integer() == 10)) {
    return Unsupported("int with a base other than 10");
  }
  if (value.is_undefined()) return UndefinedUse(value);
  if (value.is_integer()) return Value(value.integer());
  double real = 0;
  if (value.is(Kind::kString)) {
    int64_t integer = 0;
    NACRE_ASSIGN_OR_RETURN(const bool is_integer,
                           ReadInteger(value.text().bytes, &integer));
    if (is_integer) return Value(integer);
    if (!ReadReal(value.text().bytes, &real)) return fallback;
    if (!std::isfinite(real)) return fallback;
  } else if (value.is(Kind::kFloat)) {
    real = value.real();
    if (std::isnan(real)) return fallback;
    if (std::isinf(real)) return ValueFault("cannot convert float infinity");
  } else {
    return fallback;
  }
  if (!(std::abs(real) < 0x1p63)) {
    return Unsupported("an integer does not fit into 64 bits");
  }
  return Value(static_cast<int64_t>(real));
}

ValueOr FloatFilter(RenderContext&, const Value& value,
                    const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("float", arguments, {"default"}));
  const Value fallback = bound[0].value_or(Value(0.0));
  if (value.is_undefined()) return UndefinedUse(value);
  if (value.is_number()) return Value(value.real());
  double real = 0;
  if (value.is(Kind::kString) && ReadReal(value.text().bytes, &real)) {
    return Value(real);
  }
  return fallback;
}

ValueOr AbsFilter(RenderContext&, const Value& value,
                  const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("abs", arguments, {}).status());
  if (value.is_undefined()) {
    return TypeFault("bad operand type for abs(): 'Undefined'");
  }
  if (!value.is_number()) {
    return TypeFault("bad operand type for abs(): '", TypeName(value), "'");
  }
  if (value.is(Kind::kFloat)) return Value(std::abs(value.real()));
  return value.integer() < 0 ? Sign(Operator::kSubtract, value)
                             : Sign(Operator::kAdd, value);
}

// round(value, digits) of Python: by the decimal digits of the exact value.
double RoundDecimal(double value, int digits) {
  if (!std::isfinite(value)) return value;
  if (digits >= 0) {
    return std::strtod(absl::StrFormat("%.*f", digits, value).c_str(), nullptr);
  }
  const double scale = std::pow(10.0, -digits);
  return std::nearbyint(value / scale) * scale;
}

// round(value, None): half to even.
ValueOr RoundToInteger(const Value& value) {
  if (value.is_integer()) return Value(value.integer());
  const double whole = std::nearbyint(value.real());
  if (!std::isfinite(whole)) return ValueFault("cannot round this float");
  if (!(std::abs(whole) < 0x1p63)) {
    return Unsupported("an integer does not fit into 64 bits");
  }
  return Value(static_cast<int64_t>(whole));
}

ValueOr RoundFilter(RenderContext&, const Value& value,
                    const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("round", arguments, {"precision", "method"}));
  std::string method = "common";
  if (bound[1].has_value() && bound[1]->is(Kind::kString)) {
    method = bound[1]->text().bytes;
  } else if (bound[1].has_value()) {
    method.clear();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return ValueFault("method must be common, ceil or floor");
  }
  if (value.is_undefined() && method != "common") return UndefinedUse(value);
  if (!value.is_number()) {
    return TypeFault("round takes a number, not ", TypeName(value));
  }
  if (method == "common" && bound[0].has_value() && bound[0]->is_none()) {
    return RoundToInteger(value);
  }
  NACRE_ASSIGN_OR_RETURN(
      const int64_t precision,
      Index(bound[0].value_or(Value(int64_t{0})), "precision"));
  if (precision < 0 || precision > 15) {
    return Unsupported("round to a precision outside 0 to 15");
  }
  if (method == "common") {
    if (value.is_integer()) return Value(value.integer());
    return Value(RoundDecimal(value.real(), static_cast<int>(precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real() * scale;
  if (!(std::abs(scaled) < 0x1p53)) {
    return Unsupported("round of a number over 2^53");
  }
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) /
               scale);
}

constexpr FilterEntry kTextFilters[] = {
    {"abs", AbsFilter},
    {"capitalize", CaseFilter<CaseForm::kCapitalized>},
    {"center", CenterFilter},
    {"float", FloatFilter},
    {"indent", IndentFilter},
    {"int", IntFilter},
    {"lower", CaseFilter<CaseForm::kLower>},
    {"replace", ReplaceFilter},
    {"round", RoundFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"title", TitleFilter},
    {"tojson", ToJsonFilter},
    {"trim", TrimFilter},
    {"upper", CaseFilter<CaseForm::kUpper>},
    {"wordcount", WordCountFilter},
};

}  // namespace

absl::Span<const FilterEntry> TextFilters() { return kTextFilters; }

}  // namespace nacre::chat
