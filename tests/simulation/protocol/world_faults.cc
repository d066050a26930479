// What goes wrong in the world.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/simulation/protocol/world.h"
#include "tests/simulation/protocol/world_tensors.h"
#include "wire/session_codec.h"

namespace nacre::protocol {

using speculation::DraftDistribution;

void World::Inflict(const Fault& fault) {
  Process& process = processes_[static_cast<size_t>(fault.worker)];
  trace_.Add(now_ns(), "fault # at worker #", static_cast<int64_t>(fault.kind),
             fault.worker);
  if (fault.is_of_worker() && !process.alive()) return;
  ++counts_.faults;
  switch (fault.kind) {
    case Fault::Kind::kRestartCoordinator:
    case Fault::Kind::kStopCoordinator:
      StopService(fault);
      return;
    case Fault::Kind::kPartition:
      CutOff(fault);
      return;
    case Fault::Kind::kCutClients:
      CutClients(fault.coordinator);
      return;
    default:
      Inflict(fault, process);
  }
}

void World::Inflict(const Fault& fault, Process& process) {
  Connection* const connection = process.connection(fault.coordinator);
  switch (fault.kind) {
    case Fault::Kind::kBreak:
      if (connection != nullptr) Break(*connection, random_.Percent(70));
      return;
    case Fault::Kind::kHang:
      process.hung_until_ns = now_ns() + fault.duration_ns;
      return;
    case Fault::Kind::kHalfOpen:
      if (connection != nullptr) {
        OpenHalf(*connection, now_ns() + fault.duration_ns);
      }
      return;
    case Fault::Kind::kSilence:
      process.hung_until_ns = now_ns() + fault.duration_ns;
      WatchAll(process);
      return;
    case Fault::Kind::kLateHeartbeats:
      process.quiet_until_ns = now_ns() + fault.duration_ns;
      WatchAll(process);
      return;
    case Fault::Kind::kCrash:
      Crash(process, random_.Percent(70), fault.duration_ns);
      return;
    case Fault::Kind::kDeviceError:
      WorkerOf(process).device_broken = broke_device_ = true;
      return;
    case Fault::Kind::kDrain:
      DrainProcess(process, connection);
      if (fault.duration_ns > 0 && connection != nullptr) {
        queue_.Post(now_ns() + fault.duration_ns,
                    [this, connection] { ResumeProcess(*connection); });
      }
      return;
    case Fault::Kind::kInject:
      Inject(process, connection);
      return;
    default:
      return;
  }
}

// ---------------------------------------------------------------- connections

void World::LoseAtWorkerSoon(Connection& connection, int64_t at_ns) {
  queue_.Post(at_ns, [this, &connection] { OnLostAtWorker(connection); });
}

void World::LoseAtDispatcherSoon(Connection& connection) {
  const int64_t last_event_ns =
      connection.events.empty() ? now_ns()
                                : connection.to_dispatcher.last_arrival_ns();
  queue_.Post(
      std::max(last_event_ns, now_ns() + random_.Between(0, 30 * kMillisecond)),
      [this, &connection] { LoseAtDispatcher(connection); });
}

// Nothing more goes through; what is on its way to the worker is lost, to the
// dispatcher sometimes. Each side notices in its own time.
void World::Break(Connection& connection, bool loses_events) {
  Cut(connection, loses_events);
  LoseAtDispatcherSoon(connection);
  LoseAtWorkerSoon(connection,
                   now_ns() + random_.Between(0, 30 * kMillisecond));
}

void World::OnLosing(Connection& connection) {
  trace_.Add(now_ns(), "the dispatcher loses stream # of worker #",
             connection.index + 1, connection.worker);
  for (const SessionOnWorker* session : StreamOf(connection).sessions) {
    RequestState& request = *session->request;
    if (request.target != session) continue;
    request.target = nullptr;
    request.lost_target = true;
    ++request.losses;
  }
}

// One direction carries nothing more, and neither side is told. The worker
// notices at `noticed_ns`, the coordinator by its rule.
void World::OpenHalf(Connection& connection, int64_t noticed_ns) {
  if (!connection.carries_commands || !connection.carries_events) return;
  Watch(connection);
  if (random_.Percent(50)) {
    connection.carries_commands = false;
    if (random_.Percent(50)) {
      connection.target_commands.clear();
      connection.draft_commands.clear();
    }
  } else {
    connection.carries_events = false;
    if (random_.Percent(50)) connection.events.clear();
  }
  trace_.Add(now_ns(), "stream # carries commands: #, events: #",
             connection.index + 1, connection.carries_commands,
             connection.carries_events);
  LoseAtWorkerSoon(connection, noticed_ns);
}

void World::WatchAll(Process& process) {
  for (Connection* const each : process.connections) {
    if (each != nullptr) Watch(*each);
  }
}

void World::Watch(Connection& connection) {
  Stream& stream = StreamOf(connection);
  if (connection.dispatcher_id == 0 || std::exchange(stream.watched, true)) {
    return;
  }
  stream.heartbeat_ns = stream.answer_ns = now_ns();
  stream.life.OnHeartbeat(now_ns());
  stream.life.OnAnswer(now_ns());
  queue_.Post(now_ns() + schedule_.worker_timeout_ns / 4,
              [this, &connection] { CheckLife(connection); });
}

void World::CheckLife(Connection& connection) {
  if (connection.dispatcher_id == 0) return;
  Stream& stream = StreamOf(connection);
  const Process& process = ProcessOf(connection);
  const bool speaks =
      process.connection(connection.coordinator) == &connection &&
      now_ns() >= process.hung_until_ns && now_ns() >= process.quiet_until_ns;
  if (speaks && connection.carries_events) {
    stream.heartbeat_ns = now_ns();
    stream.life.OnHeartbeat(now_ns());
    // A ping follows each heartbeat.
    if (connection.carries_commands) {
      stream.answer_ns = now_ns();
      stream.life.OnAnswer(now_ns());
    }
  }
  const int64_t timeout_ns = schedule_.worker_timeout_ns;
  const int64_t heard_ns = std::min(stream.heartbeat_ns, stream.answer_ns);
  const bool lost = stream.life.IsLost(now_ns(), timeout_ns);
  if (lost != (now_ns() - heard_ns >= timeout_ns)) {
    checks_.Fail("worker ", connection.worker, " was heard ",
                 now_ns() - heard_ns, " ns ago and ",
                 lost ? "counts" : "does not count", " as lost after ",
                 timeout_ns);
  }
  if (lost) {
    ++counts_.silenced;
    LoseAtDispatcher(connection);
    // Its streams are cancelled: it hears of it if it can.
    if (std::exchange(connection.carries_commands, false)) {
      const int64_t delay_ns = random_.Between(0, schedule_.hop_ns);
      LoseAtWorkerSoon(
          connection,
          now_ns() + (random_.Percent(schedule_.slow_percent) ? 30 * delay_ns
                                                              : delay_ns));
    }
  } else if (speaks && connection.carries_commands &&
             connection.carries_events) {
    stream.watched = false;
  } else {
    queue_.Post(now_ns() + timeout_ns / 4,
                [this, &connection] { CheckLife(connection); });
  }
}

void World::OnLostAtWorker(Connection& connection) {
  Process& process = ProcessOf(connection);
  // Only the incarnation that opened it has sessions of it.
  if (!process.alive() || connection.lost_at_worker) return;
  // What it ends, ends at the other side too, if that can be told.
  if (connection.carries_events) LoseAtDispatcherSoon(connection);
  trace_.Add(now_ns(), "worker # loses stream #", connection.worker,
             connection.index + 1);
  const bool believed =
      process.connection(connection.coordinator) == &connection;
  for (SessionOnWorker* session : StreamOf(connection).sessions) {
    session->is_over = true;
  }
  LoseAtWorker(connection);
  if (believed) {
    AtProcess(now_ns() + random_.Between(0, 20 * kMillisecond), process,
              &World::AttachWorker);
  }
}

void World::Crash(Process& process, bool loses_events, int64_t down_ns) {
  for (Connection& connection : connections_) {
    if (connection.worker != process.index) continue;
    if (connection.carries_events) Break(connection, loses_events);
    // The dispatcher is not told of the end of a half-open one.
    connection.carries_commands = false;
    connection.target_commands.clear();
    connection.draft_commands.clear();
    connection.lost_at_worker = true;
  }
  StopProcess(process);
  tensors_->OnStopped(process.index);
  queue_.Post(now_ns() + down_ns,
              [this, &process] { StartAndAttach(process); });
}

// The coordinator tells the worker, and that tells the others.
void World::DrainProcess(Process& process, Connection* told) {
  if (told == nullptr) return;
  WorkerOf(process).drains = true;
  for (Connection* const each : process.connections) {
    if (each == nullptr) continue;
    DrainSoon(*each, each == told ? 0 : schedule_.hop_ns);
  }
}

// Had it only seemed to hang, it says to all that it does not.
void World::ResumeProcess(Connection& told) {
  Resume(told);
  const Process& process = ProcessOf(told);
  if (process.connection(told.coordinator) != &told) return;
  WorkerOf(process).drains = false;
  for (Connection* const each : process.connections) {
    if (each != nullptr && each != &told) Resume(*each);
  }
}

void World::DrainSoon(Connection& connection, int64_t most_ns) {
  if (most_ns == 0) {
    Drain(connection);
    return;
  }
  queue_.Post(now_ns() + random_.Between(0, most_ns), [this, &connection] {
    if (connection.dispatcher_id == 0) return;
    if (WorkerOf(ProcessOf(connection)).drains) Drain(connection);
  });
}

void World::Drain(Connection& connection) {
  coordinator::Dispatcher* const of = dispatcher(connection.coordinator);
  const auto without_target = [of]() -> ptrdiff_t {
    if (of == nullptr) return 0;
    const std::vector<coordinator::SessionStatus> all = of->sessions();
    return std::count_if(all.begin(), all.end(), [](const auto& session) {
      return session.target_address.empty();
    });
  };
  const auto before = without_target();
  StreamOf(connection).drained = true;
  if (of != nullptr) of->DrainWorker(connection.dispatcher_id);
  if (without_target() > before) {
    checks_.Fail("worker ", connection.worker,
                 " drains, and a session is left without a target");
  }
}

void World::Resume(Connection& connection) {
  if (connection.dispatcher_id == 0 ||
      !std::exchange(StreamOf(connection).drained, false)) {
    return;
  }
  trace_.Add(now_ns(), "worker # takes sessions again", connection.worker);
  dispatcher(connection.coordinator)->ResumeWorker(connection.dispatcher_id);
}

// ------------------------------------------------- messages that change
// nothing

namespace {

DraftDistribution Even() {
  DraftDistribution distribution;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    distribution.token_ids.push_back(id);
    distribution.weights.push_back(1.0f);
  }
  return distribution;
}

// No distribution, or not of the token.
DraftDistribution Malformed(Random& random, int32_t token_id) {
  DraftDistribution distribution = Even();
  std::vector<int32_t>& ids = distribution.token_ids;
  std::vector<float>& weights = distribution.weights;
  switch (random.Below(6)) {
    case 0:
      weights[3] = random.OneOf({0.0f, -1.0f, HUGE_VALF, NAN});
      break;
    case 1:
      ids[2] = ids[5];
      break;
    case 2:
      ids.pop_back();
      break;
    case 3:
      return {};
    case 4:
      ids[static_cast<size_t>(token_id)] = kVocabSize;
      break;
    default:
      while (ids.size() <= size_t{speculation::kMaxDistribution}) {
        ids.push_back(static_cast<int32_t>(ids.size()));
        weights.push_back(1.0f);
      }
  }
  return distribution;
}

// Well formed or not, nothing was drawn from it.
void Spoil(Random& random, int32_t token_id, DraftDistribution* distribution) {
  switch (random.Below(8)) {
    case 0:
      *distribution = Malformed(random, token_id);
      break;
    case 1:
      *distribution = Even();
      break;
    case 2:
      distribution->weights[0] *= random.OneOf({1e-30f, 0.1f, 10.0f, 1e30f});
      break;
    case 3:
      distribution->token_ids.push_back(1 << 30);  // no target has it
      distribution->weights.push_back(1.0f);
      break;
    default:  // the token's, before that changed
      break;
  }
}

}  // namespace

