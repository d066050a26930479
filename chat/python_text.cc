#include "chat/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/operators.h"
#include "chat/string_units.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

// Appends one character of a repr, escaped if Python does.
void AppendReprCharacter(std::string_view bytes, char32_t c, char quote,
                         bool user, TextBuilder* out) {
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out->Append("\\", user);
    out->Append(bytes, user);
  } else if (c == '\n') {
    out->Append("\\n", user);
  } else if (c == '\r') {
    out->Append("\\r", user);
  } else if (c == '\t') {
    out->Append("\\t", user);
  } else if (IsPrintable(c)) {
    out->Append(bytes, user);
  } else if (c <= 0xFF) {
    out->Append(absl::StrFormat("\\x%02x", static_cast<uint32_t>(c)), user);
  } else if (c <= 0xFFFF) {
    out->Append(absl::StrFormat("\\u%04x", static_cast<uint32_t>(c)), user);
  } else {
    out->Append(absl::StrFormat("\\U%08x", static_cast<uint32_t>(c)), user);
  }
}

void AppendTextRepr(const Text& text, TextBuilder* out) {
  const std::string_view bytes = text.bytes;
  const char quote = bytes.find('\'') != std::string_view::npos &&
                             bytes.find('"') == std::string_view::npos
                         ? '"'
                         : '\'';
  const std::string mark(1, quote);
  auto range = text.user.begin();
  out->Append(mark);
  size_t size = 0;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const char32_t c = CodePointAt(bytes, at, &size);
    while (range != text.user.end() && range->end <= at) ++range;
    const bool user = range != text.user.end() && range->begin <= at;
    AppendReprCharacter(bytes.substr(at, size), c, quote, user, out);
  }
  out->Append(mark);
}

absl::Status AppendReprs(RenderContext& context,
                         const std::vector<Value>& items, TextBuilder* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ");
    NACRE_RETURN_IF_ERROR(AppendRepr(context, items[i], out));
  }
  return absl::OkStatus();
}

absl::Status AppendDictRepr(RenderContext& context, const Dict& dict,
                            TextBuilder* out) {
  out->Append("{");
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) out->Append(", ");
    first = false;
    NACRE_RETURN_IF_ERROR(AppendRepr(context, key, out));
    out->Append(": ");
    NACRE_RETURN_IF_ERROR(AppendRepr(context, value, out));
  }
  out->Append("}");
  return absl::OkStatus();
}

absl::Status AppendViewRepr(RenderContext& context, const Value& value,
                            TextBuilder* out) {
  const View& view = value.view();
  out->Append(Concat(TypeName(value), "(["));
  bool first = true;
  for (const auto& [key, item] : view.dict->items) {
    if (!first) out->Append(", ");
    first = false;
    const bool both = view.what == View::What::kItems;
    if (both) out->Append("(");
    if (view.what != View::What::kValues) {
      NACRE_RETURN_IF_ERROR(AppendRepr(context, key, out));
    }
    if (both) out->Append(", ");
    if (view.what != View::What::kKeys) {
      NACRE_RETURN_IF_ERROR(AppendRepr(context, item, out));
    }
    if (both) out->Append(")");
  }
  out->Append("])");
  return absl::OkStatus();
}

absl::Status AppendSequenceRepr(RenderContext& context, const Value& value,
                                TextBuilder* out) {
  const std::vector<Value>& items = value.list().items;
  if (value.is(Kind::kRange)) {
    const auto& range = static_cast<const Range&>(value.list());
    out->Append(Concat("range(", range.start, ", ", range.stop));
    if (range.step != 1) out->Append(Concat(", ", range.step));
    out->Append(")");
    return absl::OkStatus();
  }
  const bool is_list = value.is(Kind::kList);
  out->Append(is_list ? "[" : "(");
  NACRE_RETURN_IF_ERROR(AppendReprs(context, items, out));
  out->Append(is_list ? "]" : items.size() == 1 ? ",)" : ")");
  return absl::OkStatus();
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer),
                                          value, std::chars_format::scientific);
  if (error != std::errc()) return "nan";
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  // Python's repr changes to exponents at these two.
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                   std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

