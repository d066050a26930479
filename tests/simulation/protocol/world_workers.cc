// The worker processes of the world: their steps under virtual time and their
// connections.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/policies.h"
#include "tests/simulation/protocol/world.h"
#include "tests/simulation/protocol/world_client.h"
#include "tests/simulation/protocol/world_tensors.h"
#include "wire/session_codec.h"

namespace nacre::protocol {

using coordinator::WorkerRole;

std::string World::Address(int worker) {
  return absl::StrCat("worker", worker);
}

void World::StartProcess(Process& process) {
  const WorkerOptions& options = *process.options;
  ++process.incarnation;
  process.clock_ns = now_ns_;
  process.model = std::make_unique<SimulatedModel>(SimulatedModel::Options{
      .table = process.is_target()
                   ? &TargetTable(options.numerics)
                   : &LogitTable::Draft(schedule_.table, options.draft_kind),
      .kv_capacity_tokens = options.kv_capacity_tokens,
      .block_size = options.block_size,
      .shares_prefixes = options.shares_prefixes,
      // Some do; one that comes back may have changed its mind.
      .draws_tokens =
          (static_cast<uint64_t>(process.index) + process.incarnation) % 2 == 0,
      .context_length = options.context_length,
      .is_interruptible = options.is_interruptible,
      .next_session = [this, &process]() -> SessionOnWorker* {
        if (process.opening.empty()) {
          checks_.Fail("worker ", process.index,
                       " makes a sequence that nobody opened");
          return &sessions_.emplace_back();
        }
        SessionOnWorker* session = process.opening.front();
        process.opening.pop_front();
        return session;
      },
      .on_sequence =
          [](SimulatedSequence* sequence, bool lives) {
            sequence->session->sequence = lives ? sequence : nullptr;
          },
      .on_forward =
          [this, &process](absl::Span<const model::SequenceRows> batch) {
            return OnForward(process, batch);
          },
      .on_interrupted =
          [this](absl::Span<const model::SequenceRows> batch) {
            checks_.OnAbandoned(batch);
          },
      .on_fed_again =
          [this](const SimulatedSequence& sequence, int position) {
            checks_.OnFedAgain(sequence, position);
          }});
  const auto now_ns = [&process] {
    return process.clock_ns + process.options->clock_offset_ns;
  };
  if (process.is_target()) {
    process.target = std::make_unique<target_worker::TargetEngine>(
        target_worker::TargetEngine::Options{
            .model = process.model.get(),
            .send =
                [this, &process](worker::StreamId stream,
                                 target_worker::TargetEvents events) {
                  Send(process, stream, std::move(events));
                },
            .now_ns = now_ns,
            .budget = options.budget,
            .tensors = tensors_->PublisherOf(process.index)});
  } else {
    process.draft = std::make_unique<draft_worker::DraftEngine>(
        draft_worker::DraftEngine::Options{
            .model = process.model.get(),
            .send =
                [this, &process](worker::StreamId stream,
                                 draft_worker::DraftEvents events) {
                  Send(process, stream, std::move(events));
                },
            .now_ns = now_ns,
            .policies = &Library(options.has_policy_files),
            .tensors = tensors_->ReaderOf(process.index),
            .budget = options.budget});
  }
}

void World::StopProcess(Process& process) {
  if (!process.alive()) return;
  process.target.reset();
  process.draft.reset();
  process.model.reset();
  process.link = nullptr;
  process.running = process.draining = process.device_broken = false;
  process.hung_until_ns = 0;
  process.deadline_ns = -1;
  process.min_rejected = 0;
  tensors_->OnStopped(process.index);
  process.failures_sent = 0;
  process.target_commands.clear();
  process.draft_commands.clear();
  process.opening.clear();
}

void World::Attach(Process& process) {
  if (process.link != nullptr || process.draining) return;
  // The registry ends an older attachment of the same address first.
  for (Link& link : links_) {
    if (link.worker == process.index) LoseAtDispatcher(link);
  }
  Link& link = links_.emplace_back();
  link.index = static_cast<int>(links_.size()) - 1;
  link.worker = process.index;
  process.link = &link;
  coordinator::WorkerInfo info;
  info.role = process.options->role;
  info.address = Address(process.index);
  info.incarnation = absl::StrCat(process.incarnation);
  info.fingerprint = process.is_target() ? "target" : "draft";
  info.numerics_id = NumericsId(process.options->numerics);
  info.model_vocab_size = info.tokenizer_vocab_size = kVocabSize;
  info.context_length = process.options->context_length;
  info.abandons_steps =
      !process.is_target() && process.options->is_interruptible;
  info.eos_token_ids = {kEos};
  info.kv_capacity_tokens = process.options->kv_capacity_tokens;
  info.policy_files = Library(process.options->has_policy_files).files();
  if (random_.Percent(50)) {
    info.step_times_ns = {{1, process.options->step_ns}};
  }
  trace_.Add(now_ns_, "worker # attaches, incarnation #, stream #",
             process.index, static_cast<int64_t>(process.incarnation),
             link.index + 1);
  const absl::StatusOr<uint64_t> id =
      process.is_target()
          ? dispatcher_->AddTarget(std::move(info),
                                   std::make_shared<TargetClient>(this, &link))
          : dispatcher_->AddDraft(std::move(info),
                                  std::make_shared<DraftClient>(this, &link));
  if (!id.ok()) {
    checks_.Fail("worker ", process.index,
                 " is refused: ", id.status().ToString());
    return;
  }
  link.dispatcher_id = *id;
  had_target_ |= process.is_target();
  link.life.OnAttached(now_ns_);
}

void World::Drain(Link& link) {
  const auto without_target = [this] {
    const std::vector<coordinator::SessionStatus> all = dispatcher_->sessions();
    return std::count_if(all.begin(), all.end(), [](const auto& session) {
      return session.target_address.empty();
    });
  };
  const auto before = without_target();
  link.drained = true;
  dispatcher_->DrainWorker(link.dispatcher_id);
  if (without_target() > before) {
    checks_.Fail("worker ", link.worker,
                 " drains, and a session is left without a target");
  }
}

void World::Resume(Link& link) {
  if (link.dispatcher_id == 0 || !std::exchange(link.drained, false)) return;
  trace_.Add(now_ns_, "worker # takes sessions again", link.worker);
  dispatcher_->ResumeWorker(link.dispatcher_id);
}

SessionOnWorker* World::Find(Link& link, uint64_t session_id) {
  for (auto it = link.sessions.rbegin(); it != link.sessions.rend(); ++it) {
    if ((*it)->session_id == session_id && (*it)->reached) return *it;
  }
  return nullptr;
}

SessionOnWorker* World::Reach(Link& link, uint64_t session_id) {
  for (SessionOnWorker* session : link.sessions) {
    if (session->session_id == session_id && !session->reached) {
      session->reached = true;
      return session;
    }
  }
  checks_.Fail("a worker opens a session that nobody opened");
  return &sessions_.emplace_back();
}

// ---------------------------------------------------------------------- steps

void World::StartRun(Process& process) {
  const int64_t step_ns = process.options->step_ns;
  process.running = true;
  process.deadline_ns = -1;
  process.run_start_ns = now_ns_;
  At(now_ns_ + random_.Between(step_ns, 2 * step_ns), Event::Kind::kRun,
     process.index, process.incarnation);
}

void World::RunProcess(Process& process) {
  if (now_ns_ < process.hung_until_ns) {
    At(process.hung_until_ns, Event::Kind::kRun, process.index,
       process.incarnation);
    return;
  }
  process.clock_ns = process.run_start_ns;
  const absl::StatusOr<worker::StepOutcome> outcome = RunOnce(process);
  process.clock_ns = now_ns_;
  process.running = false;
  if (!outcome.ok()) {
    Crash(process, /*loses_events=*/false, 20 * kMillisecond);
    return;
  }
  checks_.BetweenSteps(*process.model);
  const bool arrived =
      !process.target_commands.empty() || !process.draft_commands.empty();
  HandOver(process);
  if (outcome->stepped || arrived) {
    StartRun(process);
  } else if (outcome->deadline_ns.has_value()) {
    process.deadline_ns = std::max(
        now_ns_, *outcome->deadline_ns - process.options->clock_offset_ns);
    At(process.deadline_ns, Event::Kind::kDeadline, process.index,
       process.incarnation);
  }
}

absl::StatusOr<worker::StepOutcome> World::RunOnce(Process& process) {
  return process.target != nullptr ? process.target->RunOnce()
                                   : process.draft->RunOnce();
}

absl::Status World::OnForward(Process& process,
                              absl::Span<const model::SequenceRows> batch) {
  trace_.Add(process.clock_ns, "worker # steps # sessions until # us",
             process.index, static_cast<int64_t>(batch.size()), now_ns_ / 1000);
  if (process.is_target()) {
    ++counts_.steps;
    checks_.OnTargetForward(batch);
  } else {
    checks_.OnDraftForward(batch);
  }
  process.clock_ns = now_ns_;
  HandOver(process);
  if (process.device_broken) return absl::InternalError("the device is gone");
  return absl::OkStatus();
}

void World::HandOver(Process& process) {
  for (auto& commands : process.target_commands) {
    for (const auto& attach : commands.draft_attached) {
      SessionOnWorker* session =
          Find(links_[commands.stream - 1], attach.session_id);
      if (session != nullptr) session->attached_in_step = true;
    }
    Push(process, std::move(commands));
  }
  for (auto& commands : process.draft_commands) {
    Push(process, std::move(commands));
  }
  process.target_commands.clear();
  process.draft_commands.clear();
}

void World::Push(Process& process, target_worker::TargetCommands commands) {
  Link& link = links_[commands.stream - 1];
  for (const auto& open : commands.open) {
    process.opening.push_back(Reach(link, open.session_id));
  }
  for (const auto& attach : commands.draft_attached) {
    SessionOnWorker* session = Find(link, attach.session_id);
    if (session != nullptr && attach.opened_length >= 1) {
      session->epoch = std::max(session->epoch, attach.epoch);
      // One that holds its last row is still in its step.
      session->attached_in_step |= session->verifies;
    }
  }
  process.target->Push(std::move(commands));
}

void World::Push(Process& process, draft_worker::DraftCommands commands) {
  Link& link = links_[commands.stream - 1];
  for (const auto& open : commands.open) {
    SessionOnWorker* session = Reach(link, open.session_id);
    // Longer ones are refused before a sequence is made for them.
    if (static_cast<int>(open.token_ids.size()) <=
        process.options->context_length) {
      process.opening.push_back(session);
    }
  }
  process.draft->Push(std::move(commands));
}

// ------------------------------------------------------------------- messages

void World::DeliverCommand(Link& link) {
  Process& process = processes_[static_cast<size_t>(link.worker)];
  if (link.target_commands.empty() && link.draft_commands.empty()) return;
  if (process.is_target()) {
    auto commands = std::move(link.target_commands.front());
    link.target_commands.pop_front();
    trace_.Add(now_ns_, "worker # gets # tails, # opens, # closes",
               process.index, static_cast<int64_t>(commands.tails.size()),
               static_cast<int64_t>(commands.open.size()),
               static_cast<int64_t>(commands.close.size()));
    if (process.running) {
      process.target_commands.push_back(std::move(commands));
      return;
    }
    Push(process, std::move(commands));
  } else {
    auto commands = std::move(link.draft_commands.front());
    link.draft_commands.pop_front();
    trace_.Add(now_ns_, "worker # gets # commits, # opens, # closes",
               process.index, static_cast<int64_t>(commands.commits.size()),
               static_cast<int64_t>(commands.open.size()),
               static_cast<int64_t>(commands.close.size()));
    if (process.running) {
      process.draft_commands.push_back(std::move(commands));
      return;
    }
    Push(process, std::move(commands));
  }
  StartRun(process);
}

void World::Send(Process& process, worker::StreamId stream,
                 target_worker::TargetEvents events) {
  Link& link = links_[stream - 1];
  for (const auto& [session_id, verdict, logprobs] : events.verdicts) {
    SessionOnWorker* session = Find(link, session_id);
    if (session == nullptr) {
      checks_.Fail("a verdict on an unknown session ", session_id);
      return;
    }
    trace_.Add(now_ns_, "target: request # at # commits #, matched #",
               session->request->index, verdict.base_length,
               static_cast<int64_t>(verdict.token_ids.size()), verdict.matched);
    checks_.OnVerdict(*session, verdict);
  }
  process.failures_sent += static_cast<int64_t>(events.common.failures.size());
  Queue(process, link, std::move(events));
}

void World::Send(Process& process, worker::StreamId stream,
                 draft_worker::DraftEvents events) {
  Link& link = links_[stream - 1];
  for (const auto& [session_id, tail] : events.tails) {
    SessionOnWorker* session = Find(link, session_id);
    if (session == nullptr) {
      checks_.Fail("a tail of an unknown session ", session_id);
      return;
    }
    trace_.Add(now_ns_, "draft: request # base #, # tokens at #",
               session->request->index, tail.base_length,
               static_cast<int64_t>(tail.token_ids.size()),
               tail.first_position);
    counts_.drafted += static_cast<int64_t>(tail.token_ids.size());
    counts_.policy_stops += tail.stop == speculation::StopMark::kChunk ||
                                    tail.stop == speculation::StopMark::kPolicy
                                ? 1
                                : 0;
    checks_.OnTail(*session, tail);
  }
  process.failures_sent += static_cast<int64_t>(events.common.failures.size());
  Queue(process, link, std::move(events));
}

template <typename Said>
std::vector<SessionOnWorker*> World::Speakers(
    Link& link, const Said& said, const wire::SessionEvents& common) {
  std::vector<SessionOnWorker*> speakers;
  for (const auto& each : said) {
    speakers.push_back(Find(link, each.session_id));
  }
  for (const wire::SessionFailure& failure : common.failures) {
    SessionOnWorker* session = Find(link, failure.session_id);
    if (session == nullptr) {
      checks_.Fail("an unknown session ", failure.session_id, " fails");
      session = &sessions_.emplace_back();
    }
    speakers.push_back(session);
  }
  return speakers;
}

namespace {

const auto& Said(const wire::TargetEvents& events) { return events.verdicts; }
const auto& Said(const wire::DraftEvents& events) { return events.tails; }

}  // namespace

template <typename Message>
void World::Queue(Process& process, Link& link, Message events) {
  ++process.events_sent;
  if (!link.carries_events) return;
  if (schedule_.tampers) Tamper(events, link);
  Message arrives = wire::Decode(wire::Encode(events));
  if (!schedule_.tampers && arrives != events) {
    checks_.Fail("the wire changes what worker ", process.index, " says");
  }
  link.last_event_ns =
      std::max({link.last_event_ns, now_ns_, process.clock_ns + Delay()});
  std::vector<SessionOnWorker*> speakers =
      Speakers(link, Said(arrives), arrives.common);
  link.events.push_back({std::move(arrives), std::move(speakers)});
  At(link.last_event_ns, Event::Kind::kMessage, link.index);
}

void World::DeliverMessage(Link& link) {
  if (link.events.empty()) return;
  Link::Message message = std::move(link.events.front());
  link.events.pop_front();
  if (link.dispatcher_id == 0) return;
  link.answer_ns = now_ns_;
  link.life.OnAnswer(now_ns_);
  std::visit(
      [&](auto& said) { Deliver(link, message.speakers, std::move(said)); },
      message.events);
}

void World::Deliver(Link& link, const std::vector<SessionOnWorker*>& speakers,
                    wire::TargetEvents events) {
  auto speaker = speakers.begin();
  for (const auto& [session_id, verdict, logprobs] : events.verdicts) {
    SessionOnWorker& session = **speaker++;
    RequestState& request = *session.request;
    if (request.target == &session) {
      session.last_verdict = verdict;
      request.lost_target = false;
      request.refused_ns = -1;
      checks_.OnDelivered(session, verdict);
    } else if (std::count(link.sessions.begin(), link.sessions.end(),
                          request.target) > 0) {
      ++counts_.late;
    }
  }
  for (const wire::SessionFailure& failure : events.common.failures) {
    HearFailure(**speaker++, failure.status.code());
  }
  dispatcher_->OnEvents(link.dispatcher_id, std::move(events));
}

void World::Deliver(Link& link, const std::vector<SessionOnWorker*>& speakers,
                    wire::DraftEvents events) {
  auto speaker = speakers.begin();
  for (const auto& [session_id, tail] : events.tails) {
    (*speaker++)->last_tail = tail;
  }
  for (const wire::SessionFailure& failure : events.common.failures) {
    HearFailure(**speaker++, failure.status.code());
  }
  dispatcher_->OnEvents(link.dispatcher_id, std::move(events));
}

// What the coordinator makes of it may depend on it.
void World::HearFailure(SessionOnWorker& session, absl::StatusCode code) {
  RequestState& request = *session.request;
  if (request.target != &session) return;
  request.target = nullptr;
  if (code == absl::StatusCode::kResourceExhausted) {
    ++request.num_refusals;
    if (request.refused_ns < 0) request.refused_ns = now_ns_;
  } else {
    request.lost_target = true;
  }
}

}  // namespace nacre::protocol