// A token, a mark or a distribution that is another than the draft sent. By
// exact match only speed may suffer; by the ratio test also the law
// (docs/exactness.md), but never what can be emitted at all.
void World::Tamper(wire::DraftEvents* events, Connection& connection) {
  for (auto& [session_id, tail] : events->tails) {
    if (!random_.Percent(20)) continue;
    Find(connection, session_id)->request->tampered = true;
    for (int32_t& token_id : tail.token_ids) {
      token_id = random_.Below(kVocabSize);
    }
    // Perhaps one that the draft has no business to propose.
    if (random_.Percent(30)) {
      tail.token_ids.push_back(random_.Below(kVocabSize));
    }
    for (size_t i = 0; i < tail.distributions.size(); ++i) {
      Spoil(random_, tail.token_ids[i], &tail.distributions[i]);
    }
    if (Find(connection, session_id)->request->is_ratio() &&
        random_.Percent(70)) {
      tail.distributions.resize(tail.token_ids.size(), Even());
    }
    if (tail.is_tree()) {
      tail.parents.resize(tail.token_ids.size());
      tail.scores.resize(tail.token_ids.size());
      for (int32_t& parent : tail.parents) {
        if (random_.Percent(30)) parent = random_.Below(2 * tail.first_node);
      }
      if (random_.Percent(10)) tail.first_node = 1 + random_.Below(100);
    }
    tail.stop = static_cast<speculation::StopMark>(random_.Below(4));
  }
}