absl::Status AppendStr(RenderContext& context, const Value& value,
                       TextBuilder* out) {
  if (value.is(Kind::kString)) {
    NACRE_RETURN_IF_ERROR(
        context.Charge(static_cast<int64_t>(value.text().bytes.size()) / 64));
    out->Append(value.text());
    return absl::OkStatus();
  }
  if (value.is_undefined()) return absl::OkStatus();
  return AppendRepr(context, value, out);
}

absl::StatusOr<Value> Str(RenderContext& context, const Value& value) {
  if (value.is(Kind::kString)) return value;
  TextBuilder out = context.NewText();
  NACRE_RETURN_IF_ERROR(AppendStr(context, value, &out));
  return context.Finish(std::move(out));
}

absl::Status AppendRepr(RenderContext& context, const Value& value,
                        TextBuilder* out) {
  const Nested nested(context);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined");
      return absl::OkStatus();
    case Kind::kNone:
      out->Append("None");
      return absl::OkStatus();
    case Kind::kBool:
      out->Append(value.integer() != 0 ? "True" : "False");
      return absl::OkStatus();
    case Kind::kInt:
      out->Append(Concat(value.integer()));
      return absl::OkStatus();
    case Kind::kFloat:
      out->Append(FloatText(value.real()));
      return absl::OkStatus();
    case Kind::kString:
      if (value.text().safe) {
        return Unsupported("repr of a text marked as safe");
      }
      NACRE_RETURN_IF_ERROR(
          context.Charge(static_cast<int64_t>(value.text().bytes.size()) / 16));
      AppendTextRepr(value.text(), out);
      return absl::OkStatus();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return AppendSequenceRepr(context, value, out);
    case Kind::kDict:
      return AppendDictRepr(context, value.dict(), out);
    case Kind::kView:
      return AppendViewRepr(context, value, out);
    case Kind::kNamespace:
      out->Append("<Namespace ");
      NACRE_RETURN_IF_ERROR(
          AppendDictRepr(context, value.space().attributes, out));
      out->Append(">");
      return absl::OkStatus();
    default:
      return Unsupported("printing a ", TypeName(value), " is not supported");
  }
}

std::string ReprOf(std::string_view text) {
  Text copy;
  copy.bytes = std::string(text);
  TextBuilder out(text.size() * 10 + 2);
  AppendTextRepr(copy, &out);
  return out.TakeBytes();
}

namespace {

class JsonWriter {
 public:
  JsonWriter(RenderContext& context, const JsonStyle& style)
      : context_(context), style_(style), out_(context.NewText()) {}

  absl::Status Write(const Value& value, int level);
  absl::StatusOr<Value> Finish() {
    if (!any_user_) return context_.Finish(std::move(out_));
    if (out_.overflowed()) return context_.Finish(std::move(out_));
    return context_.String(out_.TakeBytes(), /*user=*/true);
  }

 private:
  void WriteString(const Text& text);
  void BreakLine(int level) {
    if (!style_.indent.has_value()) return;
    out_.Append("\n");
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent);
  }
  absl::Status WriteList(const std::vector<Value>& items, int level);
  absl::Status WriteDict(const Dict& dict, int level);
  absl::Status WriteKey(const Value& key);

  RenderContext& context_;
  const JsonStyle& style_;
  TextBuilder out_;
  bool any_user_ = false;
};

void AppendJsonEscape(char32_t c, TextBuilder* out) {
  if (c > 0xFFFF) {
    const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
    out->Append(absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                                0xDC00 + (rest & 0x3FF)));
  } else {
    out->Append(absl::StrFormat("\\u%04x", static_cast<uint32_t>(c)));
  }
}

