// One simulated session: the real state machines, the KV that the fake workers
// would hold, and the invariants that relate them. No threads.

#ifndef TESTS_SPECULATION_SIMULATED_SESSION_H_
#define TESTS_SPECULATION_SIMULATED_SESSION_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "simulation/fake_models.h"
#include "speculation/draft_length.h"
#include "speculation/draft_session.h"
#include "speculation/policies/policy_spec.h"
#include "speculation/session_schedule.h"
#include "speculation/target_session.h"
#include "tests/speculation/pipeline_simulator.h"

namespace nacre::speculation {

// What the simulator alone knows of a drafted token.
enum class DraftedKind {
  kNone,         // a message without a token
  kWrongPrefix,  // drafted behind a token that the target will not draw
  kMatch,        // behind the right prefix, and right
  kMiss,         // behind the right prefix, and wrong
};

struct SimulatedTail {
  Tail tail;
  DraftedKind kind = DraftedKind::kNone;
};

class SimulatedSession {
 public:
  SimulatedSession(const SimulatorOptions& options, int id);

  // Empty, or the invariant that does not hold.
  const std::string& failure() const { return failure_; }
  void Require(bool holds, const std::string& what);

  DraftedKind Classify(absl::Span<const int32_t> prefix,
                       int32_t token_id) const;

  // Everything that `target` would do next, as text: equal texts mean that a
  // message changed nothing.
  std::string TargetFingerprint(int64_t now_ns) const;

  bool is_ratio() const { return verification == Verification::kRatio; }
  // The target's tokens for a running step over step_rows, up to the first that
  // differs from its row. Under the ratio test none for the row behind an
  // accepted tail, unless `last_row`.
  std::vector<int32_t> Draw(const TargetSession& session,
                            absl::Span<const int32_t> rows,
                            bool last_row) const;
  // Whether the step that ran is held at this time.
  bool IsHeld(int64_t now_ns);

  // Called where the thing happened.
  void CheckTailOutcome(const SimulatedTail& tail,
                        TargetSession::TailOutcome outcome);
  void BeginTargetStep();
  absl::optional<Verdict> CommitAccepted();
  Verdict FinishTargetStep(bool keep_kv);
  void FeedDraft();
  void CheckDraftKv();
  void CheckCommitted();  // after every event
  void CheckEnd(bool fault_free);

  const int id;
  const simulation::FakeModels models;
  const RatioModels ratio_models;
  const Verification verification;
  const uint64_t noise_seed;
  const int max_tokens;
  const int prompt_length;
  std::vector<int32_t> expected;  // prompt and the autoregressive stream
  FinishReason expected_finish = FinishReason::kNone;

  const PolicySpec policy;

  // Coordinator.
  SessionSchedule schedule;
  PipelinePlan plan;
  bool ended = false;
  bool cancelled = false;

  // Target worker.
  absl::optional<TargetSession> target;
  int64_t target_ready_ns = 0;
  bool target_closing = false;
  bool held = false;  // its step has run, but not ended
  std::vector<int32_t> target_kv;
  std::vector<int32_t> step_rows;
  int64_t timer_ns = -1;
  std::vector<SimulatedTail> delivered;  // tails that the target has seen

  // Draft worker. An instance is one opened draft session.
  absl::optional<DraftSession> draft;
  std::unique_ptr<DraftLength> length;  // of `draft`, where there is a policy
  int opened_instances = 0;
  int draft_instance = 0;        // whom `draft` is
  std::set<int> lost_instances;  // their messages in flight are lost
  int64_t draft_ready_ns = 0;
  bool draft_in_step = false;
  bool draft_cut = false;  // the running step's token is pointless
  std::vector<int32_t> draft_kv;

 private:
  std::string failure_;
  int checked_schedule_;
  int checked_target_;
  int64_t verified_ = 0;
  int64_t accepted_ = 0;
  int64_t matches_delivered_ = 0;
  int64_t misses_delivered_ = 0;
  int64_t right_before_last_ = 0;  // delivered for positions before the last
};

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_SIMULATED_SESSION_H_
