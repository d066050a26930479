// Python's operators on values: arithmetic, comparison, `in`, items and slices.
//
// Pure functions but for what they make in and charge to the context.

#ifndef CHAT_OPERATORS_H_
#define CHAT_OPERATORS_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/ast.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

// The operator as messages of Python show it.
std::string_view SymbolOf(Operator op);

// +, -, *, /, //, % and **. TypeError, ValueError (also a division by zero), or
// UNIMPLEMENTED: an integer leaves 64 bits, or a text marked as safe.
absl::StatusOr<Value> Arithmetic(RenderContext& context, Operator op,
                                 const Value& left, const Value& right);
// + or - of one value.
absl::StatusOr<Value> Sign(Operator op, const Value& value);

absl::StatusOr<bool> Equal(RenderContext& context, const Value& left,
                           const Value& right);
// <, <=, > or >=; any of ==, !=, in and not in too.
absl::StatusOr<bool> Compare(RenderContext& context, Operator op,
                             const Value& left, const Value& right);
// item in container.
absl::StatusOr<bool> Contains(RenderContext& context, const Value& container,
                              const Value& item);

// len(). TypeError: the value has none.
absl::StatusOr<int64_t> Length(const Value& value);
// All that a loop over the value gives. An iterator is used up.
absl::StatusOr<std::vector<Value>> Items(RenderContext& context,
                                         const Value& value);

// value[index], and nothing else. `found` is false where Python raises a
// TypeError or LookupError.
absl::StatusOr<Value> Subscript(RenderContext& context, const Value& value,
                                const Value& index, bool* found);
// value[begin:end:step]; none: not given.
absl::StatusOr<Value> SliceOf(RenderContext& context, const Value& value,
                              const Value& begin, const Value& end,
                              const Value& step);

// Sorts stably by keys[i], in Python's order. `order` gets the indices.
absl::Status SortIndices(RenderContext& context, const std::vector<Value>& keys,
                         bool reverse, std::vector<size_t>* order);
// Sorts the pairs of a dict by their keys.
absl::Status SortPairs(RenderContext& context,
                       std::vector<std::pair<Value, Value>>* pairs);

// An integer for an argument called `what`. TypeError: it is none.
absl::StatusOr<int64_t> Index(const Value& value, std::string_view what);

}  // namespace nacre::chat

#endif  // CHAT_OPERATORS_H_
