#include "chat/string_methods.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "chat/errors.h"
#include "chat/operators.h"
#include "chat/string_units.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr std::string_view kStringMethods[] = {
    "capitalize",   "center",       "count",   "endswith",  "find",
    "index",        "isalnum",      "isalpha", "isdecimal", "isdigit",
    "islower",      "isnumeric",    "isspace", "istitle",   "isupper",
    "join",         "ljust",        "lower",   "lstrip",    "partition",
    "removeprefix", "removesuffix", "replace", "rfind",     "rindex",
    "rjust",        "rpartition",   "rsplit",  "rstrip",    "split",
    "splitlines",   "startswith",   "strip",   "swapcase",  "title",
    "upper",        "zfill"};

absl::StatusOr<const Text*> TextArgument(const Value& value,
                                         std::string_view method) {
  if (value.is(Kind::kString)) return &value.text();
  return TypeFault(method, "() takes a str, not ", TypeName(value));
}

// Characters of `set`, or spaces where it is null.
bool IsStripped(std::string_view character, const Text* set) {
  if (set == nullptr) {
    size_t size = 0;
    return IsSpace(CodePointAt(character, 0, &size));
  }
  return set->bytes.find(character) != std::string::npos;
}

size_t LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

}  // namespace

absl::StatusOr<Value> Strip(RenderContext& context, const Text& text,
                            const Value& characters, bool left, bool right) {
  const Text* set = nullptr;
  if (!characters.is_none()) {
    NACRE_ASSIGN_OR_RETURN(set, TextArgument(characters, "strip"));
  }
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    size_t size = 0;
    CodePointAt(bytes, begin, &size);
    if (!IsStripped(bytes.substr(begin, size), set)) break;
    begin += size;
  }
  while (right && begin < end) {
    const size_t last = LastCharacter(bytes.substr(0, end));
    if (!IsStripped(bytes.substr(last, end - last), set)) break;
    end = last;
  }
  return context.Slice(text, begin, end);
}

absl::StatusOr<Value> ReplaceAll(RenderContext& context, const Text& text,
                                 const Text& from, const Text& to,
                                 int64_t count) {
  if (text.safe || from.safe || to.safe) {
    return Unsupported("replacing in a text marked as safe");
  }
  TextBuilder out = context.NewText();
  size_t at = 0;
  if (count < 0) count = std::numeric_limits<int64_t>::max();
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(text.bytes.size()) / 64));
  // An empty `from` stands before each character and at the end.
  for (; count > 0 && !out.overflowed(); --count) {
    size_t found = at;
    size_t size = 0;
    if (from.bytes.empty()) {
      out.Append(to);
      if (at == text.bytes.size()) break;
      CodePointAt(text.bytes, at, &size);
      out.Append(text, at, at + size);
      at += size;
      continue;
    }
    found = text.bytes.find(from.bytes, at);
    if (found == std::string::npos) break;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.bytes.size();
  }
  out.Append(text, at, text.bytes.size());
  return context.Finish(std::move(out));
}

absl::StatusOr<std::vector<Value>> SplitLines(RenderContext& context,
                                              const Text& text) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  size_t size = 0;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const char32_t c = CodePointAt(bytes, at, &size);
    if (!IsLineEnd(c)) continue;
    NACRE_RETURN_IF_ERROR(context.Charge(1));
    NACRE_ASSIGN_OR_RETURN(const Value line, context.Slice(text, begin, at));
    lines.push_back(line);
    if (c == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') size = 2;
    begin = at + size;
  }
  if (begin < bytes.size()) {
    NACRE_ASSIGN_OR_RETURN(const Value line,
                           context.Slice(text, begin, bytes.size()));
    lines.push_back(line);
  }
  return lines;
}

absl::StatusOr<Value> JoinTexts(RenderContext& context, const Text& separator,
                                const std::vector<Value>& texts) {
  TextBuilder out = context.NewText();
  NACRE_RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(texts.size())));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(texts[i].text());
  }
  return context.Finish(std::move(out));
}

