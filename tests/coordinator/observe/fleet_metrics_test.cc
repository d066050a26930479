#include "coordinator/observe/fleet_metrics.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/recording_sink.h"
#include "tests/telemetry/samples.h"

namespace nacre::coordinator {
namespace {

using FleetMetricsTest = CoordinatorFixture;

TEST_F(FleetMetricsTest, CountsWorkersByRoleAndState) {
  const FleetMetrics metrics(&registry_, &dispatcher_);
  const auto sum = [&metrics](const char* name, const char* part) {
    return telemetry::Sum(telemetry::Collect(metrics), name, part);
  };
  for (const char* part :
       {"role=\"target\",state=\"ready\"", "role=\"target\",state=\"draining\"",
        "role=\"target\",state=\"hung\""}) {
    EXPECT_EQ(sum("nacre_workers", part), 0) << part;
  }
  // Where there never was a draft, none is missing: no alert is to say so.
  EXPECT_EQ(sum("nacre_workers", "role=\"draft\""), -1);
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
  draft.Detach();
  EXPECT_TRUE(Eventually([&] {
    return sum("nacre_workers", "role=\"draft\",state=\"draining\"") == 0;
  }));
  EXPECT_EQ(sum("nacre_workers", "role=\"draft\",state=\"ready\""), 0);
}

TEST_F(FleetMetricsTest, SaysWhatEachWorkerHoldsAndOfWhichKindTargetsAre) {
  const FleetMetrics metrics(&registry_, &dispatcher_);
  const auto sum = [&metrics](const char* name, const std::string& part) {
    return telemetry::Sum(telemetry::Collect(metrics), name, part.c_str());
  };
  FakeWorker target(v1::WORKER_ROLE_TARGET), draft(v1::WORKER_ROLE_DRAFT);
  target.hello.set_kv_capacity_tokens(4096);
  draft.hello.set_kv_capacity_tokens(512);
  target.Attach(address());
  draft.Attach(address());
  ASSERT_TRUE(target.AwaitAccepted());
  ASSERT_TRUE(draft.AwaitAccepted());
  const v1::Hello hello = target.hello;
  const std::string worker = "worker=\"" + target.address() + "\"";
  EXPECT_EQ(sum("nacre_kv_capacity_tokens", "role=\"target\"," + worker), 4096);
  EXPECT_EQ(sum("nacre_kv_capacity_tokens", "role=\"draft\""), 512);
  EXPECT_EQ(sum("nacre_target_info",
                worker + ",numerics_id=\"" + hello.numerics_id() +
                    "\",fingerprint=\"" + hello.fingerprint() + "\""),
            1);
  EXPECT_EQ(sum("nacre_target_info", ""), 1);
}

TEST_F(FleetMetricsTest, SaysWhatIsPromisedAndWhatIsWanted) {
  const FleetMetrics metrics(&registry_, &dispatcher_);
  const auto sum = [&metrics](const char* name, const char* part = "") {
    return telemetry::Sum(telemetry::Collect(metrics), name, part);
  };
  const auto start = [this](const char* id, int tokens) {
    RequestSpec request;
    request.request_id = id;
    request.prompt_ids = {7, 8};
    request.max_tokens = tokens - 2;
    return dispatcher_.Start(request, std::make_shared<RecordingSink>());
  };
  EXPECT_EQ(sum("nacre_num_requests_without_draft"), 0);
  EXPECT_EQ(sum("nacre_kv_wanted_tokens"), 0);
  FakeWorker target(v1::WORKER_ROLE_TARGET), draft(v1::WORKER_ROLE_DRAFT);
  target.hello.set_kv_capacity_tokens(64);
  target.Attach(address());
  ASSERT_TRUE(target.AwaitAccepted());
  EXPECT_EQ(sum("nacre_kv_reserved_tokens", "role=\"target\""), 0);
  EXPECT_EQ(sum("nacre_sessions", "role=\"target\""), 0);
  ASSERT_TRUE(start("first", 48).ok());
  ASSERT_TRUE(start("second", 32).ok());
  const std::string worker = "worker=\"" + target.address() + "\"";
  EXPECT_EQ(sum("nacre_kv_reserved_tokens", worker.c_str()), 48);
  EXPECT_EQ(sum("nacre_sessions", worker.c_str()), 1);
  EXPECT_EQ(sum("nacre_max_running_sessions", worker.c_str()), 0);
  EXPECT_EQ(sum("nacre_kv_wanted_tokens", "role=\"target\""), 32);
  EXPECT_EQ(sum("nacre_kv_wanted_tokens", "role=\"draft\""), 48);
  EXPECT_EQ(sum("nacre_num_requests_without_draft"), 1);
  draft.hello.set_kv_capacity_tokens(512);
  draft.Attach(address());
  ASSERT_TRUE(draft.AwaitAccepted());
  EXPECT_EQ(sum("nacre_num_requests_without_draft"), 0);
  EXPECT_EQ(sum("nacre_kv_wanted_tokens", "role=\"draft\""), 0);
  EXPECT_EQ(sum("nacre_kv_reserved_tokens", "role=\"draft\""), 48);
}

}  // namespace
}  // namespace nacre::coordinator
