// The filters by name, in three groups.

#ifndef CHAT_FILTER_TABLE_H_
#define CHAT_FILTER_TABLE_H_

#include <cstddef>
#include <limits>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

struct FilterEntry {
  std::string_view name;
  absl::StatusOr<Value> (*apply)(RenderContext& context, const Value& value,
                                 const Arguments& arguments);
  // Gives an iterator: errors show when it is read, as in Python.
  bool lazy = false;
  // Of a lazy one: so many arguments are wrong at once.
  size_t fewest_arguments = 0;
  size_t most_arguments = std::numeric_limits<size_t>::max();
};

absl::Span<const FilterEntry> TextFilters();
absl::Span<const FilterEntry> SequenceFilters();
// map, select and the like, and what reads attributes of items.
absl::Span<const FilterEntry> ItemFilters();

}  // namespace nacre::chat

#endif  // CHAT_FILTER_TABLE_H_