namespace {

// One character of `text` in a form that depends on what came before it.
class CaseWriter {
 public:
  explicit CaseWriter(CaseForm form) : form_(form) {}

  void Append(char32_t c, bool lower_is_final_sigma, std::string* out) {
    switch (form_) {
      case CaseForm::kUpper:
        return AppendUpper(c, out);
      case CaseForm::kLower:
        return ToLower(c, lower_is_final_sigma, out);
      case CaseForm::kCapitalized:
        if (first_) {
          AppendTitle(c, out);
        } else {
          ToLower(c, lower_is_final_sigma, out);
        }
        first_ = false;
        return;
      case CaseForm::kTitle:
        if (after_cased_) {
          ToLower(c, lower_is_final_sigma, out);
        } else {
          AppendTitle(c, out);
        }
        after_cased_ = IsCased(c);
        return;
      case CaseForm::kSwapped:
        if (IsUpper(c)) {
          ToLower(c, lower_is_final_sigma, out);
        } else if (IsLower(c)) {
          AppendUpper(c, out);
        } else {
          AppendCodePoint(c, out);
        }
        return;
    }
  }

 private:
  static void ToLower(char32_t c, bool final_sigma, std::string* out) {
    if (final_sigma) {
      AppendCodePoint(kFinalSmallSigma, out);
    } else {
      AppendLower(c, out);
    }
  }

  const CaseForm form_;
  bool first_ = true;
  bool after_cased_ = false;
};

}  // namespace

absl::StatusOr<Value> WithCase(RenderContext& context, const Text& text,
                               CaseForm form) {
  CaseWriter writer(form);
  TextBuilder out = context.NewText();
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(text.bytes.size()) / 16));
  auto range = text.user.begin();
  const std::string_view bytes = text.bytes;
  size_t size = 0;
  std::string mapped;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const char32_t c = CodePointAt(bytes, at, &size);
    mapped.clear();
    writer.Append(c, c == kCapitalSigma && IsFinalSigma(bytes, at), &mapped);
    while (range != text.user.end() && range->end <= at) ++range;
    out.Append(mapped, range != text.user.end() && range->begin <= at);
  }
  return context.Finish(std::move(out));
}

namespace {

// Characters that pad a text to a width, which may be any number.
int64_t MissingTo(int64_t width, const Text& text) {
  const int64_t length = static_cast<int64_t>(text.length());
  return width > length ? width - length : 0;
}

}  // namespace

absl::StatusOr<Value> Center(RenderContext& context, const Text& text,
                             int64_t width, std::string_view fill) {
  const int64_t missing = MissingTo(width, text);
  // Where the odd one goes is CPython's rule.
  const int64_t left = missing / 2 + (missing & width & 1);
  TextBuilder out = context.NewText();
  NACRE_RETURN_IF_ERROR(context.Charge(missing / 8));
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return context.Finish(std::move(out));
}

namespace {

// str.split() and rsplit() without a separator.
absl::StatusOr<std::vector<Value>> SplitSpaces(RenderContext& context,
                                               const Text& text, int64_t most,
                                               bool from_right) {
  std::vector<TextRange> words;
  const std::string_view bytes = text.bytes;
  size_t size = 0;
  bool in_word = false;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const bool space = IsSpace(CodePointAt(bytes, at, &size));
    if (!space && !in_word) words.push_back({at, at});
    if (!space) words.back().end = at + size;
    in_word = !space;
  }
  const size_t limit = most < 0 ? words.size() : static_cast<size_t>(most) + 1;
  if (words.size() > limit) {
    if (from_right) {
      const size_t joined = words.size() - limit;
      words[joined].begin =
          StripSpace(bytes, true, false).data() - bytes.data();
      words.erase(words.begin(), words.begin() + joined);
    } else {
      words.resize(limit);
      words.back().end = StripSpace(bytes, false, true).size();
      // Python keeps the spaces at the end of the unsplit rest.
      words.back().end = bytes.size();
    }
  }
  std::vector<Value> parts;
  NACRE_RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(words.size())));
  for (const TextRange& word : words) {
    NACRE_ASSIGN_OR_RETURN(const Value part,
                           context.Slice(text, word.begin, word.end));
    parts.push_back(part);
  }
  return parts;
}

