#include "tests/simulation/protocol/world.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/world_tensors.h"

namespace nacre::protocol {
namespace {

// Virtual time within which everything has ended after the last fault, however
// slow the workers and the network: the slowest schedules need a tenth of it.
constexpr int64_t kMaxTail = 120'000 * kMillisecond;
constexpr int64_t kMaxEvents = 1'000'000;

const LetterTokenizer& SharedTokenizer() {
  static const LetterTokenizer& tokenizer = *new LetterTokenizer();
  return tokenizer;
}

}  // namespace

void Counts::Add(const Counts& other) {
  events += other.events;
  steps += other.steps;
  drafted += other.drafted;
  accepted += other.accepted;
  completed += other.completed;
  cancelled += other.cancelled;
  unavailable += other.unavailable;
  exhausted += other.exhausted;
  deadline_exceeded += other.deadline_exceeded;
  other_errors += other.other_errors;
  reattached += other.reattached;
  rejected += other.rejected;
  injected += other.injected;
  faults += other.faults;
  cached += other.cached;
  silenced += other.silenced;
  returned += other.returned;
  late += other.late;
  policy_stops += other.policy_stops;
  unservable += other.unservable;
  hidden += other.hidden;
  by_ratio += other.by_ratio;
  holds += other.holds;
}

std::string Describe(const Counts& counts) {
  return absl::StrCat(
      counts.events, " events, ", counts.steps, " target steps, ",
      counts.drafted, " drafted, ", counts.accepted,
      " accepted; requests: ", counts.completed, " completed, ",
      counts.cancelled, " cancelled, ", counts.deadline_exceeded, " late, ",
      counts.unavailable, " unavailable, ", counts.exhausted, " exhausted, ",
      counts.unservable, " unservable, ", counts.other_errors, " other; ",
      counts.reattached, " drafts reattached, ", counts.rejected,
      " messages rejected, ", counts.injected, " injected, ", counts.faults,
      " faults, ", counts.silenced, " silent workers, ", counts.returned,
      " sessions came back, ", counts.late,
      " messages came too late for that; ", counts.cached,
      " prompt tokens cached, ", counts.policy_stops,
      " chunks ended by policies, ", counts.hidden, " hidden states, ",
      counts.by_ratio, " completed by the ratio test, ", counts.holds,
      " last rows held");
}

Outcome RunSchedule(const Schedule& schedule, bool keep_trace) {
  return World(schedule, keep_trace).Run();
}

World::World(const Schedule& schedule, bool keep_trace)
    : schedule_(schedule),
      random_(schedule.seed * 2),
      trace_(keep_trace),
      checks_(/*redraws=*/schedule.seed % 4 == 0),
      tokenizer_(SharedTokenizer()),
      tensors_(std::make_unique<Tensors>(this)) {
  events_.reserve(64);
  requests_.resize(schedule.requests.size());
  for (size_t i = 0; i < requests_.size(); ++i) {
    RequestState& request = requests_[i];
    request.index = static_cast<int>(i);
    request.options = &schedule.requests[i];
    At(request.options->arrival_ns + now_ns_, Event::Kind::kArrive,
       request.index);
    if (request.options->cancel_ns >= 0) {
      At(request.options->cancel_ns + now_ns_, Event::Kind::kCancel,
         request.index);
    }
  }
  NewDispatcher();
  processes_.resize(schedule.workers.size());
  for (size_t i = 0; i < processes_.size(); ++i) {
    processes_[i].index = static_cast<int>(i);
    processes_[i].options = &schedule.workers[i];
    StartProcess(processes_[i]);
    // Most are there before the requests.
    if (random_.Percent(85)) {
      Attach(processes_[i]);
    } else {
      At(now_ns_ + random_.Between(0, 30 * kMillisecond), Event::Kind::kAttach,
         processes_[i].index, processes_[i].incarnation);
    }
  }
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    At(now_ns_ + schedule.faults[i].at_ns, Event::Kind::kFault,
       static_cast<int>(i));
  }
}

World::~World() {
  // Sessions call their clients' sinks; engines free their sequences.
  dispatcher_.reset();
  for (Process& process : processes_) StopProcess(process);
}

