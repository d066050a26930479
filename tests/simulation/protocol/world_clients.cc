// The clients of the world, and the coordinators that they talk to.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/failover.h"
#include "coordinator/fleet/kv_ledger.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {

void World::Restart(int coordinator) {
  ServiceOf(coordinator) = Service();
  StartCoordinator(coordinator,
                   {.tokenizer = &tokenizer_,
                    .failover_timeout_ns = schedule_.failover_timeout_ns,
                    .max_running = schedule_.max_running,
                    .queue_timeout_ns = schedule_.queue_timeout_ns,
                    .hold_without_target = schedule_.hold_without_target,
                    .draft_rows = schedule_.draft_rows,
                    .tree_rows = schedule_.tree_rows},
                   schedule_.ClockOf(coordinator));
}

// A client's stream of chunks: reads them one by one, in its own time. It hears
// nothing of a call that it has lost.
class World::Sink final : public coordinator::ResponseSink {
 public:
  Sink(World* world, RequestState* request)
      : world_(world), request_(request), call_(request->call) {}

  void OnChunk(const coordinator::Chunk& chunk) override {
    if (is_lost()) return;
    world_->trace_.Add(
        world_->now_ns(), "client # gets # tokens from #", request_->index,
        static_cast<int64_t>(chunk.token_ids.size()), chunk.first_index);
    world_->checks_.OnChunk(*request_, chunk);
    if (request_->pending_chunks++ == 0) {
      world_->queue_.Post(world_->now_ns() + request_->options->read_ns,
                          [world = world_, request = request_, call = call_] {
                            if (request->call == call) world->Read(*request);
                          });
    }
  }
  void OnComplete(const coordinator::RequestSpec&,
                  const coordinator::Completion& completion) override {
    if (is_lost() || world_->LosesEnd(*request_)) return;
    world_->trace_.Add(world_->now_ns(), "client # completes with # tokens",
                       request_->index,
                       static_cast<int64_t>(completion.token_ids.size()));
    world_->checks_.OnComplete(*request_, completion);
  }
  void OnError(const absl::Status& status) override {
    if (is_lost()) return;
    world_->trace_.Add(world_->now_ns(), "client # ends with status #",
                       request_->index, static_cast<int64_t>(status.code()));
    world_->OnFailed(*request_, status);
  }
  int pending_chunks() const override {
    return is_lost() ? 0 : request_->pending_chunks;
  }
  int64_t taken_chunks() const override { return request_->taken_chunks; }

 private:
  bool is_lost() const { return request_->call != call_; }

  World* const world_;
  RequestState* const request_;
  const int call_;
};

const LogitTable& World::TargetTable(int numerics) const {
  return LogitTable::Target((schedule_.table + numerics) % kNumTables);
}

void World::OnOpened(const SessionOnWorker& session, int numerics) {
  RequestState& request = *session.request;
  ++request.num_targets;
  request.call_targets += session.is_abandoned() ? 0 : 1;
  if (schedule_.drains_many && request.call_targets > 1) ++counts_.moved;
  const std::string& wanted = request.options->spec.numerics_id;
  if (!wanted.empty() && wanted != NumericsId(numerics)) {
    checks_.Fail("request ", request.index, " asks for ", wanted,
                 " and is opened on ", NumericsId(numerics));
  }
  if (request.numerics == numerics) return;
  if (request.numerics >= 0) {
    checks_.Fail("request ", request.index, " goes on with other numerics");
    return;
  }
  request.numerics = numerics;
  request.table = &TargetTable(numerics);
  if (!request.is_ratio()) {
    request.expected = ExpectedOutput(*request.table, request.options->spec);
  }
  request.oracle_knows = numerics == 0 && request.options->oracle_is_right;
}

// By its seed, which no two requests share: ids may clash.
RequestState* World::FindRequest(const coordinator::RequestSpec& spec) {
  for (RequestState& request : requests_) {
    if (request.options->spec.sampling.seed == spec.sampling.seed) {
      return &request;
    }
  }
  checks_.Fail("a worker is told of an unknown request");
  return &requests_[0];
}