absl::StatusOr<std::vector<Value>> SplitAt(RenderContext& context,
                                           const Text& text,
                                           const Text& separator, int64_t most,
                                           bool from_right) {
  if (separator.bytes.empty()) return ValueFault("empty separator");
  std::vector<TextRange> ranges;
  const std::string_view bytes = text.bytes;
  const std::string_view mark = separator.bytes;
  if (most < 0) most = std::numeric_limits<int64_t>::max();
  size_t begin = 0;
  size_t end = bytes.size();
  for (; most > 0; --most) {
    const size_t found =
        from_right ? bytes.substr(0, end).rfind(mark) : bytes.find(mark, begin);
    if (found == std::string_view::npos) break;
    if (from_right) {
      ranges.push_back({found + mark.size(), end});
      end = found;
    } else {
      ranges.push_back({begin, found});
      begin = found + mark.size();
    }
  }
  ranges.push_back({begin, end});
  if (from_right) std::reverse(ranges.begin(), ranges.end());
  std::vector<Value> parts;
  NACRE_RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(ranges.size())));
  for (const TextRange& range : ranges) {
    NACRE_ASSIGN_OR_RETURN(const Value part,
                           context.Slice(text, range.begin, range.end));
    parts.push_back(part);
  }
  return parts;
}

absl::StatusOr<Value> SplitMethod(RenderContext& context, const Text& text,
                                  std::string_view name,
                                  const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind(name, arguments, {"sep", "maxsplit"}));
  int64_t most = -1;
  if (bound[1].has_value()) {
    NACRE_ASSIGN_OR_RETURN(most, Index(*bound[1], "maxsplit"));
  }
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(text.bytes.size()) / 64));
  const bool from_right = name == "rsplit";
  std::vector<Value> parts;
  if (!bound[0].has_value() || bound[0]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(parts, SplitSpaces(context, text, most, from_right));
  } else {
    NACRE_ASSIGN_OR_RETURN(const Text* separator,
                           TextArgument(*bound[0], name));
    NACRE_ASSIGN_OR_RETURN(
        parts, SplitAt(context, text, *separator, most, from_right));
  }
  return context.NewList(Kind::kList, std::move(parts));
}

absl::StatusOr<Value> PartitionMethod(RenderContext& context, const Text& text,
                                      std::string_view name,
                                      const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind(name, arguments, {"sep"}, 1));
  NACRE_ASSIGN_OR_RETURN(const Text* separator, TextArgument(*bound[0], name));
  if (separator->bytes.empty()) return ValueFault("empty separator");
  const bool last = name == "rpartition";
  const size_t found = last ? text.bytes.rfind(separator->bytes)
                            : text.bytes.find(separator->bytes);
  const size_t size = text.bytes.size();
  const size_t mark = separator->bytes.size();
  // Not found: everything is before the mark, or after it.
  const size_t begin = found != std::string::npos ? found : last ? 0 : size;
  const size_t end = found != std::string::npos ? found + mark : begin;
  NACRE_ASSIGN_OR_RETURN(const Value head, context.Slice(text, 0, begin));
  NACRE_ASSIGN_OR_RETURN(const Value middle, context.Slice(text, begin, end));
  NACRE_ASSIGN_OR_RETURN(const Value tail, context.Slice(text, end, size));
  return context.NewList(Kind::kTuple, {head, middle, tail});
}

