// The methods as parameters of one pipeline (docs/scheduling.md):
//
//   method   lead           gate after mismatch   gate in flow   window
//   ar       0              0                     0              0
//   sd g     g, g           g                     g              g
//   pearl g  g, 2g - 1      0  (pre-verify)       g - 1 (post)   g - 1
//   async    2m* + 1        w*                    0              m*
//
// The lead of async grows by the tokens drafted while a message travels. It
// shrinks where a verdict would find the draft in a token that is probably
// wasted but must be finished. It is 0 (the draft rests) where other sessions
// fill the step and no window pays. Nor does one for an average session of its
// pair of workers. Even alone it is 0 where both hardly ever match.
//
// In sd the draft also waits where a length policy ends a chunk. sd and pearl
// draft chains unless a request names a tree: then leads, gates and window are
// of its levels.
//
// Two ablations of pearl (pipeline.h), and a step with a tail ends a chunk of
// the second:
//
//   no-pre-verify   2g, 2g        g                 g - 1          g
//   no-post-verify  g, g          0                 g - 1          g - 1
//
// Pure functions; WindowSearches is a memory of one owner.

#ifndef SPECULATION_PLAN_H_
#define SPECULATION_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "speculation/estimators.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

// How many nodes a step of a draft may expand for a session.
inline constexpr std::array<int, 6> kDraftRowChoices = {1, 2, 4, 8, 16, 32};
inline constexpr size_t kNumRowChoices = kDraftRowChoices.size();

// What a worker pair costs, as measured.
struct StepCosts {
  const StepTimeCurve* target = nullptr;  // by rows; may be empty
  // Rows that other sessions add to a step of this one, on average.
  int other_rows = 0;
  // Whose they are: the other sessions of the target, and those of them whose
  // window follows the load as that of this session does.
  int other_sessions = 0;
  int other_async_sessions = 0;
  double own_rows = 1.0;        // of this session in a step, on average
  double draft_token_ns = 0.0;  // 0 when not measured
  // A step of the draft that feeds kDraftRowChoices[i] rows of this session; 0:
  // as one row.
  std::array<double, kNumRowChoices> draft_rows_ns = {};
  double hop_ns = 500e3;  // draft to target through the coordinator
  // The draft ends a step at once when a verdict makes all of it a waste.
  bool abandons_steps = false;

  // Of the target, in ns; 1 where nothing has been measured.
  double StepTime(int rows) const;
  // c = T_target / T_draft, or 5 when a side has not been measured.
  double CostRatio() const;
};

struct PlanInputs {
  Method method = Method::kAsync;
  // The user's window: exact for sd and pearl, an upper bound for async. Chosen
  // from alpha and the costs when absent. In [1, kMaxWindow].
  absl::optional<int> window;
  double alpha = 0.7;
  // What sessions of this pair of workers have on average. The draft of an
  // async session rests where both say that no window is worth its rows beside
  // the others. It rests, even alone, where both say that less than one token
  // in twenty matches. Absent: it never does.
  absl::optional<double> pair_alpha;
  // The same as of now, where it is known. A draft that rests as useless
  // measures nothing. It goes on once others have found it useful.
  absl::optional<double> latest_pair_alpha;
  // The longest chunk of a length policy, which then decides what sd drafts:
  // sd's window where none is given. Under overlap a policy only makes the
  // target step earlier than the gates.
  absl::optional<int> policy_length;
  // sd and pearl verify no more than async would at this load, down to nothing.
  bool follows_load = false;
  // Under the ratio test pearl holds its last row (TargetPlan). A token of the
  // target's own would rarely be the one that the draft has run ahead with.
  Verification verification = Verification::kExact;
  Ablation ablation = Ablation::kNone;  // of pearl
  // Most nodes that a step of the draft expands: as many as pay in async, less
  // where others share its steps.
  int draft_rows = 1;
  // P(the target's token is among the draft's next three | it was not its
  // first), of a session with branches.
  double next_three = 0.69;
  // ... and of which shape: chain is best with one node.
  TreeSpec tree;
  // Most nodes, where draft_rows is more than one, that a step of the target
  // verifies; after these its best path goes on.
  int tree_rows = 0;
  StepCosts costs;
};

// The windows that were searched for while step times stood still. Sessions
// that share a step differ in their acceptance at most. It counts in steps of
// 1/512 there, well below the error of an estimate. So the plans of many cost
// few searches.
class WindowSearches {
 public:
  // What a search depends on.
  struct Key {
    const StepTimeCurve* target = nullptr;
    int alpha = 0;  // in steps
    int max_window = 0;
    int sessions = 0;
    int fixed_sessions = 0;
    int fixed_rows = 0;
    bool operator==(const Key&) const = default;
    template <typename Hash>
    friend Hash AbslHashValue(Hash hash, const Key& key) {
      return Hash::combine(std::move(hash), key.target, key.alpha,
                           key.max_window, key.sessions, key.fixed_sessions,
                           key.fixed_rows);
    }
  };
  // The window of the key: searched for if it is the first of its kind.
  int Find(const Key& key);
  int num_searches() const { return static_cast<int>(windows_.size()); }

 private:
  absl::flat_hash_map<Key, int> windows_;
};

// With `searches`, takes from there what was searched for before.
PipelinePlan MakePlan(const PlanInputs& inputs,
                      WindowSearches* searches = nullptr);

}  // namespace nacre::speculation

#endif  // SPECULATION_PLAN_H_