bool World::HasReadyTarget(int coordinator, const std::string& numerics_id) {
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const Connection& each) {
        return each.coordinator == coordinator && each.dispatcher_id != 0 &&
               !StreamOf(each).drained && ProcessOf(each).is_target() &&
               (numerics_id.empty() ||
                numerics_id == NumericsId(OptionsOf(each.worker).numerics));
      });
}

bool World::HasOtherTarget(const RequestState& request) {
  const coordinator::RequestSpec& spec = request.options->spec;
  const int64_t need =
      coordinator::KvLedger::Need(request.prompt_length() + spec.max_tokens);
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const Connection& each) {
        const WorkerOptions& options = OptionsOf(each.worker);
        return each.coordinator == request.coordinator &&
               each.dispatcher_id != 0 && !StreamOf(each).drained &&
               !each.lost_at_worker && ProcessOf(each).is_target() &&
               (request.numerics < 0 || options.numerics == request.numerics) &&
               options.kv_capacity_tokens >= need;
      });
}

void World::Arrive(RequestState& request) {
  trace_.Add(now_ns(), "request # arrives", request.index);
  request.started = true;
  if (schedule_.is_shared()) {
    CallAgain(request);
  } else {
    Call(request, /*coordinator=*/0);
  }
}

void World::Call(RequestState& request, int coordinator) {
  const bool waits =
      HasReadyTarget(coordinator, /*numerics_id=*/"") ||
      (ServiceOf(coordinator).had_target && schedule_.hold_without_target);
  const int call = request.call;
  request.coordinator = coordinator;
  request.call_ns = now_ns();
  request.resumed = request.emitted;
  coordinator::RequestSpec spec = request.options->spec;
  if (schedule_.is_shared()) {
    spec.request_id = absl::StrCat("r", request.index, "-", call);
  }
  bool taken = false;
  for (const RequestState& other : requests_) {
    taken |= &other != &request && other.session_id != 0 && !other.ended &&
             other.call_ids.back() == spec.request_id;
  }
  request.call_ids.resize(static_cast<size_t>(call) + 1);
  request.call_ids.back() = spec.request_id;
  if (request.options->deadline_ns >= 0) {
    spec.deadline_ns =
        1 + request.options->deadline_ns + schedule_.ClockOf(coordinator);
  }
  if (const absl::Status status = GoOn(request, &spec); !status.ok()) {
    OnFailed(request, status, !waits && absl::IsUnavailable(status));
    return;
  }
  // It lacked only its end.
  if (spec.resume != nullptr && spec.resume->front().ended != nullptr) {
    checks_.OnComplete(request, *spec.resume->front().ended);
    return;
  }
  JoinQueue(request, spec);
  const absl::StatusOr<uint64_t> id =
      dispatcher(coordinator)
          ->Start(std::move(spec), std::make_shared<Sink>(this, &request));
  if (request.call != call) return;  // it has failed in there
  if (id.ok()) {
    if (taken) checks_.Fail("a request id is running twice");
    request.session_id = *id;
    if (request.emitted > 0 && request.call_targets == 0 &&
        dispatcher(coordinator)->queued().size() > 1) {
      ++counts_.waiting_resumes;
    }
    return;
  }
  trace_.Add(now_ns(), "request # is refused with status #", request.index,
             static_cast<int64_t>(id.status().code()));
  OnFailed(request, id.status(),
           (taken && absl::IsAlreadyExists(id.status())) ||
               (!waits && absl::IsUnavailable(id.status())));
}

void World::JoinQueue(const RequestState& request,
                      const coordinator::RequestSpec& spec) {
  ServiceOf(request.coordinator)
      .queue.Arrive({.request = request.index,
                     .number = request.call,
                     .resumes = spec.resume != nullptr,
                     .kv_need = coordinator::KvLedger::Need(
                         request.prompt_length() + spec.max_tokens),
                     .numerics_id = spec.numerics_id});
}

