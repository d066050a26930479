// How many of a session's draft tokens were branches, and how many of those the
// target's text took. Branches are sent ahead beside the main path of a tree.
//
// Only what the messages say: nodes that stand below text that was given up are
// not followed any further. Pure; one owner, no threads.

#ifndef COORDINATOR_OBSERVE_BRANCH_ACCOUNT_H_
#define COORDINATOR_OBSERVE_BRANCH_ACCOUNT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

class BranchAccount {
 public:
  // The text has `length` tokens.
  explicit BranchAccount(int length = 0) : length_(length) {}

  // Goes to the target, of the present draft. Of a chain nothing is a branch.
  void OnTail(const speculation::Tail& tail);
  // The text went on from `base_length` with these tokens.
  void OnCommitted(int base_length, absl::Span<const int32_t> token_ids);
  // Another draft will number anew. What stands below the text is lost, and
  // none of it is told any more.
  void OnDraftLeft();

  // Nodes that stand below the text, branches or not.
  int64_t pending() const { return static_cast<int64_t>(nodes_.size()); }
  // Branches that the text passed by.
  int64_t unused() const { return sent_ - used_ - num_branches(); }

 private:
  struct Node {
    int number = 0;
    int parent = 0;    // number; 0: the text before its position
    int position = 0;  // of its token
    int32_t token_id = 0;
    bool is_branch = false;  // not a first child, or below one that is not
  };
  // A committed token and the number of its node; 0: none is known.
  struct Place {
    int32_t token_id = 0;
    int number = 0;
  };

  // Null: it is not among them, which are by number.
  static const Node* Find(const std::vector<Node>& nodes, int number);
  // The committed position of a number.
  absl::optional<int> FindPlace(int number) const;
  Place* At(int position);
  // Of those that stand.
  int64_t num_branches() const;
  // Whether the text has taken the node, whose position it has reached; notes
  // its number then.
  bool Takes(const Node& node);
  // Keeps what stands below the text.
  void Prune();

  int length_;
  std::vector<Node> nodes_;    // by number, of positions from length_ on
  std::vector<Place> places_;  // of the last tokens
  int64_t sent_ = 0;
  int64_t used_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_BRANCH_ACCOUNT_H_
