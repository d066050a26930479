// Filters that look into each item: by an attribute, a test or another filter.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "chat/attributes.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/filter_table.h"
#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/predicates.h"
#include "chat/python_text.h"
#include "chat/string_methods.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

using ValueOr = absl::StatusOr<Value>;

std::vector<std::string> SplitText(const Text& text, char separator) {
  return absl::StrSplit(text.bytes, separator);
}

// "a.b.0": the items to follow, one after the other.
class ItemPath {
 public:
  static absl::StatusOr<ItemPath> Parse(RenderContext& context,
                                        const Value& attribute) {
    ItemPath path;
    if (attribute.is_none()) return path;
    if (!attribute.is(Kind::kString)) {
      path.parts_.push_back(attribute);
      return path;
    }
    for (const std::string& part : SplitText(attribute.text(), '.')) {
      int64_t index = 0;
      const bool digits =
          !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
            return absl::ascii_isdigit(static_cast<unsigned char>(c));
          });
      if (digits && absl::SimpleAtoi(part, &index)) {
        path.parts_.push_back(Value(index));
        continue;
      }
      NACRE_ASSIGN_OR_RETURN(const Value name, context.String(part));
      path.parts_.push_back(name);
    }
    return path;
  }

  ValueOr Follow(RenderContext& context, Value value,
                 const Value& fallback = Value()) const {
    for (const Value& part : parts_) {
      NACRE_ASSIGN_OR_RETURN(value, GetItem(context, value, part));
      if (!fallback.is_none() && value.is_undefined()) value = fallback;
    }
    return value;
  }

 private:
  std::vector<Value> parts_;
};

ValueOr IgnoreCase(RenderContext& context, const Value& value) {
  if (!value.is(Kind::kString)) return value;
  return WithCase(context, value.text(), CaseForm::kLower);
}

// The value of `attribute` of each item, in lower case unless case matters.
absl::StatusOr<std::vector<Value>> SortKeys(RenderContext& context,
                                            const std::vector<Value>& items,
                                            const Value& attribute,
                                            bool case_sensitive) {
  NACRE_ASSIGN_OR_RETURN(const ItemPath path,
                         ItemPath::Parse(context, attribute));
  std::vector<Value> keys;
  for (const Value& item : items) {
    NACRE_RETURN_IF_ERROR(context.Charge(1));
    NACRE_ASSIGN_OR_RETURN(Value key, path.Follow(context, item));
    if (!case_sensitive) {
      NACRE_ASSIGN_OR_RETURN(key, IgnoreCase(context, key));
    }
    keys.push_back(key);
  }
  return keys;
}

// `error` comes after the items.
Value IteratorOf(RenderContext& context, std::vector<Value> items,
                 absl::Status error = absl::OkStatus()) {
  Iterator* iterator = context.New<Iterator>();
  iterator->error = std::move(error);
  iterator->items = std::move(items);
  return Value(iterator);
}

ValueOr JoinFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("join", arguments, {"d", "attribute"}));
  NACRE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(context, value));
  if (bound[1].has_value() && !bound[1]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(items, SortKeys(context, items, *bound[1], true));
  }
  for (Value& item : items) {
    NACRE_ASSIGN_OR_RETURN(item, Str(context, item));
  }
  NACRE_ASSIGN_OR_RETURN(const Value nothing, context.String(""));
  NACRE_ASSIGN_OR_RETURN(const Value separator,
                         Str(context, bound[0].value_or(nothing)));
  return JoinTexts(context, separator.text(), items);
}

