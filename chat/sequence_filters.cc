// Filters over lists, dicts and what stands in for them.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "chat/errors.h"
#include "chat/filter_table.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/string_methods.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

using ValueOr = absl::StatusOr<Value>;

ValueOr DefaultFilter(RenderContext& context, const Value& value,
                      const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound, Bind("default", arguments,
                                                 {"default_value", "boolean"}));
  const bool boolean = bound[1].has_value() && Truth(*bound[1]);
  if (!value.is_undefined() && !(boolean && !Truth(value))) return value;
  if (bound[0].has_value()) return *bound[0];
  return context.String("");
}

ValueOr LengthFilter(RenderContext&, const Value& value,
                     const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("length", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(const int64_t length, Length(value));
  return Value(length);
}

ValueOr ListFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("list", arguments, {}).status());
  NACRE_ASSIGN_OR_RETURN(std::vector<Value> items, Items(context, value));
  return context.NewList(Kind::kList, std::move(items));
}

ValueOr FirstFilter(RenderContext& context, const Value& value,
                    const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("first", arguments, {}).status());
  if (value.is(Kind::kIterator)) {
    Iterator& iterator = value.iterator();
    if (iterator.next < iterator.items.size()) {
      return iterator.items[iterator.next++];
    }
    NACRE_RETURN_IF_ERROR(iterator.error);
    return context.NewUndefined("No first item, sequence was empty.");
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  if (!items.empty()) return items[0];
  return context.NewUndefined("No first item, sequence was empty.");
}

// What Python's reversed() takes.
absl::Status CheckReversible(const Value& value) {
  if (value.is_list_like() || value.is(Kind::kString) ||
      value.is(Kind::kDict) || value.is(Kind::kView)) {
    return absl::OkStatus();
  }
  // It has a length and items.
  if (value.is_undefined()) return absl::OkStatus();
  return TypeFault("'", TypeName(value), "' object is not reversible");
}

ValueOr LastFilter(RenderContext& context, const Value& value,
                   const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("last", arguments, {}).status());
  NACRE_RETURN_IF_ERROR(CheckReversible(value));
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  if (!items.empty()) return items.back();
  return context.NewUndefined("No last item, sequence was empty.");
}

Value NewIterator(RenderContext& context, std::vector<Value> items) {
  Iterator* iterator = context.New<Iterator>();
  iterator->items = std::move(items);
  return Value(iterator);
}

ValueOr ReverseFilter(RenderContext& context, const Value& value,
                      const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("reverse", arguments, {}).status());
  if (value.is(Kind::kString)) {
    return SliceOf(context, value, Value(), Value(), Value(int64_t{-1}));
  }
  auto listed = Items(context, value);
  if (!listed.ok() &&
      absl::StartsWith(listed.status().message(), "TypeError")) {
    return ValueFault("argument must be iterable");
  }
  NACRE_ASSIGN_OR_RETURN(std::vector<Value> items, std::move(listed));
  std::reverse(items.begin(), items.end());
  // reversed() of what it takes, else a list.
  if (value.is(Kind::kIterator)) {
    return context.NewList(Kind::kList, std::move(items));
  }
  return NewIterator(context, std::move(items));
}

ValueOr ItemsFilter(RenderContext& context, const Value& value,
                    const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(Bind("items", arguments, {}).status());
  if (value.is_undefined()) return NewIterator(context, {});
  if (!value.is(Kind::kDict)) {
    return TypeFault("Can only get item pairs from a mapping.");
  }
  View view;
  view.dict = &value.dict();
  view.what = View::What::kItems;
  NACRE_ASSIGN_OR_RETURN(
      std::vector<Value> items,
      Items(context, Value(static_cast<const View*>(&view))));
  return NewIterator(context, std::move(items));
}

// The key by which dictsort sorts: strings without case.
ValueOr FoldCase(RenderContext& context, const Value& value,
                 bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::kString)) return value;
  return WithCase(context, value.text(), CaseForm::kLower);
}

