#include "chat/methods.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "chat/errors.h"
#include "chat/operators.h"
#include "chat/string_methods.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

absl::StatusOr<Value> DictMethod(RenderContext& context, const Value& self,
                                 std::string_view name,
                                 const Arguments& arguments) {
  const Dict& dict = self.dict();
  if (name == "get") {
    if (!arguments.named.empty()) {
      return TypeFault("dict.get() takes no keyword arguments");
    }
    NACRE_ASSIGN_OR_RETURN(const Bound bound,
                           Bind("get", arguments, {"key", "default"}, 1));
    NACRE_ASSIGN_OR_RETURN(const std::string key, DictKey(*bound[0]));
    const Value* item = dict.Find(key);
    return item != nullptr ? *item : bound[1].value_or(Value());
  }
  NACRE_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  if (name == "copy") {
    NACRE_RETURN_IF_ERROR(
        context.Charge(static_cast<int64_t>(dict.items.size())));
    Dict* copy = context.New<Dict>();
    copy->items = dict.items;
    copy->index = dict.index;
    return Value(static_cast<const Dict*>(copy));
  }
  View* view = context.New<View>();
  view->dict = &dict;
  view->what = name == "keys"     ? View::What::kKeys
               : name == "values" ? View::What::kValues
                                  : View::What::kItems;
  return Value(static_cast<const View*>(view));
}

absl::StatusOr<Value> ListMethod(RenderContext& context, const Value& self,
                                 std::string_view name,
                                 const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return TypeFault(TypeName(self), ".", name,
                     "() takes no keyword arguments");
  }
  const std::vector<Value>& items = self.list().items;
  if (name == "copy") {
    NACRE_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
    return context.NewList(self.kind(), items);
  }
  if (name == "index" && arguments.positional.size() > 1) {
    return Unsupported("index() with bounds is not supported");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind(name, arguments, {"value"}, 1));
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(const bool equal,
                           Equal(context, items[i], *bound[0]));
    if (!equal) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return ValueFault("the value is not in the list");
  return Value(count);
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return HasStringMethod(name);
    case Kind::kDict:
      return name == "get" || name == "keys" || name == "values" ||
             name == "items" || name == "copy";
    case Kind::kList:
      return name == "count" || name == "index" || name == "copy";
    case Kind::kTuple:
    case Kind::kRange:
      return name == "count" || name == "index";
    default:
      return false;
  }
}

absl::StatusOr<Value> CallMethod(RenderContext& context, const Value& self,
                                 std::string_view name,
                                 const Arguments& arguments) {
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  if (self.is(Kind::kString)) {
    return CallStringMethod(context, self, name, arguments);
  }
  if (self.is(Kind::kDict)) {
    return DictMethod(context, self, name, arguments);
  }
  return ListMethod(context, self, name, arguments);
}

}  // namespace nacre::chat
