#include "coordinator/observe/fleet_metrics.h"

#include <gtest/gtest.h>

#include "tests/coordinator/coordinator_fixture.h"
#include "tests/telemetry/samples.h"

namespace nacre::coordinator {
namespace {

using FleetMetricsTest = CoordinatorFixture;

TEST_F(FleetMetricsTest, CountsWorkersByRoleAndState) {
  const FleetMetrics metrics(&registry_);
  const auto sum = [&metrics](const char* name, const char* part) {
    return telemetry::Sum(telemetry::Collect(metrics), name, part);
  };
  for (const char* part :
       {"role=\"draft\",state=\"ready\"", "role=\"draft\",state=\"draining\"",
        "role=\"draft\",state=\"hung\"", "role=\"target\",state=\"ready\"",
        "role=\"target\",state=\"draining\"",
        "role=\"target\",state=\"hung\""}) {
    EXPECT_EQ(sum("nacre_workers", part), 0) << part;
  }
  EXPECT_EQ(sum("nacre_workers_lost_total", "role=\"target\""), 0);
  EXPECT_EQ(sum("nacre_workers_lost_total", "role=\"draft\""), 0);
  FakeWorker target(v1::WORKER_ROLE_TARGET), draft(v1::WORKER_ROLE_DRAFT);
  target.Attach(address());
  draft.Attach(address());
  ASSERT_TRUE(target.AwaitAccepted());
  ASSERT_TRUE(draft.AwaitAccepted());
  EXPECT_EQ(sum("nacre_workers", "role=\"target\",state=\"ready\""), 1);
  EXPECT_EQ(sum("nacre_workers", "role=\"draft\",state=\"ready\""), 1);
  EXPECT_GE(sum("nacre_worker_heartbeat_age_seconds", draft.address().c_str()),
            0);

  v1::Heartbeat draining;
  draining.set_draining(true);
  draft.Heartbeat(draining);
  EXPECT_TRUE(Eventually([&] {
    return sum("nacre_workers", "role=\"draft\",state=\"draining\"") == 1;
  }));
  v1::Heartbeat hung;
  hung.set_hung(true);
  target.Heartbeat(hung);
  EXPECT_TRUE(Eventually([&] {
    return sum("nacre_workers", "role=\"target\",state=\"hung\"") == 1;
  }));
  EXPECT_EQ(sum("nacre_workers", ""), 2);
  target.Detach();
  EXPECT_TRUE(Eventually(
      [&] { return sum("nacre_workers_lost_total", "role=\"target\"") == 1; }));
  EXPECT_EQ(sum("nacre_workers_lost_total", "role=\"draft\""), 0);
}

}  // namespace
}  // namespace nacre::coordinator
