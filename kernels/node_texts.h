// What the nodes of a model tell each other before they compute: a text of
// each, which all get. So they decide alike.
//
// The thread that sends and receives over the link.

#ifndef KERNELS_NODE_TEXTS_H_
#define KERNELS_NODE_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/node_link.h"

namespace nacre::kernels {

// Longer ones are cut.
inline constexpr size_t kMostTextBytes = 1020;

// Those of all nodes, by node. `number`: all nodes are at the same one. Errors
// of NodeLink.
absl::StatusOr<std::vector<std::string>> ExchangeTexts(NodeLink* link,
                                                       uint64_t number,
                                                       absl::string_view own);

}  // namespace nacre::kernels

#endif  // KERNELS_NODE_TEXTS_H_