void World::CheckTurn(const SessionOnWorker& session,
                      const Connection& connection) {
  QueueOrder& queue = ServiceOf(connection.coordinator).queue;
  const auto is_gone = [this](const QueueOrder::Call& call) {
    const RequestState& request = requests_[static_cast<size_t>(call.request)];
    return request.ended || request.call != call.number;
  };
  queue.Prune(is_gone);
  const WorkerOptions& options = OptionsOf(connection.worker);
  const std::vector<QueueOrder::Call> passed =
      queue.Start(session.request->index, session.call,
                  {options.kv_capacity_tokens, NumericsId(options.numerics)});
  for (const QueueOrder::Call& other : passed) {
    // Perhaps it has just left the queue, or starts elsewhere.
    queue_.Post(now_ns(), [this, is_gone, other, by = session.request->index] {
      const RequestState& late = requests_[static_cast<size_t>(other.request)];
      if (is_gone(other) || late.call_targets > 0) return;
      checks_.Fail("request ", by, " starts before ", other.request, ", which ",
                   other.resumes ? "resumes its answer" : "waits since before",
                   " and was passed ", other.passes, " times");
    });
  }
}

void World::OnFailed(RequestState& request, const absl::Status& status,
                     bool has_reason) {
  if (!has_reason && !HasReason(request, status)) {
    checks_.Fail("request ", request.index,
                 " ends without a reason: ", status.ToString());
  }
  if (!MayCallAgain(request, status)) {
    checks_.OnError(request, status);
    return;
  }
  if (!ServiceOf(request.coordinator).stops) ++request.vain_calls;
  request.LoseCall();
  CallAgainLater(request);
}

// Every documented end has a reason.
bool World::HasReason(const RequestState& request, const absl::Status& status) {
  const coordinator::RequestSpec& spec = request.options->spec;
  if (schedule_.drains_many &&
      (absl::IsUnavailable(status) || absl::IsResourceExhausted(status))) {
    return false;
  }
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return request.cancelled;
    case absl::StatusCode::kUnavailable:
      // Its target was lost, not drained.
      if (request.call_targets > 0 && request.lost_target) {
        return !HasTimeToGoOn(request);
      }
      // It moved to one that had not the room it said, since a lost stream
      // still held that, until the time was over.
      if (request.refused_ns >= 0 &&
          now_ns() - request.refused_ns >= schedule_.failover_timeout_ns) {
        return true;
      }
      // There was none when its time was over.
      return request.call_targets == 0 &&
             !HasReadyTarget(request.coordinator, spec.numerics_id) &&
             now_ns() >= request.call_ns + schedule_.queue_timeout_ns;
    case absl::StatusCode::kDeadlineExceeded:
      return request.options->deadline_ns >= 0 &&
             now_ns() > request.options->deadline_ns;
    case absl::StatusCode::kInternal:
      return broke_device_ && !HasOtherTarget(request);
    case absl::StatusCode::kFailedPrecondition:
      return LacksKind(request);
    case absl::StatusCode::kResourceExhausted:
      return LacksRoom(request);
    default:
      return false;
  }
}

// Long after faults have stopped, a request that lost its target must be on
// another if there is one, or lose one target after the other.
bool World::HasTimeToGoOn(const RequestState& request) {
  return schedule_.is_shared() && !ServiceOf(request.coordinator).stops &&
         schedule_.failover_timeout_ns == kNoStarvation &&
         request.losses <= coordinator::Failover::kMaxLossesInARow &&
         HasOtherTarget(request);
}

// No target is of its kind, or at its start no draft had the file that its
// policy needs.
bool World::LacksKind(const RequestState& request) {
  const coordinator::RequestSpec& spec = request.options->spec;
  const std::string& kind =
      request.resumed > 0 ? request.numerics_id : spec.numerics_id;
  if (!kind.empty() && request.call_targets == 0 &&
      !HasReadyTarget(request.coordinator, kind)) {
    return true;
  }
  if (!spec.policy.needs_file() || request.emitted > 0) return false;
  return std::any_of(schedule_.workers.begin(), schedule_.workers.end(),
                     [](const WorkerOptions& worker) {
                       return worker.role == coordinator::WorkerRole::kDraft &&
                              !worker.has_policy_files;
                     });
}

