#include "kernels/rank_progress.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nacre::kernels {
namespace {

// What an old report says of waiting may have ended since.
bool IsFresh(const NodeProgress& node, std::chrono::milliseconds limit) {
  return node.ago <= limit / 2;
}

// Of ranks that wait.
uint64_t FewestDone(absl::Span<const NodeProgress> nodes,
                    std::chrono::milliseconds limit) {
  uint64_t done = std::numeric_limits<uint64_t>::max();
  for (const NodeProgress& node : nodes) {
    if (!IsFresh(node, limit)) continue;
    for (const RankProgress& rank : node.ranks) {
      if (!rank.what.empty()) done = std::min(done, rank.done);
    }
  }
  return done;
}

// Those that have said nothing for so long, with a comma between them.
std::string Silent(absl::Span<const NodeProgress> nodes,
                   std::chrono::milliseconds limit) {
  std::vector<std::string> silent;
  for (const NodeProgress& node : nodes) {
    if (node.ranks.empty()) {
      silent.push_back(absl::StrCat("node ", node.node, " has said nothing"));
    } else if (node.ago > limit) {
      silent.push_back(absl::StrCat("node ", node.node,
                                    " has said nothing for ", node.ago.count(),
                                    " ms"));
    }
  }
  return absl::StrJoin(silent, ", ");
}

}  // namespace

bool Hangs(absl::Span<const NodeProgress> nodes,
           std::chrono::milliseconds limit) {
  return std::any_of(
      nodes.begin(), nodes.end(), [limit](const NodeProgress& node) {
        return IsFresh(node, limit) &&
               std::any_of(node.ranks.begin(), node.ranks.end(),
                           [&](const RankProgress& rank) {
                             return !rank.what.empty() &&
                                    rank.waits + node.ago > limit;
                           });
      });
}

std::string DescribeHang(absl::Span<const NodeProgress> nodes, int ranks,
                         std::chrono::milliseconds limit) {
  const uint64_t done = FewestDone(nodes, limit);
  int known = 0;
  std::vector<int> waiting;
  std::vector<std::string> missing;
  std::string what;
  std::chrono::milliseconds waits{0};
  for (const NodeProgress& node : nodes) {
    known += static_cast<int>(node.ranks.size());
    for (const RankProgress& rank : node.ranks) {
      if (rank.called <= done) {
        missing.push_back(absl::StrCat(
            "rank ", rank.rank,
            nodes.size() == 1 ? "" : absl::StrCat(" of node ", node.node),
            ", which has made ", rank.called));
      } else if (IsFresh(node, limit) && !rank.what.empty() &&
                 rank.done == done) {
        waiting.push_back(rank.rank);
        what = rank.what;
        waits = std::max(waits, rank.waits + node.ago);
      }
    }
  }
  const bool is_one = waiting.size() == 1;
  std::string text =
      absl::StrCat(is_one ? "rank " : "ranks ", absl::StrJoin(waiting, ", "),
                   is_one ? " has" : " have", " waited for ", waits.count(),
                   " ms in call ", done + 1, ", ", what);
  const std::string silent = Silent(nodes, limit / 2);
  if (!missing.empty()) {
    absl::StrAppend(&text, ", for ", absl::StrJoin(missing, ", "));
  } else if (silent.empty() && known == ranks) {
    absl::StrAppend(&text, ", which all have made");
  }
  if (!silent.empty()) absl::StrAppend(&text, "; ", silent);
  return text;
}

}  // namespace nacre::kernels
