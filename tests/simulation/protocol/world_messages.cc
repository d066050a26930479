// What the checks see of the messages of the world.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {

using coordinator::WorkerRole;

SessionOnWorker& World::Opened(Connection& connection, uint64_t session_id,
                               const coordinator::RequestSpec& request,
                               int length, uint32_t epoch) {
  std::vector<SessionOnWorker*>& sessions = StreamOf(connection).sessions;
  counts_.returned += std::any_of(sessions.begin(), sessions.end(),
                                  [session_id](const SessionOnWorker* session) {
                                    return session->session_id == session_id;
                                  });
  SessionOnWorker& session = sessions_.emplace_back();
  session.request = FindRequest(request);
  const std::vector<std::string>& calls = session.request->call_ids;
  session.call = static_cast<int>(
      std::find(calls.begin(), calls.end(), request.request_id) -
      calls.begin());
  session.session_id = session_id;
  session.role = ProcessOf(connection).role;
  session.epoch = epoch;
  session.opened_length = session.committed = length;
  sessions.push_back(&session);
  return session;
}

void World::OnOpening(Connection& connection,
                      const coordinator::TargetOpening& opening) {
  const std::vector<int32_t> token_ids = opening.token_ids();
  SessionOnWorker& session =
      Opened(connection, opening.session_id, *opening.request,
             static_cast<int>(token_ids.size()), opening.epoch);
  StreamOf(connection).at_coordinator.Open(opening.session_id);
  CheckTurn(session, connection);
  OnOpened(session, OptionsOf(connection.worker).numerics);
  if (opening.has_draft && !session.request->is_ratio() && !schedule_.tampers) {
    session.told.emplace(session.opened_length);
    session.right.emplace(session.opened_length);
  }
  checks_.OnOpened(session, token_ids);
}

void World::OnOpening(Connection& connection,
                      const coordinator::DraftOpening& opening) {
  const std::vector<int32_t> token_ids = opening.token_ids();
  SessionOnWorker& session =
      Opened(connection, opening.session_id, *opening.request,
             static_cast<int>(token_ids.size()), opening.epoch);
  const DraftKind kind = OptionsOf(connection.worker).draft_kind;
  const bool may_grow_tree = schedule_.drafts_have_slots;
  session.perfect = kind == DraftKind::kPerfect &&
                    session.request->numerics == 0 &&
                    !(may_grow_tree && opening.request->tree.ranks_by_q());
  session.table = &LogitTable::Draft(schedule_.table, kind);
  session.request->perfect_drafts &= session.perfect;
  ++session.request->num_drafts;
  if (schedule_.GrowsTree(session.request->index)) {
    session.tree.emplace(simulation::MixBits(schedule_.seed) +
                             opening.session_id * 64 + opening.epoch,
                         session.perfect || session.request->oracle_knows);
  }
  checks_.OnOpened(session, token_ids);
}

void World::OnClosing(Connection& connection, uint64_t session_id) {
  // What a target says of a session that was taken from it is void.
  for (const SessionOnWorker* session : StreamOf(connection).sessions) {
    if (session->session_id == session_id &&
        session->request->target == session) {
      session->request->target = nullptr;
    }
  }
}

SessionOnWorker* World::Find(Connection& connection, uint64_t session_id) {
  const std::vector<SessionOnWorker*>& sessions = StreamOf(connection).sessions;
  for (auto it = sessions.rbegin(); it != sessions.rend(); ++it) {
    if ((*it)->session_id == session_id && (*it)->reached) return *it;
  }
  return nullptr;
}

SessionOnWorker* World::Reach(Connection& connection, uint64_t session_id) {
  for (SessionOnWorker* session : StreamOf(connection).sessions) {
    if (session->session_id == session_id && !session->reached) {
      session->reached = true;
      return session;
    }
  }
  checks_.Fail("a worker opens a session that nobody opened");
  return &sessions_.emplace_back();
}