void World::Inject(Process& process, Connection* connection) {
  if (connection == nullptr || connection->dispatcher_id == 0) return;
  const std::vector<SessionOnWorker*>& sessions =
      StreamOf(*connection).sessions;
  ++counts_.injected;
  SessionOnWorker* session =
      sessions.empty() ? nullptr
                       : sessions[static_cast<size_t>(
                             random_.Below(static_cast<int>(sessions.size())))];
  if (random_.Percent(50)) {
    InjectEvents(*connection, session);
  } else {
    InjectCommands(process, *connection, session);
  }
}

// As if the worker had sent it.
void World::InjectEvents(Connection& connection, SessionOnWorker* session) {
  Events events;
  const bool is_target = ProcessOf(connection).is_target();
  // Whether this is the target that the session is on.
  bool runs = false;
  coordinator::Dispatcher& to = *dispatcher(connection.coordinator);
  for (const coordinator::SessionStatus& status : to.sessions()) {
    runs |= session != nullptr && !session->is_abandoned() &&
            status.id == session->session_id &&
            status.target_address == AddressOf(connection.worker);
  }
  // The dispatcher counts what names a session of this worker.
  bool counted = false;
  const uint64_t session_id = session == nullptr ? 4711 : session->session_id;
  const int kind = random_.Below(5);
  if (is_target) {
    speculation::Verdict verdict;
    if (session != nullptr) verdict = session->last_verdict;
    counted = true;
    if (kind == 0 || verdict.token_ids.empty()) {
      verdict.token_ids.clear();
    } else if (kind == 1) {
      verdict.base_length += 1000;
    } else if (kind == 2) {
      verdict.base_length = -1;
    }  // else once more
    events = wire::TargetEvents{
        .verdicts = {{.session_id = session_id, .verdict = verdict}}};
  } else {
    speculation::Tail tail;
    if (session != nullptr) tail = session->last_tail;
    if (kind == 0) {
      tail.epoch += 1000;
      counted = true;
    } else if (kind == 1) {
      tail.epoch -= 1;
      counted = true;
    }  // else once more
    events =
        wire::DraftEvents{.tails = {{.session_id = session_id, .tail = tail}}};
  }
  int emitted = 0;
  for (const RequestState& request : requests_) emitted += request.emitted;
  const int64_t sent = commands_sent_;
  std::visit(
      [&](const auto& said) {
        to.OnEvents(connection.dispatcher_id, wire::Decode(wire::Encode(said)));
      },
      events);
  for (const RequestState& request : requests_) emitted -= request.emitted;
  if (emitted != 0 || (counted && sent != commands_sent_)) {
    checks_.Fail("invariant 5: a stale or malformed message of kind ", kind,
                 " changed something");
  }
  if (runs && counted && is_target) ++session->request->injected_stale;
}

