#include "chat/environment.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "common/quoted.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr std::string_view kGlobals[] = {"dict", "namespace", "raise_exception",
                                         "range", "strftime_now"};
// jinja2's MAX_RANGE.
constexpr int64_t kMaxRange = 100'000;
constexpr size_t kMaxTimeFormat = 256;

absl::StatusOr<Value> CallRange(RenderContext& context,
                                const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return TypeFault("range() takes no keyword arguments");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("range", arguments,
                                                 {"start", "stop", "step"}, 1));
  int64_t bounds[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    if (!bound[i].has_value()) continue;
    NACRE_ASSIGN_OR_RETURN(bounds[i], Index(*bound[i], "range()"));
  }
  if (!bound[1].has_value()) std::swap(bounds[0], bounds[1]);
  const auto [start, stop, step] = bounds;
  if (step == 0) return ValueFault("range() arg 3 must not be zero");
  Range* range = context.New<Range>();
  range->start = start;
  range->stop = stop;
  range->step = step;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (range->items.size() == kMaxRange) {
      return ValueFault("Range too big. The sandbox blocks ranges larger than ",
                        kMaxRange);
    }
    range->items.push_back(Value(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(range->items.size()) / 4));
  return Value(Kind::kRange, range);
}

// dict(mapping or pairs, name=value, ...).
absl::Status FillDict(RenderContext& context, std::string_view function,
                      const Arguments& arguments, Dict* dict) {
  if (arguments.positional.size() > 1) {
    return TypeFault(function, " expected at most 1 argument, got ",
                     arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (first.is(Kind::kDict)) {
      dict->items = first.dict().items;
      dict->index = first.dict().index;
    } else {
      NACRE_ASSIGN_OR_RETURN(const std::vector<Value> pairs,
                             Items(context, first));
      for (const Value& pair : pairs) {
        NACRE_ASSIGN_OR_RETURN(const std::vector<Value> parts,
                               Items(context, pair));
        if (parts.size() != 2) {
          return ValueFault("dictionary update sequence element has length ",
                            parts.size(), "; 2 is required");
        }
        NACRE_ASSIGN_OR_RETURN(const std::string key, DictKey(parts[0]));
        dict->Set(key, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    NACRE_ASSIGN_OR_RETURN(const Value key, context.String(name));
    dict->Set(DictKeyOfName(name), key, value);
  }
  return context.Charge(static_cast<int64_t>(dict->items.size()));
}

absl::StatusOr<Value> CallNamespace(RenderContext& context,
                                    const Arguments& arguments) {
  Namespace* space = context.New<Namespace>();
  NACRE_RETURN_IF_ERROR(
      FillDict(context, "namespace", arguments, &space->attributes));
  for (const auto& [name, value] : space->attributes.items) {
    if (name.is(Kind::kString) && name.text().bytes.starts_with('_')) {
      return SecurityFault("a namespace cannot have the attribute ",
                           Quoted(name.text().bytes));
    }
  }
  return Value(space);
}

// What the template says is the whole message: the gateway shows it.
absl::StatusOr<Value> RaiseException(RenderContext& context,
                                     const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("raise_exception", arguments, {"message"}, 1));
  NACRE_ASSIGN_OR_RETURN(const Value message, Str(context, *bound[0]));
  return absl::InvalidArgumentError(
      Concat("the template refuses: ", message.text().bytes));
}

absl::StatusOr<Value> StrftimeNow(RenderContext& context,
                                  const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("strftime_now", arguments, {"format"}, 1));
  if (!bound[0]->is(Kind::kString)) {
    return TypeFault("strftime_now() takes a str, not ", TypeName(*bound[0]));
  }
  std::string format = bound[0]->text().bytes;
  if (format.size() > kMaxTimeFormat) {
    return Unsupported("strftime_now() with a format over ", kMaxTimeFormat,
                       " bytes");
  }
  const int64_t micros = absl::ToUnixMicros(context.now()) % 1'000'000;
  // A time without a zone, as datetime.now() is.
  format = absl::StrReplaceAll(
      format,
      {{"%%", "%%"},
       {"%f", absl::StrFormat("%06d", (micros + 1'000'000) % 1'000'000)},
       {"%z", ""},
       {"%Z", ""}});
  const std::tm now = absl::ToTM(context.now(), context.time_zone());
  // An empty result is no error: the mark tells them apart.
  format += "|";
  std::string text(8 * kMaxTimeFormat, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  if (text.empty()) return ValueFault("strftime_now() makes too long a text");
  text.pop_back();
  return context.String(text);
}

}  // namespace

bool IsGlobal(std::string_view name) {
  return std::find(std::begin(kGlobals), std::end(kGlobals), name) !=
         std::end(kGlobals);
}

absl::StatusOr<Value> CallGlobal(RenderContext& context, std::string_view name,
                                 const Arguments& arguments) {
  if (name == "range") return CallRange(context, arguments);
  if (name == "namespace") return CallNamespace(context, arguments);
  if (name == "raise_exception") return RaiseException(context, arguments);
  if (name == "strftime_now") return StrftimeNow(context, arguments);
  Dict* dict = context.New<Dict>();
  NACRE_RETURN_IF_ERROR(FillDict(context, "dict", arguments, dict));
  return Value(static_cast<const Dict*>(dict));
}

}  // namespace nacre::chat
