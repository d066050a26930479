#include "worker/process/heartbeat_convert.h"

#include <gtest/gtest.h>

namespace nacre::worker {
namespace {

TEST(HeartbeatConvertTest, HeartbeatsHoldThePartitionOfTime) {
  TimePartition partition(0);
  int64_t now = 0;
  for (int i = 0; i < kNumWorkerStates; ++i) {
    partition.Enter(static_cast<WorkerState>(i), now);
    now += 1 << i;
  }
  EngineStats stats;
  stats.steps = 1;
  stats.sessions = 2;
  stats.kv_free_tokens = 3;
  stats.rejected_messages = 4;
  stats.reaped_sessions = 5;
  stats.time = partition.At(now);
  v1::Heartbeat proto;
  FillHeartbeat(stats, /*draining=*/true, &proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "steps: 1 sessions: 2 kv_free_tokens: 3 draining: true "
            "time { elapsed_ns: 127 prefill_ns: 1 draft_ns: 2 verify_ns: 4 "
            "wait_draft_tokens_ns: 8 wait_verdict_ns: 16 "
            "wait_acknowledge_ns: 32 no_work_ns: 64 } rejected_messages: 4 "
            "reaped_sessions: 5");
}

}  // namespace
}  // namespace nacre::worker