void JsonWriter::WriteString(const Text& text) {
  constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  if (text.any_user()) any_user_ = true;
  out_.Append("\"");
  const std::string_view bytes = text.bytes;
  size_t size = 0;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const char32_t c = CodePointAt(bytes, at, &size);
    const size_t known =
        c < 0x80 ? kPlain.find(static_cast<char>(c)) : kPlain.npos;
    if (known != kPlain.npos) {
      out_.Append("\\");
      out_.Append(kLetters.substr(known, 1));
    } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
      AppendJsonEscape(c, &out_);
    } else {
      out_.Append(bytes.substr(at, size));
    }
  }
  out_.Append("\"");
}

absl::Status JsonWriter::WriteKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      WriteString(key.text());
      return absl::OkStatus();
    case Kind::kInt:
    case Kind::kBool:
    case Kind::kFloat:
    case Kind::kNone:
      out_.Append("\"");
      NACRE_RETURN_IF_ERROR(Write(key, 0));
      out_.Append("\"");
      return absl::OkStatus();
    default:
      return TypeFault("keys must be str, int, float, bool or None, not ",
                       TypeName(key));
  }
}

absl::Status JsonWriter::WriteList(const std::vector<Value>& items, int level) {
  if (items.empty()) {
    out_.Append("[]");
    return absl::OkStatus();
  }
  out_.Append("[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_.Append(style_.item_separator);
    BreakLine(level + 1);
    NACRE_RETURN_IF_ERROR(Write(items[i], level + 1));
  }
  BreakLine(level);
  out_.Append("]");
  return absl::OkStatus();
}

absl::Status JsonWriter::WriteDict(const Dict& dict, int level) {
  if (dict.items.empty()) {
    out_.Append("{}");
    return absl::OkStatus();
  }
  std::vector<std::pair<Value, Value>> items = dict.items;
  if (style_.sort_keys) {
    NACRE_RETURN_IF_ERROR(SortPairs(context_, &items));
  }
  out_.Append("{");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_.Append(style_.item_separator);
    BreakLine(level + 1);
    NACRE_RETURN_IF_ERROR(WriteKey(items[i].first));
    out_.Append(style_.key_separator);
    NACRE_RETURN_IF_ERROR(Write(items[i].second, level + 1));
  }
  BreakLine(level);
  out_.Append("}");
  return absl::OkStatus();
}

absl::Status JsonWriter::Write(const Value& value, int level) {
  const Nested nested(context_);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context_.Charge(1));
  switch (value.kind()) {
    case Kind::kNone:
      out_.Append("null");
      return absl::OkStatus();
    case Kind::kBool:
      out_.Append(value.integer() != 0 ? "true" : "false");
      return absl::OkStatus();
    case Kind::kInt:
      out_.Append(Concat(value.integer()));
      return absl::OkStatus();
    case Kind::kFloat:
      out_.Append(std::isnan(value.real()) ? "NaN"
                  : std::isinf(value.real())
                      ? value.real() < 0 ? "-Infinity" : "Infinity"
                      : FloatText(value.real()));
      return absl::OkStatus();
    case Kind::kString:
      NACRE_RETURN_IF_ERROR(context_.Charge(
          static_cast<int64_t>(value.text().bytes.size()) / 16));
      WriteString(value.text());
      return absl::OkStatus();
    case Kind::kList:
    case Kind::kTuple:
      return WriteList(value.list().items, level);
    case Kind::kDict:
      return WriteDict(value.dict(), level);
    default:
      return TypeFault("Object of type ", TypeName(value),
                       " is not JSON serializable");
  }
}

}  // namespace

absl::StatusOr<Value> ToJson(RenderContext& context, const Value& value,
                             const JsonStyle& style) {
  JsonWriter writer(context, style);
  NACRE_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Finish();
}

}  // namespace nacre::chat
