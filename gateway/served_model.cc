#include "gateway/served_model.h"

#include <algorithm>

namespace nacre::gateway {
namespace {

// 0: not known.
template <typename Size>
Size LesserOf(Size a, Size b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

}  // namespace

std::optional<ServedModel> ServedTogether(
    const std::vector<std::optional<v1::Model>>& said) {
  std::optional<ServedModel> served;
  for (const std::optional<v1::Model>& one : said) {
    if (!one.has_value()) continue;
    if (!served.has_value()) served = ServedModel{*one, {}};
    v1::Model& all = served->model;
    all.set_context_length(
        LesserOf(all.context_length(), one->context_length()));
    all.set_kv_capacity_tokens(
        LesserOf(all.kv_capacity_tokens(), one->kv_capacity_tokens()));
    std::vector<std::string>& names = served->names;
    if (std::find(names.begin(), names.end(), one->name()) == names.end()) {
      names.push_back(one->name());
    }
  }
  return served;
}

}  // namespace nacre::gateway
