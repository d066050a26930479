#include "chat/format_text.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/python_text.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr int kMaxPrecision = 100;

// "%" and what follows, at `*at`; `*at` moves to the directive's letter.
absl::StatusOr<int> ReadPrecision(std::string_view format, size_t* at) {
  int precision = -1;
  if (*at < format.size() && format[*at] == '.') {
    precision = 0;
    for (++*at; *at < format.size() && absl::ascii_isdigit(format[*at]);
         ++*at) {
      precision = precision * 10 + (format[*at] - '0');
      if (precision > kMaxPrecision) {
        return Unsupported("a precision over ", kMaxPrecision);
      }
    }
  }
  return precision;
}

absl::Status AppendNumber(char letter, int precision, const Value& value,
                          TextBuilder* out) {
  if (value.is_undefined()) return UndefinedUse(value);
  if (!value.is_number()) {
    return TypeFault("%", std::string(1, letter),
                     " format: a real number is required, not ",
                     TypeName(value));
  }
  if (letter == 'f') {
    const double real = value.real();
    out->Append(
        std::isfinite(real)
            ? absl::StrFormat("%.*f", precision < 0 ? 6 : precision, real)
            : FloatText(real));
    return absl::OkStatus();
  }
  if (precision >= 0) return Unsupported("a precision of %d");
  const double real = value.real();
  if (value.is(Kind::kFloat) && !(std::abs(real) < 0x1p63)) {
    return ValueFault("cannot convert this float to an integer");
  }
  out->Append(Concat(value.is_integer() ? value.integer()
                                        : static_cast<int64_t>(real)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> PercentFormat(RenderContext& context, const Text& format,
                                    const Value& values) {
  if (format.safe) return Unsupported("'%' of a text marked as safe");
  const bool is_tuple = values.is(Kind::kTuple);
  const std::vector<Value> arguments =
      is_tuple ? values.list().items : std::vector<Value>{values};
  size_t used = 0;
  TextBuilder out = context.NewText();
  const std::string_view bytes = format.bytes;
  for (size_t at = 0; at < bytes.size(); ++at) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.Append(format, at, percent);
    at = percent;
    if (at == bytes.size()) break;
    ++at;
    NACRE_ASSIGN_OR_RETURN(const int precision, ReadPrecision(bytes, &at));
    if (at == bytes.size()) return ValueFault("incomplete format");
    const char letter = bytes[at];
    if (letter == '%') {
      out.Append("%");
      continue;
    }
    if (std::string_view("sdif").find(letter) == std::string_view::npos ||
        (letter == 's' && precision >= 0)) {
      return Unsupported("the directive '%", std::string(1, letter),
                         "' is not supported");
    }
    if (used == arguments.size()) {
      return TypeFault("not enough arguments for format string");
    }
    const Value& value = arguments[used++];
    if (letter == 's') {
      NACRE_RETURN_IF_ERROR(AppendStr(context, value, &out));
    } else {
      NACRE_RETURN_IF_ERROR(AppendNumber(letter, precision, value, &out));
    }
  }
  // What has items by key or index may have more than the format takes.
  const bool has_items = values.is(Kind::kDict) || values.is(Kind::kList) ||
                         values.is(Kind::kRange) || values.is_undefined();
  if (used < arguments.size() && !has_items) {
    return TypeFault("not all arguments converted during string formatting");
  }
  return context.Finish(std::move(out));
}

}  // namespace nacre::chat
