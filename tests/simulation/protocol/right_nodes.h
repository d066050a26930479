// Which nodes of a draft are right, and what their target makes of them. A node
// is right where the whole text that it ends is the request's. When the next
// step after its arrival begins, its place is
// - ahead of the committed text: it came in time, and may be a row;
// - or committed: it came late. It can be no row any more, but the nodes behind
//   it can, if the target knows where it stands.
// The verdicts say how many right tokens the target had of its draft. Right
// nodes that it threw away, late or not, are missing there. A target that
// throws them away starves: it drops all that is built on them, and the draft,
// which sees its tokens committed, sends none of them again.
//
// A node may also come when a verdict has counted its place as one where the
// draft was wrong: a sibling came before it. What was told is not taken back,
// so such a node is left out.
//
// One for a target's session and its first draft, by exact match. Used by one
// thread.

#ifndef TESTS_SIMULATION_PROTOCOL_RIGHT_NODES_H_
#define TESTS_SIMULATION_PROTOCOL_RIGHT_NODES_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "speculation/pipeline.h"

namespace nacre::protocol {

struct RequestState;

class RightNodes {
 public:
  // Of places that are committed. Each counts once.
  struct Counts {
    int64_t in_time = 0;
    int64_t late = 0;
    int64_t lost = 0;  // of both, at least: thrown away
  };

  // Both were opened with so many tokens of the request.
  explicit RightNodes(int opened_length)
      : opened_length_(opened_length), chain_end_(opened_length) {}

  // A message of the draft has come.
  void OnArrived(const RequestState& request, const speculation::Tail& tail);
  // A step begins at this length of the text: what has come is looked at.
  void BeginStep(int committed_length);
  // Its verdict: `num_accepted` more tokens were the draft's. The text below
  // `length` is compared with what the draft sent. Adds what is new.
  void OnVerdict(int num_accepted, int length, Counts* counts);

 private:
  void Come(int place);

  const int opened_length_;
  int chain_end_;  // of a chain's right tokens: the length of their text
  absl::flat_hash_map<int, int> ends_;  // likewise of a tree's, by number
  absl::flat_hash_set<int> known_;      // places of right nodes
  std::vector<int> come_;               // ... since the step began
  std::set<int> wrong_;  // places of wrong nodes that no verdict covers yet
  absl::flat_hash_set<int> told_;  // ... that one does, and none is right yet
  std::map<int, bool> looked_at_;  // ... not in the account; in time?
  int64_t missing_ = 0;            // in accounts, of places that are compared
  int64_t lost_ = 0;               // the most that ever were missing
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_RIGHT_NODES_H_
