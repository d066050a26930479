// A shape of token trees, with its parameters: what a draft expands of a
// session's tree, and with how many children.
//
// chain and best are this service's own. The others are for reproduction, and
// rank candidates by the draft's probability q, as their papers do:
//
//   cape      GliDe with CaPE (arXiv:2402.02082): a chain. The less likely a
//             token is, the more siblings it has: 8 8 8 6 6 6 4 4 2 2
//             candidates, itself included, for q of 0 to 0.1, to 0.2, ...
//   eagle2    EAGLE-2 (arXiv:2406.16858): of each level the `width` likeliest
//             nodes are expanded, with `width` children each, `depth` levels
//             deep; the `total` likeliest are verified.
//   static    Medusa (arXiv:2401.10774) and EAGLE: the paths of a list, each
//             the ranks, from 0, of its candidates.
//
// Pure values and functions.

#ifndef SPECULATION_TREE_SPEC_H_
#define SPECULATION_TREE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::speculation {

enum class TreeShape {
  kChain,  // one token after the other
  kBest,   // the draft expands the likeliest nodes, the target verifies them
  kCape,
  kEagle2,
  kStatic,
};

// Most candidates of a node, most levels and most nodes that a shape asks for.
inline constexpr int kMaxShapeWidth = 16;
inline constexpr int kMaxShapeDepth = 64;
inline constexpr int kMaxShapeNodes = 64;
// Most bytes of the text of a shape, and of a file with a list of paths.
inline constexpr int kMaxShapeText = 16384;

struct TreeSpec {
  // A node of a list of paths: the candidate of this rank below its parent.
  struct Node {
    int parent = -1;  // index, below its own; -1: the root
    int rank = 0;
    bool operator==(const Node&) const = default;
  };

  // NOLINTNEXTLINE(google-explicit-constructor): a shape alone is a spec, too.
  TreeSpec(TreeShape the_shape = TreeShape::kBest) : shape(the_shape) {}

  TreeShape shape;
  int width = 10;           // of eagle2
  int depth = 7;            // likewise
  int total = 60;           // likewise
  std::vector<Node> nodes;  // of static

  // Whether candidates are ranked by q.
  bool ranks_by_q() const {
    return shape != TreeShape::kChain && shape != TreeShape::kBest;
  }
  // Whether a length policy may end its growth in depth: no other shape has a
  // path along which it grows level by level.
  bool may_have_policy() const {
    return shape == TreeShape::kCape || shape == TreeShape::kEagle2;
  }
  bool operator==(const TreeSpec&) const = default;
};

// The name that ParseTreeSpec reads: of static with its list.
std::string TreeSpecName(const TreeSpec& spec);
// "chain", "best", "cape", "eagle2", "eagle2:k=10,depth=7,total=60" (each may
// be left out), "static:[[0],[0,0],[1]]". INVALID_ARGUMENT, with the value and
// the limit, or the names there are.
absl::StatusOr<TreeSpec> ParseTreeSpec(absl::string_view name);

// How many candidates stand beside each other where the likeliest has the
// probability q (cape).
int CapeWidth(double q);

// The node of a list to which these ranks lead, -1 without any; nullopt: none.
absl::optional<int> FindStaticNode(const TreeSpec& spec,
                                   absl::Span<const int> ranks);
// Whether it has a child, and one of this rank.
bool HasStaticChild(const TreeSpec& spec, int node);
bool HasStaticChild(const TreeSpec& spec, int node, int rank);
// The most levels that the shape has, at most kMaxShapeDepth.
int ShapeDepth(const TreeSpec& spec);
// How many of them the likeliest path has: each node the best of its parent's.
// As ShapeDepth, but for a static list.
int LikeliestDepth(const TreeSpec& spec);

}  // namespace nacre::speculation

#endif  // SPECULATION_TREE_SPEC_H_
