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

struct ServedModel {
  // As the first one says, but for what each of them must have room for:
  // context_length and kv_capacity_tokens are the least that one has. 0 where
  // none tells.
  v1::Model model;
  // What they call it, each name once.
  std::vector<std::string> names;
};

// `said`: by each coordinator, in the order in which they are configured;
// nothing where it did not answer. Nothing where none did.
std::optional<ServedModel> ServedTogether(
    const std::vector<std::optional<v1::Model>>& said);

}  // namespace nacre::gateway

#endif  // GATEWAY_SERVED_MODEL_H_