ValueOr DictSortFilter(RenderContext& context, const Value& value,
                       const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  const bool case_sensitive = bound[0].has_value() && Truth(*bound[0]);
  NACRE_ASSIGN_OR_RETURN(const int64_t reverse,
                         Index(bound[2].value_or(Value(false)), "reverse"));
  bool by_value = false;
  if (bound[1].has_value()) {
    by_value = bound[1]->is(Kind::kString) && bound[1]->text().bytes == "value";
    if (!by_value &&
        !(bound[1]->is(Kind::kString) && bound[1]->text().bytes == "key")) {
      return ValueFault("You can only sort by either \"key\" or \"value\"");
    }
  }
  if (value.is_undefined()) return UndefinedUse(value);
  if (!value.is(Kind::kDict)) {
    return TypeFault("dictsort takes a dict, not ", TypeName(value));
  }
  std::vector<Value> keys;
  for (const auto& [key, item] : value.dict().items) {
    NACRE_ASSIGN_OR_RETURN(
        const Value folded,
        FoldCase(context, by_value ? item : key, case_sensitive));
    keys.push_back(folded);
  }
  std::vector<size_t> order;
  NACRE_RETURN_IF_ERROR(SortIndices(context, keys, reverse != 0, &order));
  std::vector<Value> pairs;
  for (const size_t i : order) {
    const auto& [key, item] = value.dict().items[i];
    NACRE_ASSIGN_OR_RETURN(const Value pair,
                           context.NewList(Kind::kTuple, {key, item}));
    pairs.push_back(pair);
  }
  return context.NewList(Kind::kList, std::move(pairs));
}

ValueOr BatchFilter(RenderContext& context, const Value& value,
                    const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  NACRE_ASSIGN_OR_RETURN(const int64_t size, Index(*bound[0], "linecount"));
  if (size < 1) return Unsupported("batch of fewer than one item");
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size();) {
    const size_t end = std::min(items.size(), at + static_cast<size_t>(size));
    std::vector<Value> batch(items.begin() + at, items.begin() + end);
    if (bound[1].has_value() && !bound[1]->is_none()) {
      NACRE_RETURN_IF_ERROR(
          context.Charge(size - static_cast<int64_t>(batch.size())));
      batch.resize(size, *bound[1]);
    }
    NACRE_ASSIGN_OR_RETURN(const Value list,
                           context.NewList(Kind::kList, std::move(batch)));
    batches.push_back(list);
    at = end;
  }
  return NewIterator(context, std::move(batches));
}

ValueOr SliceFilter(RenderContext& context, const Value& value,
                    const Arguments& arguments) {
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("slice", arguments, {"slices", "fill_with"}, 1));
  NACRE_ASSIGN_OR_RETURN(const int64_t slices, Index(*bound[0], "slices"));
  if (slices < 1) return Unsupported("slice into fewer than one");
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  NACRE_RETURN_IF_ERROR(context.Charge(slices));
  const int64_t size = static_cast<int64_t>(items.size());
  std::vector<Value> lists;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool extra = i < size % slices;
    const int64_t end = at + size / slices + (extra ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + end);
    if (bound[1].has_value() && !bound[1]->is_none() && !extra) {
      part.push_back(*bound[1]);
    }
    NACRE_ASSIGN_OR_RETURN(const Value list,
                           context.NewList(Kind::kList, std::move(part)));
    lists.push_back(list);
    at = end;
  }
  return NewIterator(context, std::move(lists));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"batch", BatchFilter, /*lazy=*/true, 1, 2},
    {"count", LengthFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"dictsort", DictSortFilter},
    {"first", FirstFilter},
    {"items", ItemsFilter, /*lazy=*/true, 0, 0},
    {"last", LastFilter},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"reverse", ReverseFilter},
    {"slice", SliceFilter, /*lazy=*/true, 1, 2},
};

}  // namespace

absl::Span<const FilterEntry> SequenceFilters() { return kSequenceFilters; }

}  // namespace nacre::chat
