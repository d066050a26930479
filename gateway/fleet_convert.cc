#include "gateway/fleet_convert.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/names.h"

namespace nacre::gateway {
namespace {

double NsToMs(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-6;
}

OrderedJson TimeOf(const v1::WorkerTime& time) {
  return {{"elapsed_ms", NsToMs(time.elapsed_ns())},
          {"prefill_ms", NsToMs(time.prefill_ns())},
          {"draft_ms", NsToMs(time.draft_ns())},
          {"verify_ms", NsToMs(time.verify_ns())},
          {"wait_draft_tokens_ms", NsToMs(time.wait_draft_tokens_ns())},
          {"wait_verdict_ms", NsToMs(time.wait_verdict_ns())},
          {"wait_acknowledge_ms", NsToMs(time.wait_acknowledge_ns())},
          {"no_work_ms", NsToMs(time.no_work_ns())}};
}

OrderedJson WorkerOf(const v1::WorkerInfo& worker) {
  const v1::Hello& hello = worker.hello();
  const v1::Heartbeat& heartbeat = worker.heartbeat();
  return {{"role", hello.role() == v1::WORKER_ROLE_DRAFT ? "draft" : "target"},
          {"address", hello.address()},
          {"incarnation", hello.incarnation()},
          {"model", hello.model_name()},
          {"numerics_id", hello.numerics_id()},
          {"vocabulary_share",
           hello.has_vocabulary_share() ? hello.vocabulary_share() : 1.0},
          {"ready", worker.ready()},
          {"draining", heartbeat.draining()},
          {"hung", heartbeat.hung()},
          {"sessions", worker.sessions()},
          {"max_sessions", worker.max_sessions()},
          {"steps", heartbeat.steps()},
          {"kv_free_tokens", heartbeat.kv_free_tokens()},
          {"kv_capacity_tokens", hello.kv_capacity_tokens()},
          {"heartbeat_age_ms", NsToMs(worker.heartbeat_age_ns())},
          {"time", TimeOf(heartbeat.time())}};
}

OrderedJson SessionOf(const v1::SessionInfo& session) {
  OrderedJson json = {{"request_id", session.request_id()},
                      {"choice", session.choice()},
                      {"method", std::string(MethodName(session.method()))},
                      {"prompt_tokens", session.prompt_tokens()},
                      {"generated_tokens", session.generated_tokens()},
                      {"target", session.target_address()},
                      {"draft", session.draft_address()},
                      {"queue_position", nullptr}};
  if (session.has_queue_position()) {
    json["queue_position"] = session.queue_position();
  }
  return json;
}

OrderedJson CoordinatorOf(const CoordinatorView& view) {
  if (!view.status.ok()) {
    return {{"address", view.address},
            {"error", absl::StrCat(view.status.message())}};
  }
  OrderedJson workers = OrderedJson::array();
  for (const v1::WorkerInfo& worker : view.workers.workers()) {
    workers.push_back(WorkerOf(worker));
  }
  OrderedJson sessions = OrderedJson::array();
  const int shown = std::min(view.sessions.sessions_size(), kMaxFleetSessions);
  for (int i = 0; i < shown; ++i) {
    sessions.push_back(SessionOf(view.sessions.sessions(i)));
  }
  return {{"address", view.address},
          {"error", nullptr},
          {"version", view.info.version()},
          {"draining", view.info.draining()},
          {"running_requests", view.info.running_requests()},
          {"queued_requests", view.info.queued_requests()},
          {"workers", std::move(workers)},
          {"sessions", std::move(sessions)},
          {"sessions_left_out", view.sessions.sessions_size() - shown}};
}

}  // namespace

OrderedJson FleetOf(const std::vector<CoordinatorView>& coordinators) {
  OrderedJson all = OrderedJson::array();
  for (const CoordinatorView& view : coordinators) {
    all.push_back(CoordinatorOf(view));
  }
  return {{"coordinators", std::move(all)}};
}

std::optional<ApiError> FleetRefused(
    const std::vector<CoordinatorView>& coordinators) {
  for (const CoordinatorView& view : coordinators) {
    if (absl::IsUnauthenticated(view.status) ||
        absl::IsPermissionDenied(view.status)) {
      return ErrorOf(view.status);
    }
  }
  return std::nullopt;
}

}  // namespace nacre::gateway
