// Several coordinators that share the workers of the world: how they die and
// return, how their clients go on elsewhere, and what is granted to them.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/resume_parser.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {
namespace {

// Of calls in a row that give a client nothing, though no coordinator was lost
// with them.
constexpr int kMaxVainCalls = 3;

}  // namespace

// -------------------------------------------------------------------- clients

// As clients of the service do (gateway/cut_answer.h): not by the ratio test,
// and with the oracle only from the beginning.
bool World::MayCallAgain(const RequestState& request,
                         const absl::Status& status) const {
  const coordinator::RequestSpec& spec = request.options->spec;
  if (!schedule_.is_shared() || request.cancelled || request.is_ratio()) {
    return false;
  }
  if (request.emitted > 0 &&
      spec.policy.kind() == speculation::PolicyKind::kOracle) {
    return false;
  }
  if (!absl::IsUnavailable(status) &&
      !(request.emitted > 0 && absl::IsResourceExhausted(status))) {
    return false;
  }
  return services_[static_cast<size_t>(request.coordinator)].stops ||
         request.vain_calls < kMaxVainCalls;
}

void World::CallAgainLater(RequestState& request) {
  queue_.Post(now_ns() + random_.Between(0, 20 * kMillisecond),
              [this, &request] { CallAgain(request); });
}

void World::CallAgain(RequestState& request) {
  if (request.ended) return;
  const int64_t deadline_ns = request.options->deadline_ns;
  if (deadline_ns >= 0 && now_ns() > deadline_ns) {
    checks_.OnError(request, absl::DeadlineExceededError("between two calls"));
    return;
  }
  for (int i = 0; i < schedule_.num_coordinators; ++i) {
    const int next = (turn_ + i) % schedule_.num_coordinators;
    if (dispatcher(next) == nullptr) continue;
    turn_ = next + 1;
    if (request.call > 0) {
      ++(request.emitted > 0 ? counts_.resumed : counts_.repeated);
    }
    trace_.Add(now_ns(), "client # calls coordinator # after # tokens",
               request.index, next, request.emitted);
    Call(request, next);
    return;
  }
  CallAgainLater(request);
}

bool World::LosesEnd(RequestState& request) {
  if (!request.options->loses_end || request.call > 0 ||
      !MayCallAgain(request, absl::UnavailableError("cut"))) {
    return false;
  }
  trace_.Add(now_ns(), "client # loses its completion", request.index);
  request.LoseCall();
  CallAgainLater(request);
  return true;
}

absl::Status World::GoOn(const RequestState& request,
                         coordinator::RequestSpec* spec) {
  if (request.emitted == 0) return absl::OkStatus();
  const absl::optional<coordinator::WorkerInfo> model =
      dispatcher(request.coordinator)->expected_model();
  if (!model.has_value()) return absl::UnavailableError("no model is served");
  coordinator::GenerateFields fields;
  fields.sampling.seed = spec->sampling.seed;
  fields.resume.emplace();
  fields.resume->choices.push_back({.token_ids = request.received});
  fields.resume->model_fingerprint = "target";
  fields.resume->numerics_id = request.numerics_id;
  return coordinator::ParseResume(fields, tokenizer_, *model, spec);
}

void World::LoseClients(int coordinator) {
  const absl::Status status = absl::UnavailableError("the coordinator is gone");
  for (RequestState& request : requests_) {
    if (!request.started || request.ended ||
        request.coordinator != coordinator) {
      continue;
    }
    // It is about to call again.
    if (schedule_.is_shared() && request.session_id == 0) continue;
    if (MayCallAgain(request, status)) {
      request.LoseCall();
      CallAgainLater(request);
      continue;
    }
    request.ended = true;
    request.status = status;
  }
}

// Those that can go on; of the others' end the coordinator would hear at once
// (Cancel).
void World::CutClients(int coordinator) {
  if (dispatcher(coordinator) == nullptr) return;
  ++counts_.faults;
  for (RequestState& request : requests_) {
    if (request.session_id == 0 || request.ended ||
        request.coordinator != coordinator ||
        !MayCallAgain(request, absl::UnavailableError("cut"))) {
      continue;
    }
    trace_.Add(now_ns(), "client # is cut off", request.index);
    const uint64_t number =
        coordinators_[static_cast<size_t>(coordinator)].number;
    queue_.Post(now_ns() + random_.Between(0, 30 * kMillisecond),
                [this, coordinator, number, id = request.session_id] {
                  const simulation::Coordinator& of =
                      coordinators_[static_cast<size_t>(coordinator)];
                  if (of.dispatcher != nullptr && of.number == number) {
                    of.dispatcher->Cancel(id);
                  }
                });
    request.LoseCall();
    CallAgainLater(request);
  }
}

// --------------------------------------------------------------- coordinators