absl::StatusOr<Value> AffixMethod(RenderContext& context, const Text& text,
                                  std::string_view name,
                                  const Arguments& arguments) {
  const bool prefix = name == "startswith" || name == "removeprefix";
  const bool removes = name.starts_with("remove");
  if (arguments.positional.size() > 1 && !removes) {
    return Unsupported(name, "() with bounds is not supported");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind(name, arguments, {"affix"}, 1));
  std::vector<Value> affixes = {*bound[0]};
  if (!removes && bound[0]->is(Kind::kTuple)) affixes = bound[0]->list().items;
  bool found = false;
  for (const Value& value : affixes) {
    NACRE_ASSIGN_OR_RETURN(const Text* affix, TextArgument(value, name));
    const std::string_view bytes = text.bytes;
    found = prefix ? bytes.starts_with(affix->bytes)
                   : bytes.ends_with(affix->bytes);
    if (!removes && found) break;
    if (!removes) continue;
    const size_t size = found ? affix->bytes.size() : 0;
    return context.Slice(text, prefix ? size : 0,
                         bytes.size() - (prefix ? 0 : size));
  }
  return Value(found);
}

absl::StatusOr<Value> FindMethod(RenderContext& context, const Text& text,
                                 std::string_view name,
                                 const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return Unsupported(name, "() with bounds is not supported");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind(name, arguments, {"sub"}, 1));
  NACRE_ASSIGN_OR_RETURN(const Text* part, TextArgument(*bound[0], name));
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(text.bytes.size()) / 64));
  if (name == "count") {
    if (part->bytes.empty()) {
      return Value(static_cast<int64_t>(text.length()) + 1);
    }
    int64_t count = 0;
    for (size_t at = text.bytes.find(part->bytes); at != std::string::npos;
         at = text.bytes.find(part->bytes, at + part->bytes.size())) {
      ++count;
    }
    return Value(count);
  }
  const size_t found = name[0] == 'r' ? text.bytes.rfind(part->bytes)
                                      : text.bytes.find(part->bytes);
  if (found == std::string::npos) {
    if (name.ends_with("index")) return ValueFault("substring not found");
    return Value(int64_t{-1});
  }
  Text head;
  head.bytes = text.bytes.substr(0, found);
  head.ascii = text.ascii;
  return Value(static_cast<int64_t>(head.length()));
}

absl::StatusOr<Value> JoinMethod(RenderContext& context, const Text& text,
                                 const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("join", arguments, {"iterable"}, 1));
  if (text.safe) return Unsupported("join of a text marked as safe");
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                         Items(context, *bound[0]));
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kString)) {
      return TypeFault("sequence item ", i, ": expected str instance, ",
                       TypeName(items[i]), " found");
    }
  }
  return JoinTexts(context, text, items);
}

absl::StatusOr<Value> PadMethod(RenderContext& context, const Text& text,
                                std::string_view name,
                                const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind(name, arguments, {"width", "fillchar"}, 1));
  NACRE_ASSIGN_OR_RETURN(const int64_t width, Index(*bound[0], "width"));
  std::string fill = name == "zfill" ? "0" : " ";
  if (bound[1].has_value()) {
    NACRE_ASSIGN_OR_RETURN(const Text* given, TextArgument(*bound[1], name));
    if (name == "zfill" || given->length() != 1) {
      return TypeFault("The fill character must be exactly one character long");
    }
    fill = given->bytes;
  }
  if (name == "center") return Center(context, text, width, fill);
  const int64_t missing = MissingTo(width, text);
  NACRE_RETURN_IF_ERROR(context.Charge(missing / 8));
  TextBuilder out = context.NewText();
  // zfill keeps a sign in front.
  const bool sign = name == "zfill" && (text.bytes.starts_with('-') ||
                                        text.bytes.starts_with('+'));
  if (sign) out.Append(text, 0, 1);
  if (name == "ljust") out.Append(text);
  for (int64_t i = 0; i < missing; ++i) out.Append(fill);
  if (name != "ljust") out.Append(text, sign ? 1 : 0, text.bytes.size());
  return context.Finish(std::move(out));
}

absl::StatusOr<Value> ReplaceMethod(RenderContext& context, const Text& text,
                                    const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return TypeFault("str.replace() takes no keyword arguments");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", arguments,
                                                 {"old", "new", "count"}, 2));
  NACRE_ASSIGN_OR_RETURN(const Text* from, TextArgument(*bound[0], "replace"));
  NACRE_ASSIGN_OR_RETURN(const Text* to, TextArgument(*bound[1], "replace"));
  int64_t count = -1;
  if (bound[2].has_value()) {
    NACRE_ASSIGN_OR_RETURN(count, Index(*bound[2], "count"));
  }
  return ReplaceAll(context, text, *from, *to, count);
}

