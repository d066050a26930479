// What several coordinators serve together, so that names and sizes do not
// depend on the one that answered last.
//
// Pure functions.

#ifndef GATEWAY_SERVED_MODEL_H_
#define GATEWAY_SERVED_MODEL_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace nacre::gateway {

// What one coordinator says it serves.
struct Said {
  // Its last answer that was one; nothing: it never gave one.
  std::optional<v1::Model> model;
  bool is_away = false;  // it did not answer the last question
};

struct ServedModel {
  // As the first one says, but for what each of them must have room for:
  // context_length and kv_capacity_tokens are the least that one has. 0 where
  // none tells.
  v1::Model model;
  // What they call it, each name once.
  std::vector<std::string> names;
  // What only those that are away called it, each name once: it is no unknown
  // name, but none to be had now.
  std::vector<std::string> away_names;
};

// `said`: by each coordinator, in the order in which they are configured.
// Nothing where none answers now.
std::optional<ServedModel> ServedTogether(const std::vector<Said>& said);

}  // namespace nacre::gateway

#endif  // GATEWAY_SERVED_MODEL_H_
