// What goes wrong in the world.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/simulation/protocol/world.h"
#include "wire/session_codec.h"

namespace nacre::protocol {

using speculation::DraftDistribution;

void World::Inflict(const Fault& fault) {
  Process& process = processes_[static_cast<size_t>(fault.worker)];
  trace_.Add(now_ns_, "fault # at worker #", static_cast<int64_t>(fault.kind),
             fault.worker);
  if (fault.kind == Fault::Kind::kRestartCoordinator) {
    RestartCoordinator();
    return;
  }
  if (!process.alive()) return;
  ++counts_.faults;
  switch (fault.kind) {
    case Fault::Kind::kBreak:
      if (process.link != nullptr) Break(*process.link, random_.Percent(70));
      return;
    case Fault::Kind::kHang:
      process.hung_until_ns = now_ns_ + fault.duration_ns;
      return;
    case Fault::Kind::kHalfOpen:
      if (process.link != nullptr) {
        OpenHalf(*process.link, now_ns_ + fault.duration_ns);
      }
      return;
    case Fault::Kind::kSilence:
      process.hung_until_ns = now_ns_ + fault.duration_ns;
      if (process.link != nullptr) Watch(*process.link);
      return;
    case Fault::Kind::kCrash:
      Crash(process, random_.Percent(70), fault.duration_ns);
      return;
    case Fault::Kind::kDeviceError:
      process.device_broken = broke_device_ = true;
      return;
    case Fault::Kind::kDrain:
      if (process.link == nullptr) return;
      Drain(*process.link);
      if (fault.duration_ns > 0) {
        At(now_ns_ + fault.duration_ns, Event::Kind::kResume,
           process.link->index);
      }
      return;
    case Fault::Kind::kInject:
      Inject(process);
      return;
    case Fault::Kind::kRestartCoordinator:
      return;
  }
}

// ---------------------------------------------------------------- connections

// Nothing more goes through; what is on its way to the worker is lost, to the
// dispatcher sometimes. Each side notices in its own time.
void World::Break(Link& link, bool loses_events) {
  link.carries_commands = link.carries_events = false;
  link.target_commands.clear();
  link.draft_commands.clear();
  if (loses_events) link.events.clear();
  const int64_t last_event_ns =
      link.events.empty() ? now_ns_ : link.last_event_ns;
  At(std::max(last_event_ns, now_ns_ + random_.Between(0, 30 * kMillisecond)),
     Event::Kind::kLostAtDispatcher, link.index);
  At(now_ns_ + random_.Between(0, 30 * kMillisecond),
     Event::Kind::kLostAtWorker, link.index);
}

void World::LoseAtDispatcher(Link& link) {
  if (link.dispatcher_id == 0) return;
  trace_.Add(now_ns_, "the dispatcher loses stream # of worker #",
             link.index + 1, link.worker);
  for (const SessionOnWorker* session : link.sessions) {
    RequestState& request = *session->request;
    request.lost_target |= request.target == session;
  }
  dispatcher_->RemoveWorker(std::exchange(link.dispatcher_id, 0));
}

// One direction carries nothing more, and neither side is told. The worker
// notices at `noticed_ns`, the coordinator by its rule.
void World::OpenHalf(Link& link, int64_t noticed_ns) {
  if (!link.carries_commands || !link.carries_events) return;
  Watch(link);
  if (random_.Percent(50)) {
    link.carries_commands = false;
    if (random_.Percent(50)) {
      link.target_commands.clear();
      link.draft_commands.clear();
    }
  } else {
    link.carries_events = false;
    if (random_.Percent(50)) link.events.clear();
  }
  trace_.Add(now_ns_, "stream # carries commands: #, events: #", link.index + 1,
             link.carries_commands, link.carries_events);
  At(noticed_ns, Event::Kind::kLostAtWorker, link.index);
}

void World::Watch(Link& link) {
  if (link.dispatcher_id == 0 || std::exchange(link.watched, true)) return;
  link.heartbeat_ns = link.answer_ns = now_ns_;
  link.life.OnHeartbeat(now_ns_);
  link.life.OnAnswer(now_ns_);
  At(now_ns_ + schedule_.worker_timeout_ns / 4, Event::Kind::kWatch,
     link.index);
}

void World::CheckLife(Link& link) {
  if (link.dispatcher_id == 0) return;
  const Process& process = processes_[static_cast<size_t>(link.worker)];
  const bool speaks = process.link == &link && now_ns_ >= process.hung_until_ns;
  if (speaks && link.carries_events) {
    link.heartbeat_ns = now_ns_;
    link.life.OnHeartbeat(now_ns_);
    // A ping follows each heartbeat.
    if (link.carries_commands) {
      link.answer_ns = now_ns_;
      link.life.OnAnswer(now_ns_);
    }
  }
  const int64_t timeout_ns = schedule_.worker_timeout_ns;
  const int64_t heard_ns = std::min(link.heartbeat_ns, link.answer_ns);
  const bool lost = link.life.IsLost(now_ns_, timeout_ns);
  if (lost != (now_ns_ - heard_ns >= timeout_ns)) {
    checks_.Fail("worker ", link.worker, " was heard ", now_ns_ - heard_ns,
                 " ns ago and ", lost ? "counts" : "does not count",
                 " as lost after ", timeout_ns);
  }
  if (lost) {
    ++counts_.silenced;
    LoseAtDispatcher(link);
    // Its streams are cancelled: it hears of it if it can.
    if (std::exchange(link.carries_commands, false)) {
      At(now_ns_ + Delay(), Event::Kind::kLostAtWorker, link.index);
    }
  } else if (speaks && link.carries_commands && link.carries_events) {
    link.watched = false;
  } else {
    At(now_ns_ + timeout_ns / 4, Event::Kind::kWatch, link.index);
  }
}

void World::LoseAtWorker(Link& link) {
  Process& process = processes_[static_cast<size_t>(link.worker)];
  // Only the incarnation that opened it has sessions of it.
  if (!process.alive() || link.lost_at_worker) return;
  link.lost_at_worker = true;
  // What it ends, ends at the other side too, if that can be told.
  if (std::exchange(link.carries_events, false)) {
    At(std::max(link.last_event_ns,
                now_ns_ + random_.Between(0, 30 * kMillisecond)),
       Event::Kind::kLostAtDispatcher, link.index);
  }
  link.carries_commands = false;
  link.target_commands.clear();
  link.draft_commands.clear();
  trace_.Add(now_ns_, "worker # loses stream #", link.worker, link.index + 1);
  if (process.is_target()) {
    target_worker::TargetCommands commands;
    commands.stream = static_cast<uint64_t>(link.index) + 1;
    commands.stream_ended = true;
    if (process.running) {
      process.target_commands.push_back(std::move(commands));
    } else {
      process.target->Push(std::move(commands));
    }
  } else {
    draft_worker::DraftCommands commands;
    commands.stream = static_cast<uint64_t>(link.index) + 1;
    commands.stream_ended = true;
    if (process.running) {
      process.draft_commands.push_back(std::move(commands));
    } else {
      process.draft->Push(std::move(commands));
    }
  }
  if (!process.running) StartRun(process);
  if (process.link == &link) {
    process.link = nullptr;
    At(now_ns_ + random_.Between(0, 20 * kMillisecond), Event::Kind::kAttach,
       process.index, process.incarnation);
  }
}

void World::Crash(Process& process, bool loses_events, int64_t down_ns) {
  for (Link& link : links_) {
    if (link.worker != process.index) continue;
    if (link.carries_events) Break(link, loses_events);
    // The dispatcher is not told of the end of a half-open one.
    link.carries_commands = false;
    link.target_commands.clear();
    link.draft_commands.clear();
    link.lost_at_worker = true;
  }
  StopProcess(process);
  At(now_ns_ + down_ns, Event::Kind::kRestart, process.index);
}

void World::RestartCoordinator() {
  if (random_.Percent(50)) {  // it has time to say so
    for (RequestState& request : requests_) request.lost_target = true;
    dispatcher_->EndAll();
  }
  for (RequestState& request : requests_) {
    if (!request.started || request.ended) continue;
    request.ended = true;  // its client has lost the connection
    request.status = absl::UnavailableError("the coordinator is gone");
  }
  for (Link& link : links_) {
    link.dispatcher_id = 0;
    if (link.carries_events) Break(link, /*loses_events=*/true);
    link.events.clear();
  }
  NewDispatcher();
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
void World::Tamper(wire::DraftEvents& events, Link& link) {
  for (auto& [session_id, tail] : events.tails) {
    if (!random_.Percent(20)) continue;
    Find(link, session_id)->request->tampered = true;
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
    if (Find(link, session_id)->request->is_ratio() && random_.Percent(70)) {
      tail.distributions.resize(tail.token_ids.size(), Even());
    }
    tail.stop = static_cast<speculation::StopMark>(random_.Below(4));
  }
}

void World::Inject(Process& process) {
  Link* link = process.link;
  if (link == nullptr || link->dispatcher_id == 0) return;
  ++counts_.injected;
  SessionOnWorker* session =
      link->sessions.empty() ? nullptr
                             : link->sessions[static_cast<size_t>(random_.Below(
                                   static_cast<int>(link->sessions.size())))];
  if (random_.Percent(50)) {
    InjectEvents(*link, session);
  } else {
    InjectCommands(process, *link, session);
  }
}

// As if the worker had sent it.
void World::InjectEvents(Link& link, SessionOnWorker* session) {
  Events events;
  const bool is_target =
      processes_[static_cast<size_t>(link.worker)].is_target();
  // Whether this is the target that the session is on.
  bool runs = false;
  for (const coordinator::SessionStatus& status : dispatcher_->sessions()) {
    runs |= session != nullptr && status.id == session->session_id &&
            status.target_address == Address(link.worker);
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
        dispatcher_->OnEvents(link.dispatcher_id,
                              wire::Decode(wire::Encode(said)));
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
void World::InjectCommands(Process& process, Link& link,
                           SessionOnWorker* session) {
  const int kind = random_.Below(9);
  const uint64_t session_id =
      session == nullptr || kind == 0 ? 4711 : session->session_id;
  const int committed = session == nullptr ? 1 : session->committed;
  const uint32_t epoch = session == nullptr ? 1 : session->epoch;
  const uint64_t stream = static_cast<uint64_t>(link.index) + 1;
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
  process.min_rejected += counted;
  trace_.Add(now_ns_, "worker # gets an injected command of kind #",
             process.index, kind);
  if (process.running) {
    if (process.is_target()) {
      process.target_commands.push_back(std::move(target));
    } else {
      process.draft_commands.push_back(std::move(draft));
    }
    return;
  }
  // An idle engine does nothing about it but count it.
  const uint64_t rejected = process.rejected();
  const int64_t sent = process.events_sent;
  if (process.is_target()) {
    process.target->Push(std::move(target));
  } else {
    process.draft->Push(std::move(draft));
  }
  if (process.deadline_ns >= 0 && process.deadline_ns <= now_ns_) {
    StartRun(process);
    return;
  }
  process.clock_ns = now_ns_;
  const absl::StatusOr<worker::StepOutcome> outcome = RunOnce(process);
  if (!outcome.ok() || outcome->stepped || process.events_sent != sent ||
      process.rejected() < rejected + counted) {
    checks_.Fail("invariant 5: worker ", process.index,
                 " did not just count an injected command of kind ", kind);
  }
}

}  // namespace nacre::protocol