void World::OnArrived(Connection& connection,
                      const wire::TargetCommands& commands) {
  Process& process = ProcessOf(connection);
  if (WorkerOf(process).looks) {
    WorkerOf(process).arrived.emplace_back(&connection, commands);
    return;
  }
  trace_.Add(now_ns(), "worker # gets # tails, # opens, # closes",
             process.index, static_cast<int64_t>(commands.tails.size()),
             static_cast<int64_t>(commands.open.size()),
             static_cast<int64_t>(commands.close.size()));
  for (const auto& open : commands.open) {
    WorkerOf(process).opening.push_back(Reach(connection, open.session_id));
    OpenSessions& sessions = StreamOf(connection).at_worker;
    sessions.Open(open.session_id);
    counts_.full += sessions.count() == schedule_.max_running ? 1 : 0;
    if (schedule_.max_running > 0 && sessions.count() > schedule_.max_running) {
      checks_.Fail("target ", process.index, " has ", sessions.count(),
                   " sessions of coordinator ", connection.coordinator,
                   ", it may have ", schedule_.max_running);
    }
  }
  for (const auto& attach : commands.draft_attached) {
    SessionOnWorker* session = Find(connection, attach.session_id);
    if (session == nullptr || attach.opened_length < 1) continue;
    session->epoch = std::max(session->epoch, attach.epoch);
    // One that holds its last row is still in its step.
    session->attached_in_step |= session->verifies || process.is_stepping();
    session->told.reset();  // its account is of two drafts
    session->right.reset();
  }
  for (const uint64_t session_id : commands.draft_lost) {
    SessionOnWorker* session = Find(connection, session_id);
    if (session == nullptr) continue;
    session->told.reset();
    session->right.reset();
  }
  for (const wire::SessionTail& said : commands.tails) {
    SessionOnWorker* session = Find(connection, said.session_id);
    if (session != nullptr && session->told.has_value() &&
        said.tail.epoch == session->epoch) {
      session->told->OnArrived(*session->request, said.tail);
      session->right->OnArrived(*session->request, said.tail);
    }
  }
}

void World::OnArrived(Connection& connection,
                      const wire::DraftCommands& commands) {
  const Process& process = ProcessOf(connection);
  trace_.Add(now_ns(), "worker # gets # commits, # opens, # closes",
             process.index, static_cast<int64_t>(commands.commits.size()),
             static_cast<int64_t>(commands.open.size()),
             static_cast<int64_t>(commands.close.size()));
  for (const auto& open : commands.open) {
    SessionOnWorker* session = Reach(connection, open.session_id);
    // Longer ones are refused before a sequence is made for them.
    if (static_cast<int>(open.token_ids.size()) <=
        OptionsOf(connection.worker).context_length) {
      WorkerOf(process).opening.push_back(session);
    }
    session->told_length = static_cast<int>(open.token_ids.size());
  }
  for (const auto& [session_id, commit] : commands.commits) {
    SessionOnWorker* session = Find(connection, session_id);
    if (session == nullptr) continue;
    session->told_length = std::max(
        session->told_length,
        commit.first_position + static_cast<int>(commit.token_ids.size()));
  }
  for (const uint64_t session_id : commands.close) {
    SessionOnWorker* session = Find(connection, session_id);
    if (session != nullptr) session->is_over = true;
  }
}

void World::OnSaid(Connection& connection, wire::TargetEvents* events) {
  Worker& worker = WorkerOf(ProcessOf(connection));
  for (const auto& [session_id, verdict, logprobs] : events->verdicts) {
    SessionOnWorker* session = Find(connection, session_id);
    if (session == nullptr) {
      checks_.Fail("a verdict on an unknown session ", session_id);
      return;
    }
    trace_.Add(now_ns(), "target: request # at # commits #, matched #",
               session->request->index, verdict.base_length,
               static_cast<int64_t>(verdict.token_ids.size()), verdict.matched);
    checks_.OnVerdict(*session, verdict);
  }
  StreamOf(connection).at_worker.Note(events->common);
  worker.failures_sent += static_cast<int64_t>(events->common.failures.size());
  ++worker.events_sent;
  CheckRefusals(connection, events->common);
  CheckFailures(events->common);
}

void World::GrowTree(SessionOnWorker& session, speculation::Tail* tail) {
  if (!session.tree.has_value() || tail->token_ids.empty() || tail->is_tree() ||
      checks_.failed()) {
    return;
  }
  std::vector<std::pair<uint64_t, int32_t>> made;
  session.tree->Write(session.sequence->hash(tail->first_position), tail,
                      &made);
  for (const auto& [prefix, token_id] : made) {
    session.request->drafted.insert(
        DraftedKey(prefix, token_id, session.epoch));
  }
  counts_.nodes += static_cast<int64_t>(made.size());
}