bool World::LacksRoom(const RequestState& request) {
  // Once a target was to open it, it waits for room, also where that had none.
  if (request.call_targets > 0) return false;
  // Where its time is no reason, no target is large enough.
  if (schedule_.queue_timeout_ns == kNoStarvation) {
    return !HasOtherTarget(request);
  }
  // What its coordinator may use of a target changes with the others' needs.
  if (schedule_.is_shared()) return true;
  // Else there is KV for all requests at once. But sessions that move back and
  // forth hold it wherever they have been, until that worker says that they are
  // closed.
  const bool kv_is_scarce =
      std::any_of(schedule_.workers.begin(), schedule_.workers.end(),
                  [](const WorkerOptions& worker) {
                    return worker.role == coordinator::WorkerRole::kTarget &&
                           worker.has_little_kv;
                  }) ||
      std::count_if(schedule_.faults.begin(), schedule_.faults.end(),
                    [](const Fault& fault) {
                      return fault.kind == Fault::Kind::kDrain;
                    }) >= 3;
  return (kv_is_scarce || schedule_.max_running > 0) && !HasFreeRoom(request);
}

// One that lost its target goes on before others start.
bool World::IsKept(const RequestState& request, int numerics) const {
  return std::any_of(
      requests_.begin(), requests_.end(), [&](const RequestState& other) {
        return &other != &request && other.session_id != 0 && !other.ended &&
               other.coordinator == request.coordinator &&
               other.call_targets > 0 && other.target == nullptr &&
               other.numerics == numerics;
      });
}

bool World::HasFreeRoom(const RequestState& request) {
  const int64_t need = coordinator::KvLedger::Need(
      request.prompt_length() + request.options->spec.max_tokens);
  const auto workers = dispatcher(request.coordinator)->workers();
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const Connection& each) {
        if (each.coordinator != request.coordinator ||
            each.dispatcher_id == 0 || StreamOf(each).drained ||
            !ProcessOf(each).is_target()) {
          return false;
        }
        const int numerics = OptionsOf(each.worker).numerics;
        const std::string& kind = request.options->spec.numerics_id;
        if ((!kind.empty() && kind != NumericsId(numerics)) ||
            IsKept(request, numerics)) {
          return false;
        }
        const auto at = std::find_if(workers.begin(), workers.end(),
                                     [&](const auto& worker) {
                                       return worker.id == each.dispatcher_id;
                                     });
        const bool has_place =
            schedule_.max_running == 0 ||
            StreamOf(each).at_coordinator.count() < schedule_.max_running;
        return at != workers.end() && has_place &&
               OptionsOf(each.worker).kv_capacity_tokens -
                       at->reserved_tokens >=
                   need;
      });
}

void World::Cancel(RequestState& request) {
  if (request.ended || !request.started) return;
  if (request.session_id == 0 && !schedule_.is_shared()) return;
  trace_.Add(now_ns(), "client # cancels", request.index);
  request.cancelled = true;
  if (request.session_id == 0) {
    checks_.OnError(request, absl::CancelledError("between two calls"));
    return;
  }
  dispatcher(request.coordinator)->Cancel(request.session_id);
  if (!request.ended) {
    checks_.Fail("request ", request.index, " goes on after its cancel");
  }
}

void World::Read(RequestState& request) {
  ++request.taken_chunks;
  if (--request.pending_chunks > 0) {
    queue_.Post(now_ns() + request.options->read_ns,
                [this, &request, call = request.call] {
                  if (request.call == call) Read(request);
                });
  } else if (!request.ended) {
    dispatcher(request.coordinator)->OnSinkDrained(request.session_id);
  }
}

}  // namespace nacre::protocol