// As if the coordinator had sent it.
void World::InjectCommands(Process& process, Connection& connection,
                           SessionOnWorker* session) {
  const int kind = random_.Below(9);
  const uint64_t session_id =
      session == nullptr || kind == 0 ? 4711 : session->session_id;
  const int committed = session == nullptr ? 1 : session->committed;
  const uint32_t epoch = session == nullptr ? 1 : session->epoch;
  const uint64_t stream = static_cast<uint64_t>(connection.index) + 1;
  uint64_t counted = 1;
  target_worker::TargetCommands target;
  draft_worker::DraftCommands draft;
  target.stream = draft.stream = stream;
  if (process.is_target()) {
    speculation::Tail tail;
    tail.epoch = epoch;
    tail.base_length = committed;
    tail.first_position = committed;
    tail.token_ids = {1};
    const bool is_ratio = session != nullptr && session->request->is_ratio();
    if (is_ratio) tail.distributions = {Even()};
    switch (kind) {
      case 0:
        target.close.push_back(session_id);
        break;
      case 1:
        // Beyond each later opening of this session, also after many moves.
        tail.epoch += 1000;
        break;
      case 2:
        tail.base_length += 1000;
        break;
      case 3:
        tail.first_position += 1000;
        break;
      case 4:
        tail.token_ids = {kVocabSize};
        break;
      case 5:
        if (is_ratio) {
          tail.distributions = {Malformed(random_, tail.token_ids[0])};
          if (random_.Percent(30)) tail.distributions.clear();
          target.tails.push_back({session_id, tail});
        } else {
          target.draft_attached.push_back({session_id, epoch + 1, 0});
        }
        break;
      case 6:
        target.acknowledged.push_back({session_id, -5});
        counted = 0;
        break;
      case 7:
        tail.epoch -= 1;  // or far ahead
        break;
      default:
        tail.token_ids.resize(speculation::kMaxTailNodes + 1);
        target.tails.push_back({session_id, tail});
    }
    if ((kind >= 1 && kind <= 4) || kind == 7)
      target.tails.push_back({session_id, tail});
  } else {
    switch (kind) {
      case 0:
        draft.close.push_back(session_id);
        break;
      case 1:
        draft.commits.push_back({session_id, {5000, {1, 2}}});
        break;
      case 2:
        draft.commits.push_back({session_id, {-1, {1, 2, 3}}});
        break;
      case 3:
        draft.commits.push_back({session_id, {0, {}}});
        break;
      case 4:
      case 5:
        // Committed long ago.
        draft.commits.push_back(
            {session_id,
             {0, {session == nullptr ? 1 : session->request->token(0)}}});
        break;
      default:
        draft.commits.push_back({session_id, {0, {}}});
        draft.commits[0].commit.token_ids.resize(wire::kMaxStepTokens + 1);
    }
  }
  static_cast<wire::TargetCommands&>(target) =
      wire::Decode(wire::Encode(target));
  static_cast<wire::DraftCommands&>(draft) = wire::Decode(wire::Encode(draft));
  Worker& worker = WorkerOf(process);
  worker.min_rejected += counted;
  trace_.Add(now_ns(), "worker # gets an injected command of kind #",
             process.index, kind);
  const uint64_t rejected = process.engine().stats().rejected_messages;
  const int64_t sent = worker.events_sent;
  if (process.is_target()) {
    process.Push(std::move(target));
  } else {
    process.Push(std::move(draft));
  }
  if (process.is_stepping()) return;
  if (process.is_touched || now_ns() < process.hung_until_ns ||
      (process.deadline_ns >= 0 && process.deadline_ns <= now_ns())) {
    Touch(process);
    return;
  }
  // An idle engine does nothing about it but count it.
  const auto outcome = RunIdle(process);
  if (!outcome.has_value() || !outcome->ok() || (*outcome)->stepped ||
      worker.events_sent != sent ||
      process.engine().stats().rejected_messages < rejected + counted) {
    checks_.Fail("invariant 5: worker ", process.index,
                 " did not just count an injected command of kind ", kind);
  }
}

}  // namespace nacre::protocol
