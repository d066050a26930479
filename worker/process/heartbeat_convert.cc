#include "worker/process/heartbeat_convert.h"

#include <cstdint>

namespace nacre::worker {

void FillHeartbeat(const EngineStats& stats, bool draining,
                   v1::Heartbeat* proto) {
  proto->set_steps(stats.steps);
  proto->set_sessions(static_cast<uint32_t>(stats.sessions));
  proto->set_kv_free_tokens(static_cast<uint64_t>(stats.kv_free_tokens));
  proto->set_draining(draining);
  proto->set_rejected_messages(stats.rejected_messages);
  proto->set_reaped_sessions(stats.reaped_sessions);
  const TimePartition::Totals& totals = stats.time;
  const auto ns = [&totals](WorkerState state) {
    return static_cast<uint64_t>(totals[state]);
  };
  v1::WorkerTime* time = proto->mutable_time();
  time->set_elapsed_ns(static_cast<uint64_t>(totals.elapsed_ns));
  time->set_prefill_ns(ns(WorkerState::kPrefill));
  time->set_draft_ns(ns(WorkerState::kDraft));
  time->set_verify_ns(ns(WorkerState::kVerify));
  time->set_wait_draft_tokens_ns(ns(WorkerState::kWaitDraftTokens));
  time->set_wait_verdict_ns(ns(WorkerState::kWaitVerdict));
  time->set_wait_acknowledge_ns(ns(WorkerState::kWaitAcknowledge));
  time->set_no_work_ns(ns(WorkerState::kNoWork));
}

}  // namespace nacre::worker