void World::At(int64_t at_ns, Event::Kind kind, int subject,
               uint64_t incarnation) {
  events_.push_back(
      {std::max(at_ns, now_ns_), next_order_++, kind, subject, incarnation});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

int64_t World::Delay() {
  const int64_t delay = random_.Between(0, schedule_.hop_ns);
  return random_.Percent(schedule_.slow_percent) ? 30 * delay : delay;
}

Outcome World::Run() {
  int64_t limit_ns = kMaxTail;
  for (const Fault& fault : schedule_.faults) {
    limit_ns = std::max(limit_ns, fault.at_ns + fault.duration_ns + kMaxTail);
  }
  while (!events_.empty() && !checks_.failed()) {
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    now_ns_ = event.at_ns;
    Handle(event);
    if (++counts_.events > kMaxEvents || now_ns_ > limit_ns) {
      checks_.Fail("the schedule does not come to an end");
    }
  }
  if (!checks_.failed()) CheckAtEnd();
  return Finish();
}

void World::Handle(const Event& event) {
  const size_t subject = static_cast<size_t>(event.subject);
  const auto process = [&]() -> Process* {
    Process& found = processes_[subject];
    return found.alive() && found.incarnation == event.incarnation ? &found
                                                                   : nullptr;
  };
  switch (event.kind) {
    case Event::Kind::kArrive:
      return Arrive(requests_[subject]);
    case Event::Kind::kCancel:
      return Cancel(requests_[subject]);
    case Event::Kind::kRead:
      return Read(requests_[subject]);
    case Event::Kind::kCommand:
      return DeliverCommand(links_[subject]);
    case Event::Kind::kMessage:
      return DeliverMessage(links_[subject]);
    case Event::Kind::kRun:
      if (process() != nullptr) RunProcess(processes_[subject]);
      return;
    case Event::Kind::kDeadline:
      if (process() != nullptr && !processes_[subject].running &&
          processes_[subject].deadline_ns == now_ns_) {
        StartRun(processes_[subject]);
      }
      return;
    case Event::Kind::kAttach:
      if (process() == nullptr) return;
      if (now_ns_ < processes_[subject].hung_until_ns) {
        return At(processes_[subject].hung_until_ns, event.kind, event.subject,
                  event.incarnation);
      }
      return Attach(processes_[subject]);
    case Event::Kind::kRestart:
      StartProcess(processes_[subject]);
      return Attach(processes_[subject]);
    case Event::Kind::kLostAtWorker:
      return LoseAtWorker(links_[subject]);
    case Event::Kind::kLostAtDispatcher:
      return LoseAtDispatcher(links_[subject]);
    case Event::Kind::kWatch:
      return CheckLife(links_[subject]);
    case Event::Kind::kResume:
      return Resume(links_[subject]);
    case Event::Kind::kTick:
      return Tick();
    case Event::Kind::kFault:
      return Inflict(schedule_.faults[subject]);
    case Event::Kind::kTensor:
      return tensors_->Deliver(event.subject, event.incarnation);
  }
}

// Nothing is left to happen: every session has ended and left nothing behind.
void World::CheckAtEnd() {
  for (const RequestState& request : requests_) {
    if (!request.ended) {
      checks_.Fail("request ", request.index, " hangs after ", request.emitted,
                   " tokens: nothing is left to happen");
    }
  }
  if (!dispatcher_->sessions().empty()) {
    checks_.Fail("the dispatcher keeps a session that has ended");
  }
  for (const coordinator::WorkerStatus& worker : dispatcher_->workers()) {
    if (worker.sessions != 0) {
      checks_.Fail("the dispatcher counts ", worker.sessions,
                   " sessions on a worker that has none");
    }
  }
  for (const Process& process : processes_) {
    if (!process.alive()) continue;
    const worker::EngineStats stats = process.target != nullptr
                                          ? process.target->stats()
                                          : process.draft->stats();
    counts_.rejected += static_cast<int64_t>(stats.rejected_messages);
    if (stats.sessions != 0 || !process.model->sequences().empty() ||
        stats.kv_free_tokens != process.options->kv_capacity_tokens) {
      checks_.Fail("invariant 6: worker ", process.index, " still holds ",
                   stats.sessions, " sessions, ", stats.kv_free_tokens, " of ",
                   process.options->kv_capacity_tokens,
                   " KV positions are free");
    }
    // Streams keep their order: nothing of ours comes late or twice.
    if (stats.rejected_messages >
            process.min_rejected + tensors_->max_stale(process.index) &&
        !process.is_target() && process.failures_sent == 0) {
      checks_.Fail("draft worker ", process.index, " rejects ",
                   stats.rejected_messages, " messages, only ",
                   process.min_rejected, " were injected");
    }
    if (stats.rejected_messages < process.min_rejected) {
      checks_.Fail("invariant 5: worker ", process.index, " counted ",
                   stats.rejected_messages, " rejected messages, ",
                   process.min_rejected, " were injected");
    }
  }
}

Outcome World::Finish() {
  Outcome outcome;
  outcome.failure = checks_.failure();
  outcome.trace = trace_.Format();
  outcome.end_ns = now_ns_;
  counts_.holds = checks_.num_holds();
  for (RequestState& request : requests_) {
    counts_.accepted += request.accepted;
    counts_.cached += request.cached;
    counts_.reattached += std::max(0, request.num_drafts - 1);
    switch (request.status.code()) {
      case absl::StatusCode::kOk:
        ++counts_.completed;
        counts_.by_ratio += request.is_ratio() ? 1 : 0;
        break;
      case absl::StatusCode::kCancelled:
        ++counts_.cancelled;
        break;
      case absl::StatusCode::kUnavailable:
        ++counts_.unavailable;
        break;
      case absl::StatusCode::kResourceExhausted:
        ++counts_.exhausted;
        break;
      case absl::StatusCode::kDeadlineExceeded:
        ++counts_.deadline_exceeded;
        break;
      case absl::StatusCode::kFailedPrecondition:
        ++counts_.unservable;
        break;
      default:
        ++counts_.other_errors;
    }
    outcome.answers.push_back(std::move(request.answer));
  }
  outcome.counts = counts_;
  return outcome;
}

}  // namespace nacre::protocol