void World::OnSaid(Connection& connection, wire::DraftEvents* events) {
  Worker& worker = WorkerOf(ProcessOf(connection));
  for (auto& [session_id, tail] : events->tails) {
    SessionOnWorker* session = Find(connection, session_id);
    if (session == nullptr) {
      checks_.Fail("a tail of an unknown session ", session_id);
      return;
    }
    trace_.Add(now_ns(), "draft: request # base #, # tokens at #",
               session->request->index, tail.base_length,
               static_cast<int64_t>(tail.token_ids.size()),
               tail.first_position);
    counts_.drafted += static_cast<int64_t>(tail.token_ids.size());
    counts_.policy_stops += tail.stop == speculation::StopMark::kChunk ||
                                    tail.stop == speculation::StopMark::kPolicy
                                ? 1
                                : 0;
    checks_.OnTail(*session, tail);
    if (tail.is_tree()) {
      const int64_t count = static_cast<int64_t>(tail.token_ids.size());
      counts_.tree_nodes += count;
      counts_.ended_trees += tail.stop == speculation::StopMark::kPolicy;
      if (session->request->options->spec.method !=
          speculation::Method::kAsync) {
        counts_.other_trees += count;
      }
    }
    GrowTree(*session, &tail);
  }
  for (const wire::SessionRanks& ranks : events->ranks) {
    const SessionOnWorker* session = Find(connection, ranks.session_id);
    if (session == nullptr) {
      checks_.Fail("ranks of an unknown session ", ranks.session_id);
      return;
    }
    checks_.OnRanks(*session, ranks);
    counts_.ranks += static_cast<int64_t>(ranks.ranks.size());
  }
  worker.failures_sent += static_cast<int64_t>(events->common.failures.size());
  ++worker.events_sent;
  CheckRefusals(connection, events->common);
  CheckFailures(events->common);
  if (schedule_.tampers && connection.carries_events) {
    Tamper(events, connection);
  }
}

void World::CheckFailures(const wire::SessionEvents& events) {
  for (const wire::SessionFailure& failure : events.failures) {
    const absl::string_view why = failure.status.message();
    if (!absl::StrContains(why, "slot") && !absl::StrContains(why, "a path")) {
      continue;
    }
    checks_.Fail("session ", failure.session_id,
                 " fails: ", failure.status.ToString());
  }
}

template <typename Said>
std::shared_ptr<const void> World::SpeakersOf(
    Connection& connection, const Said& said,
    const wire::SessionEvents& common) {
  auto speakers = std::make_shared<Speakers>();
  for (const auto& each : said) {
    speakers->push_back(Find(connection, each.session_id));
  }
  for (const wire::SessionFailure& failure : common.failures) {
    SessionOnWorker* session = Find(connection, failure.session_id);
    if (session == nullptr) {
      checks_.Fail("an unknown session ", failure.session_id, " fails");
      session = &sessions_.emplace_back();
    }
    speakers->push_back(session);
  }
  return speakers;
}

std::shared_ptr<const void> World::NoteOf(Connection& connection,
                                          const wire::TargetEvents& events) {
  return SpeakersOf(connection, events.verdicts, events.common);
}

std::shared_ptr<const void> World::NoteOf(Connection& connection,
                                          const wire::DraftEvents& events) {
  return SpeakersOf(connection, events.tails, events.common);
}

void World::OnCodecError(Connection& connection) {
  checks_.Fail("the wire changes what is said on stream ",
               connection.index + 1);
}

void World::OnHeard(Connection& connection, const void* note,
                    const wire::TargetEvents& events) {
  Stream& stream = StreamOf(connection);
  stream.answer_ns = now_ns();
  stream.life.OnAnswer(now_ns());
  stream.at_coordinator.Note(events.common);
  auto speaker = static_cast<const Speakers*>(note)->begin();
  for (const auto& [session_id, verdict, logprobs] : events.verdicts) {
    SessionOnWorker& session = **speaker++;
    RequestState& request = *session.request;
    if (request.target == &session) {
      session.last_verdict = verdict;
      request.lost_target = false;
      request.losses = 0;
      request.refused_ns = -1;
      checks_.OnDelivered(session, verdict);
    } else if (std::count(stream.sessions.begin(), stream.sessions.end(),
                          request.target) > 0) {
      ++counts_.late;
    }
  }
  for (const wire::SessionFailure& failure : events.common.failures) {
    HearFailure(**speaker++, failure.status.code());
  }
}

void World::OnHeard(Connection& connection, const void* note,
                    const wire::DraftEvents& events) {
  Stream& stream = StreamOf(connection);
  stream.answer_ns = now_ns();
  stream.life.OnAnswer(now_ns());
  auto speaker = static_cast<const Speakers*>(note)->begin();
  for (const auto& [session_id, tail] : events.tails) {
    (*speaker++)->last_tail = tail;
  }
  for (const wire::SessionFailure& failure : events.common.failures) {
    HearFailure(**speaker++, failure.status.code());
  }
}

// What the coordinator makes of it may depend on it.
void World::HearFailure(SessionOnWorker& session, absl::StatusCode code) {
  RequestState& request = *session.request;
  if (request.target != &session) return;
  request.target = nullptr;
  if (code == absl::StatusCode::kResourceExhausted) {
    if (request.refused_ns < 0) request.refused_ns = now_ns();
  } else {
    request.lost_target = true;
    ++request.losses;
  }
}

}  // namespace nacre::protocol
