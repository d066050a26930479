// The clients of the world, and the coordinator that they talk to.

#include <algorithm>
#include <memory>
#include <utility>

#include "coordinator/fleet/kv_ledger.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {

void World::Restart() {
  had_target_ = false;
  NewDispatcher({.tokenizer = &tokenizer_,
                 .failover_timeout_ns = schedule_.failover_timeout_ns,
                 .queue_timeout_ns = schedule_.queue_timeout_ns,
                 .hold_without_target = schedule_.hold_without_target,
                 .draft_rows = schedule_.draft_rows,
                 .tree_rows = schedule_.tree_rows},
                schedule_.coordinator_clock_ns);
}

// A client's stream of chunks: reads them one by one, in its own time.
class World::Sink final : public coordinator::ResponseSink {
 public:
  Sink(World* world, RequestState* request)
      : world_(world), request_(request) {}

  void OnChunk(const coordinator::Chunk& chunk) override {
    world_->trace_.Add(
        world_->now_ns(), "client # gets # tokens from #", request_->index,
        static_cast<int64_t>(chunk.token_ids.size()), chunk.first_index);
    world_->checks_.OnChunk(*request_, chunk);
    if (request_->pending_chunks++ == 0) {
      world_->queue_.Post(
          world_->now_ns() + request_->options->read_ns,
          [world = world_, request = request_] { world->Read(*request); });
    }
  }
  void OnComplete(const coordinator::RequestSpec&,
                  const coordinator::Completion& completion) override {
    world_->trace_.Add(world_->now_ns(), "client # completes with # tokens",
                       request_->index,
                       static_cast<int64_t>(completion.token_ids.size()));
    world_->checks_.OnComplete(*request_, completion);
  }
  void OnError(const absl::Status& status) override {
    world_->trace_.Add(world_->now_ns(), "client # ends with status #",
                       request_->index, static_cast<int64_t>(status.code()));
    world_->checks_.OnError(*request_, status);
    world_->OnEnded(*request_);
  }
  int pending_chunks() const override { return request_->pending_chunks; }
  int64_t taken_chunks() const override { return request_->taken_chunks; }

 private:
  World* const world_;
  RequestState* const request_;
};

const LogitTable& World::TargetTable(int numerics) const {
  return LogitTable::Target((schedule_.table + numerics) % kNumTables);
}

void World::OnOpened(RequestState& request, int numerics) {
  ++request.num_targets;
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

bool World::HasReadyTarget(const std::string& numerics_id) {
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const Connection& each) {
        return each.dispatcher_id != 0 && !StreamOf(each).drained &&
               ProcessOf(each).is_target() &&
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
        return each.dispatcher_id != 0 && !StreamOf(each).drained &&
               !each.lost_at_worker && ProcessOf(each).is_target() &&
               options.numerics == request.numerics &&
               options.kv_capacity_tokens >= need;
      });
}

void World::Arrive(RequestState& request) {
  trace_.Add(now_ns(), "request # arrives", request.index);
  const bool waits = HasReadyTarget(/*numerics_id=*/"") ||
                     (had_target_ && schedule_.hold_without_target);
  bool taken = false;
  for (const RequestState& other : requests_) {
    taken |= other.started && !other.ended &&
             other.options->spec.request_id == request.options->spec.request_id;
  }
  request.started = true;
  coordinator::RequestSpec spec = request.options->spec;
  if (request.options->deadline_ns >= 0) {
    spec.deadline_ns =
        1 + request.options->deadline_ns + schedule_.coordinator_clock_ns;
  }
  const absl::StatusOr<uint64_t> id = dispatcher_->Start(
      std::move(spec), std::make_shared<Sink>(this, &request));
  if (id.ok()) {
    if (taken) checks_.Fail("a request id is running twice");
    request.session_id = *id;
    return;
  }
  trace_.Add(now_ns(), "request # is refused with status #", request.index,
             static_cast<int64_t>(id.status().code()));
  request.status = id.status();
  if (!(taken && absl::IsAlreadyExists(id.status())) &&
      !(!waits && absl::IsUnavailable(id.status()))) {
    OnEnded(request);
  }
  request.ended = true;
  request.status = id.status();
}

// Every documented end has a reason.
void World::OnEnded(RequestState& request) {
  const coordinator::RequestSpec& spec = request.options->spec;
  switch (request.status.code()) {
    case absl::StatusCode::kCancelled:
      if (request.cancelled) return;
      break;
    case absl::StatusCode::kUnavailable:
      // Its target was lost, not drained.
      if (request.num_targets > 0 && request.lost_target) return;
      // It moved to one that had not the room it said, since a lost stream
      // still held that, until the time was over.
      if (request.refused_ns >= 0 &&
          now_ns() - request.refused_ns >= schedule_.failover_timeout_ns) {
        return;
      }
      // There was none when its time was over.
      if (request.num_targets == 0 && !HasReadyTarget(spec.numerics_id) &&
          now_ns() > request.options->arrival_ns + schedule_.queue_timeout_ns) {
        return;
      }
      break;
    case absl::StatusCode::kDeadlineExceeded:
      if (request.options->deadline_ns >= 0 &&
          now_ns() > request.options->deadline_ns) {
        return;
      }
      break;
    case absl::StatusCode::kInternal:
      if (broke_device_ && !HasOtherTarget(request)) return;
      break;
    case absl::StatusCode::kFailedPrecondition:
      if (!spec.numerics_id.empty() && request.num_targets == 0 &&
          !HasReadyTarget(spec.numerics_id)) {
        return;
      }
      // At its start no draft had the file that its policy needs.
      if (!spec.policy.needs_file() || request.emitted > 0) break;
      for (const WorkerOptions& worker : schedule_.workers) {
        if (worker.role == coordinator::WorkerRole::kDraft &&
            !worker.has_policy_files) {
          return;
        }
      }
      break;
    case absl::StatusCode::kResourceExhausted:
      // Once it has run, it waits for room, wherever it ran.
      if (request.num_refusals < request.num_targets) break;
      for (const WorkerOptions& worker : schedule_.workers) {
        if (worker.role == coordinator::WorkerRole::kTarget &&
            worker.has_little_kv) {
          return;
        }
      }
      break;
    default:
      break;
  }
  checks_.Fail("request ", request.index,
               " ends without a reason: ", request.status.ToString());
}

void World::Cancel(RequestState& request) {
  if (request.ended || request.session_id == 0) return;
  trace_.Add(now_ns(), "client # cancels", request.index);
  request.cancelled = true;
  dispatcher_->Cancel(request.session_id);
  if (!request.ended) {
    checks_.Fail("request ", request.index, " goes on after its cancel");
  }
}

void World::Read(RequestState& request) {
  ++request.taken_chunks;
  if (--request.pending_chunks > 0) {
    queue_.Post(now_ns() + request.options->read_ns,
                [this, &request] { Read(request); });
  } else if (!request.ended) {
    dispatcher_->OnSinkDrained(request.session_id);
  }
}

}  // namespace nacre::protocol
