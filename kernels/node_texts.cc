#include "kernels/node_texts.h"

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"

namespace nacre::kernels {
namespace {

// As values, which go as they are: its length, and its bytes.
constexpr size_t kTextValues = 1 + kMostTextBytes / sizeof(float);

void PutText(absl::string_view text, float* values) {
  const auto length =
      static_cast<uint32_t>(std::min(text.size(), kMostTextBytes));
  std::memcpy(values, &length, sizeof(length));
  if (length > 0) std::memcpy(values + 1, text.data(), length);
}

std::string TakeText(const float* values) {
  uint32_t length = 0;
  std::memcpy(&length, values, sizeof(length));
  std::string text(std::min<size_t>(length, kMostTextBytes), 0);
  std::memcpy(text.data(), values + 1, text.size());
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExchangeTexts(NodeLink* link,
                                                       uint64_t number,
                                                       absl::string_view own) {
  const auto nodes = static_cast<size_t>(link->nodes());
  std::vector<float> all(nodes * kTextValues);
  const auto of_node = [&](int node) {
    return all.data() + static_cast<size_t>(node) * kTextValues;
  };
  PutText(own, of_node(link->node()));
  const NodeCall one = {number, NodeCall::Kind::kText, kTextValues};
  const NodeCall those_of_all = {number, NodeCall::Kind::kText, all.size()};
  if (link->node() == 0) {
    for (int node = 1; node < link->nodes(); ++node) {
      NACRE_RETURN_IF_ERROR(link->Receive(node, one, of_node(node)));
    }
    for (int node = 1; node < link->nodes(); ++node) {
      NACRE_RETURN_IF_ERROR(link->Send(node, those_of_all, all.data()));
    }
  } else {
    NACRE_RETURN_IF_ERROR(link->Send(0, one, of_node(link->node())));
    NACRE_RETURN_IF_ERROR(link->Receive(0, those_of_all, all.data()));
  }
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(link->nodes()));
  for (int node = 0; node < link->nodes(); ++node) {
    texts.push_back(TakeText(of_node(node)));
  }
  return texts;
}

}  // namespace nacre::kernels
