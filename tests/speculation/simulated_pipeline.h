// The coordinator and the two workers of the simulator: what each does when a
// message arrives or a step ends. pipeline_simulator.h is the way in. No
// threads.

#ifndef TESTS_SPECULATION_SIMULATED_PIPELINE_H_
#define TESTS_SPECULATION_SIMULATED_PIPELINE_H_

#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "simulation/event_queue.h"
#include "simulation/link.h"
#include "simulation/random.h"
#include "tests/speculation/pipeline_simulator.h"
#include "tests/speculation/simulated_session.h"

namespace nacre::speculation {

class SimulatedPipeline {
 public:
  explicit SimulatedPipeline(const SimulatorOptions& options);
  SimulatorResult Run();

 private:
  using Mutation = SimulatorOptions::Mutation;
  static constexpr size_t kTraceLength = 40;
  using Session = SimulatedSession;

  bool Chance(double probability) {
    return probability > 0.0 && random_.Chance(probability);
  }
  int64_t Draw(LinkDelay delay) {
    return random_.Between(delay.min_ns, delay.max_ns);
  }
  int64_t StepNs(double step_ns, double row_ns, int rows) {
    const double stretch = 1.0 + options_.step_jitter * random_.Unit();
    return std::llround((step_ns + row_ns * (rows - 1)) * stretch);
  }
  template <typename... Pieces>
  void Note(const Session& s, const Pieces&... pieces) {
    if (!options_.keep_trace) return;
    trace_.push_back(absl::StrCat(queue_.now_ns() / 1000, " us  session ", s.id,
                                  "  ", pieces...));
    if (trace_.size() > kTraceLength) trace_.pop_front();
  }
  // Ids for the trace.
  std::string Ids(const std::vector<int32_t>& token_ids) const {
    return options_.keep_trace ? absl::StrJoin(token_ids, ",") : "";
  }
  bool HasFaults() const;

  // Coordinator.
  void Start(Session& s);
  void OpenDraft(Session& s);
  std::unique_ptr<DraftLength> MakeLength(const Session& s);
  void AttachDraft(Session& s);
  void ExchangeDraft(Session& s);
  void KillDraft(Session& s);
  void ReceiveTail(Session& s, int instance, SimulatedTail tail);
  void ReceiveVerdict(Session& s, const Verdict& verdict);
  void SendPlan(Session& s);
  void Acknowledge(Session& s);
  void End(Session& s);
  void MakeTrouble(Session& s);
  StepCosts Costs() const;

  // Target worker.
  void DeliverTail(Session& s, SimulatedTail tail, bool again);
  void DeliverMalformedTail(Session& s);
  void StartTargetStep();
  void FinishTargetStep(int64_t duration_ns, int rows);
  void SetTimer(Session& s, int64_t timer_ns);
  void EndHeldSteps();
  void EndStep(Session& s);
  void SendVerdict(Session& s, Verdict verdict);

  // Draft worker.
  bool Hangs() const {
    return options_.draft_hangs_at_ns.has_value() &&
           queue_.now_ns() >= *options_.draft_hangs_at_ns;
  }
  void DeliverCommit(Session& s, const Commit& commit);
  void SendTail(Session& s, Tail tail, DraftedKind kind);
  void SendStopNotice(Session& s);
  // A policy's decision on the token that the session's draft has drawn.
  LengthDecision Decide(Session& s, int32_t token_id);
  void StartDraftStep();
  void FinishDraftStep(int64_t duration_ns, int rows);

  const SimulatorOptions options_;
  simulation::Random random_;
  simulation::EventQueue queue_;
  simulation::Link draft_to_coordinator_;
  simulation::Link coordinator_to_target_;
  simulation::Link target_to_coordinator_;
  simulation::Link coordinator_to_draft_;
  std::vector<std::unique_ptr<Session>> sessions_;
  StepTimeCurve target_curve_;
  StepTimeCurve draft_curve_;
  std::vector<Session*> target_batch_;
  std::vector<std::pair<Session*, int>> draft_batch_;  // and its instance
  bool target_busy_ = false;
  bool draft_busy_ = false;
  bool lost_one_commit_ = false;
  std::deque<std::string> trace_;
  SimulatorResult result_;
};

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_SIMULATED_PIPELINE_H_