void World::StopService(const Fault& fault) {
  const int index = fault.coordinator;
  if (dispatcher(index) == nullptr) return;
  ServiceOf(index).stops = true;
  if (random_.Percent(50)) {  // it has time to say so
    for (RequestState& request : requests_) {
      request.lost_target |= request.coordinator == index;
    }
    dispatcher(index)->EndAll();
  }
  LoseClients(index);
  for (Connection& connection : connections_) {
    if (connection.coordinator != index) continue;
    connection.dispatcher_id = 0;
    if (connection.carries_events) Break(connection, /*loses_events=*/true);
    connection.events.clear();
  }
  if (!schedule_.is_shared()) {
    Restart(index);
    return;
  }
  ++counts_.lost_coordinators;
  trace_.Add(now_ns(), "coordinator # dies", index);
  coordinators_[static_cast<size_t>(index)].dispatcher.reset();
  queue_.Post(now_ns() + fault.duration_ns, [this, index] {
    trace_.Add(now_ns(), "coordinator # is back", index);
    Restart(index);
  });
}

void World::CutOff(const Fault& fault) {
  if (dispatcher(fault.coordinator) == nullptr) return;
  ++counts_.faults;
  trace_.Add(now_ns(), "coordinator # is cut off from its workers",
             fault.coordinator);
  ServiceOf(fault.coordinator).cut_off_until_ns = now_ns() + fault.duration_ns;
  for (const Process& process : processes_) {
    Connection* const connection = process.connection(fault.coordinator);
    if (connection != nullptr && connection->carries_events) {
      Break(*connection, random_.Percent(70));
    }
  }
}

bool World::CanReach(const Process& process, int coordinator) {
  return dispatcher(coordinator) != nullptr &&
         now_ns() >= ServiceOf(coordinator).cut_off_until_ns &&
         process.HasLeft(coordinator);
}

// --------------------------------------------------------------------- grants

int64_t World::SharedKvOf(const Process& process) const {
  return schedule_.is_shared() ? OptionsOf(process.index).kv_capacity_tokens
                               : 0;
}

// Until no request is left that could wait for room. Where it takes that long,
// nothing is left to happen but the end of a time limit.
int64_t World::HeartbeatPeriodNs() const {
  const bool goes_on =
      std::any_of(requests_.begin(), requests_.end(),
                  [](const RequestState& request) { return !request.ended; });
  if (!goes_on) return 0;
  return now_ns() < 500 * kMillisecond ? schedule_.heartbeat_ns
                                       : 500 * kMillisecond;
}

void World::OnGranted(Connection& connection,
                      const coordinator::KvGrant& grant) {
  Stream& stream = StreamOf(connection);
  if (stream.grant_serial == grant.serial) return;
  trace_.Add(now_ns(), "worker # grants # to coordinator #", connection.worker,
             grant.tokens, connection.coordinator);
  ++counts_.grants;
  stream.grant_serial = grant.serial;
  stream.granted = grant.tokens;
  CheckShares(ProcessOf(connection));
}

// What the coordinators that the worker knows may promise, or have promised,
// is there.
void World::CheckShares(const Process& process) {
  const worker::KvGrants& grants = *process.grants;
  if (grants.total_held() > grants.capacity()) {
    checks_.Fail("worker ", process.index, " grants ", grants.total_held(),
                 " of ", grants.capacity());
  }
  int64_t sum = 0;
  for (const Connection* const each : process.connections) {
    if (each == nullptr || each->dispatcher_id == 0) continue;
    int64_t reserved = 0;
    for (const coordinator::WorkerStatus& worker :
         dispatcher(each->coordinator)->workers()) {
      if (worker.id == each->dispatcher_id) reserved = worker.reserved_tokens;
    }
    const int64_t granted = StreamOf(*each).granted;
    counts_.held_back += granted < reserved ? 1 : 0;
    sum += std::max(granted, reserved);
  }
  if (sum > grants.capacity()) {
    checks_.Fail("worker ", process.index, " has KV for ", grants.capacity(),
                 " tokens, its coordinators have ", sum);
  }
}

// Nothing is held for a coordinator that is gone.
void World::CheckGrantsAtEnd(const Process& process) {
  if (!process.grants.has_value()) return;
  int64_t held = 0;
  for (const Connection* const each : process.connections) {
    if (each == nullptr) continue;
    held += process.grants->held(each->coordinator_number);
  }
  if (held != process.grants->total_held()) {
    checks_.Fail("worker ", process.index, " holds ",
                 process.grants->total_held(), " for its coordinators, ", held,
                 " for those that are there");
  }
}

void World::CheckRefusals(const Connection& connection,
                          const wire::SessionEvents& events) {
  if (!schedule_.is_shared()) return;
  for (const wire::SessionFailure& failure : events.failures) {
    if (!absl::IsResourceExhausted(failure.status)) continue;
    checks_.Fail("worker ", connection.worker, " has no room for session ",
                 failure.session_id, " of coordinator ", connection.coordinator,
                 ": ", failure.status.ToString());
  }
}

}  // namespace nacre::protocol
