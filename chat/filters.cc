#include "chat/filters.h"

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/filter_table.h"
#include "common/quoted.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

const FilterEntry* FindFilter(std::string_view name) {
  for (const auto entries : {TextFilters(), SequenceFilters(), ItemFilters()}) {
    for (const FilterEntry& entry : entries) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> CallFilter(RenderContext& context, std::string_view name,
                                 const Value& value,
                                 const Arguments& arguments) {
  // `map` calls filters, so they nest.
  const Nested nested(context);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) {
    return Unsupported("the filter ", Quoted(AbslView(name)),
                       " is not supported");
  }
  auto result = filter->apply(context, value, arguments);
  const size_t count = arguments.positional.size() + arguments.named.size();
  if (filter->lazy && filter->fewest_arguments <= count &&
      count <= filter->most_arguments &&
      absl::IsInvalidArgument(result.status())) {
    Iterator* iterator = context.New<Iterator>();
    iterator->error = result.status();
    return Value(iterator);
  }
  return result;
}

}  // namespace nacre::chat
