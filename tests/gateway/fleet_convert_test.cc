#include "gateway/fleet_convert.h"

#include <gtest/gtest.h>

#include <vector>

namespace nacre::gateway {
namespace {

CoordinatorView View() {
  CoordinatorView view;
  view.address = "c:1";
  view.info.set_version("1.2.3");
  view.info.set_draining(true);
  view.info.set_running_requests(4);
  view.info.set_queued_requests(5);
  return view;
}

TEST(FleetConvertTest, ACoordinatorHasItsWorkersAndSessions) {
  CoordinatorView view = View();
  v1::WorkerInfo* const worker = view.workers.add_workers();
  worker->mutable_hello()->set_role(v1::WORKER_ROLE_DRAFT);
  worker->mutable_hello()->set_address("d:1");
  worker->mutable_hello()->set_incarnation("i");
  worker->mutable_hello()->set_model_name("m");
  worker->mutable_hello()->set_numerics_id("n");
  worker->mutable_hello()->set_kv_capacity_tokens(9);
  worker->mutable_heartbeat()->set_steps(7);
  worker->mutable_heartbeat()->set_kv_free_tokens(8);
  worker->mutable_hello()->set_vocabulary_share(0.5);
  worker->mutable_heartbeat()->set_draining(true);
  worker->mutable_heartbeat()->mutable_time()->set_draft_ns(2'000'000);
  worker->set_heartbeat_age_ns(500'000);
  worker->set_sessions(3);
  worker->set_max_sessions(2);
  v1::SessionInfo* const session = view.sessions.add_sessions();
  session->set_request_id("r");
  session->set_method(v1::METHOD_PEARL);
  session->set_prompt_tokens(1);
  session->set_generated_tokens(2);
  session->set_target_address("t:1");
  session->set_queue_position(6);
  view.sessions.add_sessions();

  const OrderedJson json = FleetOf({view})["coordinators"][0];
  EXPECT_EQ(json["address"], "c:1");
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["draining"], true);
  EXPECT_EQ(json["running_requests"], 4);
  EXPECT_EQ(json["queued_requests"], 5);
  EXPECT_EQ(
      Dump(json["workers"]),
      R"([{"role":"draft","address":"d:1","incarnation":"i","model":"m",)"
      R"("numerics_id":"n","vocabulary_share":0.5,"ready":false,"draining":true,"hung":false,)"
      R"("sessions":3,"max_sessions":2,"steps":7,"kv_free_tokens":8,)"
      R"("kv_capacity_tokens":9,)"
      R"("heartbeat_age_ms":0.5,"time":{"elapsed_ms":0.0,"prefill_ms":0.0,)"
      R"("draft_ms":2.0,"verify_ms":0.0,"wait_draft_tokens_ms":0.0,)"
      R"("wait_verdict_ms":0.0,"wait_acknowledge_ms":0.0,"no_work_ms":0.0}}])");
  EXPECT_EQ(Dump(json["sessions"][0]),
            R"({"request_id":"r","choice":0,"method":"pearl",)"
            R"("prompt_tokens":1,"generated_tokens":2,"target":"t:1",)"
            R"("draft":"","queue_position":6})");
  EXPECT_TRUE(json["sessions"][1]["queue_position"].is_null());
  EXPECT_EQ(json["sessions_left_out"], 0);
}

TEST(FleetConvertTest, OneThatFailsHasItsError) {
  CoordinatorView view = View();
  view.status = absl::UnavailableError("gone");
  EXPECT_EQ(Dump(FleetOf({view})),
            R"({"coordinators":[{"address":"c:1","error":"gone"}]})");
  EXPECT_FALSE(FleetRefused({View(), view}).has_value());
}

TEST(FleetConvertTest, ARefusedTokenShowsNothing) {
  CoordinatorView view = View();
  view.status = absl::UnauthenticatedError("who?");
  EXPECT_EQ(FleetRefused({View(), view})->status, 401);
  view.status = absl::PermissionDeniedError("a client");
  EXPECT_EQ(FleetRefused({view})->status, 403);
}

TEST(FleetConvertTest, SessionsAreBounded) {
  CoordinatorView view = View();
  for (int i = 0; i < kMaxFleetSessions + 3; ++i) view.sessions.add_sessions();
  const OrderedJson json = FleetOf({view})["coordinators"][0];
  EXPECT_EQ(json["sessions"].size(), static_cast<size_t>(kMaxFleetSessions));
  EXPECT_EQ(json["sessions_left_out"], 3);
}

}  // namespace
}  // namespace nacre::gateway