absl::StatusOr<Value> SplitLinesMethod(RenderContext& context, const Text& text,
                                       const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("splitlines", arguments, {"keepends"}));
  if (bound[0].has_value() && Truth(*bound[0])) {
    return Unsupported("splitlines() with line ends is not supported");
  }
  NACRE_ASSIGN_OR_RETURN(std::vector<Value> lines, SplitLines(context, text));
  return context.NewList(Kind::kList, std::move(lines));
}

// The is...() methods: a property of every character, of at least one.
bool HasProperty(const Text& text, std::string_view name) {
  if (name == "istitle") return IsTitleCase(text.bytes);
  bool any = false;
  size_t size = 0;
  for (size_t at = 0; at < text.bytes.size(); at += size) {
    const char32_t c = CodePointAt(text.bytes, at, &size);
    if (name == "islower" || name == "isupper") {
      const bool wanted = name == "islower" ? IsLower(c) : IsUpper(c);
      if (IsCased(c) && !wanted) return false;
      any = any || wanted;
      continue;
    }
    const bool holds = name == "isspace"     ? IsSpace(c)
                       : name == "isalpha"   ? IsAlpha(c)
                       : name == "isdecimal" ? IsDecimal(c)
                       : name == "isdigit"   ? IsDigit(c)
                       : name == "isnumeric" ? IsNumeric(c)
                                             : IsAlpha(c) || IsNumeric(c);
    if (!holds) return false;
    any = true;
  }
  return any;
}

absl::StatusOr<Value> PlainMethod(RenderContext& context, const Text& text,
                                  std::string_view name) {
  if (name.starts_with("is")) return Value(HasProperty(text, name));
  const CaseForm form = name == "upper"        ? CaseForm::kUpper
                        : name == "lower"      ? CaseForm::kLower
                        : name == "title"      ? CaseForm::kTitle
                        : name == "capitalize" ? CaseForm::kCapitalized
                                               : CaseForm::kSwapped;
  return WithCase(context, text, form);
}

}  // namespace

bool HasStringMethod(std::string_view name) {
  return std::find(std::begin(kStringMethods), std::end(kStringMethods),
                   name) != std::end(kStringMethods);
}

absl::StatusOr<Value> CallStringMethod(RenderContext& context,
                                       const Value& self, std::string_view name,
                                       const Arguments& arguments) {
  const Text& text = self.text();
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    if (!arguments.named.empty()) {
      return TypeFault("str.", name, "() takes no keyword arguments");
    }
    NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind(name, arguments, {"chars"}));
    return Strip(context, text, bound[0].value_or(Value()), name != "rstrip",
                 name != "lstrip");
  }
  if (name == "split" || name == "rsplit") {
    return SplitMethod(context, text, name, arguments);
  }
  if (name == "splitlines") return SplitLinesMethod(context, text, arguments);
  if (!arguments.named.empty()) {
    if (name == "replace") return ReplaceMethod(context, text, arguments);
    return TypeFault("str.", name, "() takes no keyword arguments");
  }
  if (name == "replace") return ReplaceMethod(context, text, arguments);
  if (name == "join") return JoinMethod(context, text, arguments);
  if (name == "partition" || name == "rpartition") {
    return PartitionMethod(context, text, name, arguments);
  }
  if (name == "startswith" || name == "endswith" ||
      name.starts_with("remove")) {
    return AffixMethod(context, text, name, arguments);
  }
  if (name == "count" || name.ends_with("find") || name.ends_with("index")) {
    return FindMethod(context, text, name, arguments);
  }
  if (name == "center" || name == "ljust" || name == "rjust" ||
      name == "zfill") {
    return PadMethod(context, text, name, arguments);
  }
  NACRE_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  return PlainMethod(context, text, name);
}

}  // namespace nacre::chat
