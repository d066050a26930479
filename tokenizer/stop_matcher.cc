#include "tokenizer/stop_matcher.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace nacre::tokenizer {

StopMatcher::StopMatcher(const std::vector<std::string>& stops,
                         bool include_stop)
    : nodes_(1), include_stop_(include_stop) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    uint32_t node = 0;
    for (const char byte : stop) {
      const auto [edge, inserted] = edges_.try_emplace(
          Edge(node, byte), static_cast<uint32_t>(nodes_.size()));
      if (inserted) {
        Node child;
        child.depth = nodes_[node].depth + 1;
        nodes_.push_back(child);
      }
      node = edge->second;
    }
    nodes_[node].stop = static_cast<int32_t>(stops_.size());
    stops_.push_back(stop);
  }
  LinkFailures();
}

void StopMatcher::LinkFailures() {
  // Breadth first: a failure link leads to a smaller depth, which is done.
  std::vector<std::vector<std::pair<char, uint32_t>>> children(nodes_.size());
  for (const auto& [edge, child] : edges_) {
    children[edge >> 8].push_back({static_cast<char>(edge & 0xFF), child});
  }
  std::vector<uint32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t parent = queue[i];
    for (const auto& [byte, child] : children[parent]) {
      Node& node = nodes_[child];
      if (parent != 0) node.failure = Next(nodes_[parent].failure, byte);
      if (node.stop < 0) node.stop = nodes_[node.failure].stop;
      queue.push_back(child);
    }
  }
}

uint32_t StopMatcher::Next(uint32_t node, char byte) const {
  while (true) {
    const auto edge = edges_.find(Edge(node, byte));
    if (edge != edges_.end()) return edge->second;
    if (node == 0) return 0;
    node = nodes_[node].failure;
  }
}

StopMatcher::Result StopMatcher::Push(absl::string_view text) {
  Result result;
  if (finished_) return result;
  result.emit = std::move(held_);
  held_.clear();
  for (const char byte : text) {
    result.emit.push_back(byte);
    state_ = Next(state_, byte);
    const int32_t stop = nodes_[state_].stop;
    if (stop < 0) continue;
    result.matched = stops_[stop];
    if (!include_stop_) {
      result.emit.resize(result.emit.size() - stops_[stop].size());
    }
    finished_ = true;
    return result;
  }
  const size_t shown = result.emit.size() - nodes_[state_].depth;
  held_ = result.emit.substr(shown);
  result.emit.resize(shown);
  return result;
}

std::string StopMatcher::Flush() {
  finished_ = true;
  return std::exchange(held_, std::string());
}

}  // namespace nacre::tokenizer