ValueOr SortFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  NACRE_ASSIGN_OR_RETURN(const int64_t reverse,
                         Index(bound[0].value_or(Value(false)), "reverse"));
  const bool case_sensitive = bound[1].has_value() && Truth(*bound[1]);
  const Value attribute = bound[2].value_or(Value());
  std::vector<Value> attributes = {attribute};
  if (attribute.is(Kind::kString)) {
    attributes.clear();
    for (const std::string& part : SplitText(attribute.text(), ',')) {
      NACRE_ASSIGN_OR_RETURN(const Value name, context.String(part));
      attributes.push_back(name);
    }
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  std::vector<std::vector<Value>> columns;
  for (const Value& column : attributes) {
    NACRE_ASSIGN_OR_RETURN(std::vector<Value> keys,
                           SortKeys(context, items, column, case_sensitive));
    columns.push_back(std::move(keys));
  }
  std::vector<Value> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<Value> parts;
    parts.reserve(columns.size());
    for (const std::vector<Value>& column : columns) {
      parts.push_back(column[i]);
    }
    NACRE_ASSIGN_OR_RETURN(const Value key,
                           context.NewList(Kind::kList, std::move(parts)));
    keys.push_back(key);
  }
  std::vector<size_t> order;
  NACRE_RETURN_IF_ERROR(SortIndices(context, keys, reverse != 0, &order));
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  return context.NewList(Kind::kList, std::move(sorted));
}

struct KeyedItems {
  std::vector<Value> items, keys;
};

// What `filter` compares, and by which keys.
absl::StatusOr<KeyedItems> ItemsByKey(RenderContext& context,
                                      const char* filter, const Value& value,
                                      const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind(filter, arguments, {"case_sensitive", "attribute"}));
  KeyedItems keyed;
  NACRE_ASSIGN_OR_RETURN(keyed.items, Items(context, value));
  NACRE_ASSIGN_OR_RETURN(
      keyed.keys, SortKeys(context, keyed.items, bound[1].value_or(Value()),
                           bound[0].has_value() && Truth(*bound[0])));
  return keyed;
}

ValueOr UniqueFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const KeyedItems keyed,
                         ItemsByKey(context, "unique", value, arguments));
  const auto& [items, keys] = keyed;
  std::set<std::string> seen;
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(std::string key, DictKey(keys[i]));
    if (seen.insert(std::move(key)).second) kept.push_back(items[i]);
  }
  return IteratorOf(context, std::move(kept));
}

template <bool kMax>
ValueOr ExtremeFilter(RenderContext& context, const Value& value,
                      const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(
      const KeyedItems keyed,
      ItemsByKey(context, kMax ? "max" : "min", value, arguments));
  const auto& [items, keys] = keyed;
  if (items.empty()) {
    return context.NewUndefined("No aggregated item, sequence was empty.");
  }
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(
        const bool better,
        Compare(context, kMax ? Operator::kGreater : Operator::kLess, keys[i],
                keys[best]));
    if (better) best = i;
  }
  return items[best];
}

ValueOr SumFilter(RenderContext& context, const Value& value,
                  const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("sum", arguments, {"attribute", "start"}));
  NACRE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(context, value));
  if (bound[0].has_value() && !bound[0]->is_none()) {
    NACRE_ASSIGN_OR_RETURN(items, SortKeys(context, items, *bound[0], true));
  }
  Value sum = bound[1].value_or(Value(int64_t{0}));
  if (sum.is(Kind::kString)) return TypeFault("sum() can't sum strings");
  for (const Value& item : items) {
    NACRE_ASSIGN_OR_RETURN(sum, Arithmetic(context, Operator::kAdd, sum, item));
  }
  return sum;
}

