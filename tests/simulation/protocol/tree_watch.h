// What the world sees of trees that drafts grow: at the draft, whether its
// slots hold what its messages say, and at the target, whether every node that
// came in time is in the account.
//
// One of each for an opening of a session. Used by one thread.

#ifndef TESTS_SIMULATION_PROTOCOL_TREE_WATCH_H_
#define TESTS_SIMULATION_PROTOCOL_TREE_WATCH_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/language_model.h"
#include "speculation/pipeline.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {

struct RequestState;
struct SessionOnWorker;

// A draft's session whose sequence has slots. Each call says what is wrong;
// empty: nothing.
class DraftWatch {
 public:
  // A step is about to feed these rows.
  std::string OnForward(const SessionOnWorker& session,
                        const model::SequenceRows& rows);
  // ... and ended early: it fed nothing. The draft has been told of the first
  // `told_length` tokens, or was about to be.
  std::string OnAbandoned(const SessionOnWorker& session, int told_length);
  // A message with nodes leaves. Adds them to what the request's drafts drew.
  // `redraws`: ranks them once more, which takes time.
  std::string OnTail(const SessionOnWorker& session,
                     const speculation::Tail& tail, bool redraws);

 private:
  struct Text {
    std::vector<int32_t> token_ids;
    uint64_t hash = kEmptyHash;

    int length() const { return static_cast<int>(token_ids.size()); }
    void Push(int32_t token_id);
  };

  std::string OnBranch(const SessionOnWorker& session,
                       const model::TreeNode& node, int32_t token_id);
  // Slots that nodes behind what the draft knows as committed may be in.
  int NumLiveSlots(const RequestState& request) const;
  // Whether children of that text are of use behind these tokens.
  static bool IsOfUse(const RequestState& request, const Text& text,
                      int told_length);
  std::string CheckParent(const SessionOnWorker& session,
                          const Text& parent) const;
  std::string CheckChildren(const SessionOnWorker& session, const Text& parent,
                            absl::Span<const int32_t> children) const;

  absl::flat_hash_map<int, Text> nodes_;  // by number
  absl::flat_hash_set<uint64_t> said_;    // DraftedKey of each
  int newest_number_ = 0;
  int base_length_ = 0;                       // of the newest message
  absl::flat_hash_map<int32_t, Text> slots_;  // what each was filled with last
  std::vector<int32_t> step_slots_;
  absl::optional<Text> step_tip_;
  int num_used_slots_ = 0;  // so many of the first were ever filled
};

// A target's session and the nodes that reach it. A node tells a token for a
// place of the text where the text before it is the request's: whether it comes
// before that place is committed or after, the account must have the place.
// (Not to look at late nodes costs no token, and most of the speed.)
class ToldPlaces {
 public:
  // The target was opened with so many tokens. What comes late for their places
  // was in another target's account, if in any.
  explicit ToldPlaces(int opened_length) : opened_length_(opened_length) {}

  // A message of its draft has come. Of a chain it says nothing.
  void OnArrived(const RequestState& request, const speculation::Tail& tail);
  // What has come by now counts in the step's verdict.
  void BeginStep();
  // The text is `length` now. Returns how many places below lack an account,
  // after so many more.
  int OnVerdict(int num_verified, int length);

 private:
  const int opened_length_;
  absl::flat_hash_map<int, int> ends_;  // of numbers of the request's own text
  std::vector<int> come_;
  std::set<int> told_;
  int num_verified_ = 0;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_TREE_WATCH_H_
