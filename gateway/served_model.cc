#include "gateway/served_model.h"

#include <algorithm>

namespace nacre::gateway {
namespace {

// 0: not known.
template <typename Size>
Size LesserOf(Size a, Size b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

bool HasName(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What one more coordinator adds that answers.
void Join(const v1::Model& one, ServedModel* served) {
  v1::Model& all = served->model;
  all.set_context_length(LesserOf(all.context_length(), one.context_length()));
  all.set_kv_capacity_tokens(
      LesserOf(all.kv_capacity_tokens(), one.kv_capacity_tokens()));
  if (!HasName(served->names, one.name())) served->names.push_back(one.name());
}

}  // namespace

std::optional<ServedModel> ServedTogether(const std::vector<Said>& said) {
  std::optional<ServedModel> served;
  for (const Said& one : said) {
    if (!one.model.has_value() || one.is_away) continue;
    if (!served.has_value()) served = ServedModel{*one.model, {}, {}};
    Join(*one.model, &*served);
  }
  if (!served.has_value()) return std::nullopt;
  for (const Said& one : said) {
    if (!one.model.has_value() || !one.is_away) continue;
    const std::string& name = one.model->name();
    if (HasName(served->names, name) || HasName(served->away_names, name)) {
      continue;
    }
    served->away_names.push_back(name);
  }
  return served;
}

}  // namespace nacre::gateway