ValueOr AttrFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("attr", arguments, {"name"}, 1));
  if (!bound[0]->is(Kind::kString)) {
    return TypeFault("attribute name must be string, not ",
                     TypeName(*bound[0]));
  }
  const std::string& name = bound[0]->text().bytes;
  bool found = false;
  NACRE_ASSIGN_OR_RETURN(const Value attribute,
                         TypeAttribute(context, value, name, &found));
  if (found) return attribute;
  return context.NewUndefined(
      Concat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

// An error of Python's shows after the items before it.
ValueOr MapItems(RenderContext& context, const std::vector<Value>& items,
                 absl::FunctionRef<ValueOr(const Value&)> map) {
  std::vector<Value> mapped;
  for (const Value& item : items) {
    NACRE_RETURN_IF_ERROR(context.Charge(1));
    auto value = map(item);
    if (absl::IsInvalidArgument(value.status())) {
      return IteratorOf(context, std::move(mapped), value.status());
    }
    NACRE_ASSIGN_OR_RETURN(const Value known, std::move(value));
    mapped.push_back(known);
  }
  return IteratorOf(context, std::move(mapped));
}

ValueOr MapFilter(RenderContext& context, const Value& value,
                  const Arguments& arguments) {
  if (!Truth(value)) return IteratorOf(context, {});
  Arguments rest = arguments;
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  if (rest.positional.empty()) {
    const std::optional<Value> attribute = rest.TakeNamed("attribute");
    const Value fallback = rest.TakeNamed("default").value_or(Value());
    if (!attribute.has_value()) {
      return ValueFault("map requires a filter argument");
    }
    if (!rest.named.empty()) {
      return ValueFault("Unexpected keyword argument '", rest.named[0].first,
                        "'");
    }
    NACRE_ASSIGN_OR_RETURN(const ItemPath path,
                           ItemPath::Parse(context, *attribute));
    return MapItems(context, items, [&](const Value& item) {
      return path.Follow(context, item, fallback);
    });
  }
  const Value name = rest.positional[0];
  rest.positional.erase(rest.positional.begin());
  if (!name.is(Kind::kString)) {
    return TypeFault("the name of a filter is a str, not ", TypeName(name));
  }
  return MapItems(context, items, [&](const Value& item) {
    return CallFilter(context, name.text().bytes, item, rest);
  });
}

// select, reject and their forms for an attribute.
template <bool kWanted, bool kByAttribute>
ValueOr SelectFilter(RenderContext& context, const Value& value,
                     const Arguments& arguments) {
  if (!Truth(value)) return IteratorOf(context, {});
  Arguments rest = arguments;
  const auto take = [&rest] {
    const Value first = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  ItemPath path;
  if (kByAttribute) {
    if (rest.positional.empty()) {
      return ValueFault("Missing parameter for attribute name");
    }
    NACRE_ASSIGN_OR_RETURN(path, ItemPath::Parse(context, take()));
  }
  const Value test = rest.positional.empty() ? Value() : take();
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  const auto holds = [&](const Value& item) -> absl::StatusOr<bool> {
    NACRE_ASSIGN_OR_RETURN(const Value subject, path.Follow(context, item));
    if (test.is(Kind::kString)) {
      return CallTest(context, test.text().bytes, subject, rest);
    }
    if (test.is_none()) return Truth(subject);
    return TypeFault("the name of a test is a str, not ", TypeName(test));
  };
  std::vector<Value> kept;
  for (const Value& item : items) {
    NACRE_RETURN_IF_ERROR(context.Charge(1));
    const auto held = holds(item);
    if (absl::IsInvalidArgument(held.status())) {
      return IteratorOf(context, std::move(kept), held.status());
    }
    NACRE_RETURN_IF_ERROR(held.status());
    if (*held == kWanted) kept.push_back(item);
  }
  return IteratorOf(context, std::move(kept));
}

constexpr FilterEntry kItemFilters[] = {
    {"attr", AttrFilter},
    {"join", JoinFilter},
    {"map", MapFilter, /*lazy=*/true},
    {"max", ExtremeFilter<true>},
    {"min", ExtremeFilter<false>},
    {"reject", SelectFilter<false, false>, /*lazy=*/true},
    {"rejectattr", SelectFilter<false, true>, /*lazy=*/true},
    {"select", SelectFilter<true, false>, /*lazy=*/true},
    {"selectattr", SelectFilter<true, true>, /*lazy=*/true},
    {"sort", SortFilter},
    {"sum", SumFilter},
    {"unique", UniqueFilter, /*lazy=*/true, 0, 2},
};

}  // namespace

absl::Span<const FilterEntry> ItemFilters() { return kItemFilters; }

}  // namespace nacre::chat
