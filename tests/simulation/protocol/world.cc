#include "tests/simulation/protocol/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/protocol/world_tensors.h"

namespace nacre::protocol {
namespace {

// Virtual time within which everything has ended after the last fault, however
// slow the workers and the network: the slowest schedules need a tenth of it.
constexpr int64_t kMaxTail = 120'000 * kMillisecond;
constexpr int64_t kMaxEvents = 1'000'000;

OwnTables OwnTablesOf(const Schedule& schedule) {
  OwnTables tables;
  if (schedule.heads.has_value()) {
    tables.heads = &LogitTable::Draft(schedule.table, *schedule.heads);
  }
  if (schedule.drafter.has_value()) {
    tables.drafter = &LogitTable::Draft(schedule.table, schedule.drafter->kind);
    tables.reads_kv = schedule.drafter->reads_kv;
  }
  return tables;
}

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
  ended_trees += other.ended_trees;
  other_trees += other.other_trees;
  unservable += other.unservable;
  hidden += other.hidden;
  target_rows += other.target_rows;
  features += other.features;
  skipped_features += other.skipped_features;
  behind_features += other.behind_features;
  by_ratio += other.by_ratio;
  holds += other.holds;
  untimed_holds += other.untimed_holds;
  verified += other.verified;
  stale += other.stale;
  branch_rows += other.branch_rows;
  branch_walks += other.branch_walks;
  suffix_rows += other.suffix_rows;
  suffix_walks += other.suffix_walks;
  few_slot_rows += other.few_slot_rows;
  few_slot_walks += other.few_slot_walks;
  remembered += other.remembered;
  head_steps += other.head_steps;
  head_walks += other.head_walks;
  drafter_looks += other.drafter_looks;
  drafter_texts += other.drafter_texts;
  drafter_parts += other.drafter_parts;
  drafter_gaps += other.drafter_gaps;
  drafter_forgets_unpaid += other.drafter_forgets_unpaid;
  drafter_forgets_full += other.drafter_forgets_full;
  drafter_full_texts += other.drafter_full_texts;
  drafter_full_roots += other.drafter_full_roots;
  drafter_refusals += other.drafter_refusals;
  drafter_failures += other.drafter_failures;
  feature_steps += other.feature_steps;
  feature_walks += other.feature_walks;
  kv_steps += other.kv_steps;
  kv_walks += other.kv_walks;
  exchanged_walks += other.exchanged_walks;
  failed_over_walks += other.failed_over_walks;
  beheaded_walks += other.beheaded_walks;
  unasked_steps += other.unasked_steps;
  timed_head_looks += other.timed_head_looks;
  nodes += other.nodes;
  ranks += other.ranks;
  placed_nodes += other.placed_nodes;
  late_nodes += other.late_nodes;
  stale_nodes += other.stale_nodes;
  right_in_time += other.right_in_time;
  right_late += other.right_late;
  right_lost += other.right_lost;
  tree_nodes += other.tree_nodes;
  draft_branches += other.draft_branches;
  kept_slots += other.kept_slots;
  limited += other.limited;
  full += other.full;
  overtaken += other.overtaken;
  waiting_resumes += other.waiting_resumes;
  drained += other.drained;
  moved += other.moved;
  shared += other.shared;
  lost_coordinators += other.lost_coordinators;
  resumed += other.resumed;
  repeated += other.repeated;
  grants += other.grants;
  held_back += other.held_back;
}

static std::string DescribeDrafters(const Counts& counts) {
  return absl::StrCat(
      counts.drafter_looks, " looks of targets' drafts, ", counts.drafter_texts,
      " rows of texts before, ", counts.drafter_parts,
      " largest parts of these, ", counts.drafter_gaps,
      " beginnings not seen, ", counts.drafter_forgets_unpaid,
      " texts forgotten unpaid, ", counts.drafter_forgets_full,
      " for want of room, ", counts.drafter_full_texts, " texts without room, ",
      counts.drafter_full_roots, " trees, ", counts.drafter_refusals,
      " sessions, ", counts.drafter_failures, " failures, ",
      counts.feature_steps, " steps with features' rows, ",
      counts.feature_walks, " along these, ", counts.kv_steps,
      " with those over keys, ", counts.kv_walks, " along these, ",
      counts.exchanged_walks, " after another draft, ",
      counts.failed_over_walks, " after another target, ",
      counts.beheaded_walks, " of texts without beginning, ",
      counts.unasked_steps, " steps without a look, ");
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
      counts.target_rows, " rows of targets seen, ", counts.features,
      " of them features, ", counts.skipped_features,
      " steps without the first of these, ", counts.behind_features,
      " tokens fed beyond them, ", counts.by_ratio,
      " completed by the ratio test, ", counts.nodes, " nodes beside chains, ",
      counts.tree_nodes, " of drafts' trees, ", counts.draft_branches,
      " of them in slots, ", counts.kept_slots, " of these kept, ",
      counts.branch_rows, " of them rows, ", counts.branch_walks,
      " steps along these, ", counts.suffix_rows, " rows from suffixes, ",
      counts.remembered, " of them from other answers, ", counts.suffix_walks,
      " steps along these, ", counts.few_slot_rows,
      " rows beside paths in few slots, ", counts.few_slot_walks,
      " steps along these, ", counts.head_steps, " steps with heads' rows, ",
      counts.head_walks, " along these, ", counts.timed_head_looks,
      " rows of heads that took time, ", DescribeDrafters(counts), counts.ranks,
      " ranks, ", counts.holds, " last rows held, ", counts.untimed_holds,
      " of them without a timer, ", counts.verified, " verified, ",
      counts.stale, " stale messages; ", counts.limited,
      " schedules with a limit of sessions, ", counts.full,
      " last places taken, ", counts.overtaken,
      " requests overtaken as often as they may be, ", counts.waiting_resumes,
      " resumed calls that waited with others; ", counts.drained,
      " drains under many requests, ", counts.moved, " moved; ", counts.shared,
      " schedules with shared workers: ", counts.lost_coordinators,
      " coordinators lost, ", counts.resumed, " calls resumed, ",
      counts.repeated, " repeated, ", counts.grants, " grants, ",
      counts.held_back, " smaller than what was promised");
}

Outcome RunSchedule(const Schedule& schedule, bool keep_trace) {
  // Drafts fail on purpose, in thousands of worlds.
  spdlog::set_level(spdlog::level::err);
  return World(schedule, keep_trace).Run();
}

World::World(const Schedule& schedule, bool keep_trace)
    : simulation::World(schedule.seed * 2, /*start_ns=*/1),
      schedule_(schedule),
      keeps_trace_(keep_trace),
      trace_(keep_trace),
      checks_(/*redraws=*/schedule.seed % 4 == 0, OwnTablesOf(schedule)),
      services_(static_cast<size_t>(schedule.num_coordinators)),
      workers_(schedule.workers.size()),
      tokenizer_(SharedTokenizer()),
      tensors_(std::make_unique<Tensors>(this)) {
  requests_.resize(schedule.requests.size());
  checks_.KnowRequests(&requests_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    RequestState& request = requests_[i];
    request.index = static_cast<int>(i);
    request.options = &schedule.requests[i];
    queue_.Post(request.options->arrival_ns + now_ns(),
                [this, &request] { Arrive(request); });
    if (request.options->cancel_ns >= 0) {
      queue_.Post(request.options->cancel_ns + now_ns(),
                  [this, &request] { Cancel(request); });
    }
  }
  counts_.limited = schedule.max_running > 0 ? 1 : 0;
  counts_.drained = schedule.drains_many ? 1 : 0;
  counts_.shared = schedule.is_shared() ? 1 : 0;
  for (int i = 0; i < schedule.num_coordinators; ++i) Restart(i);
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].options = &schedule.workers[i];
    Process& process = AddProcess(schedule.workers[i].role);
    StartProcess(process);
    // Most are there before the requests.
    if (random_.Percent(85) || schedule.drains_many) {
      AttachWorker(process);
    } else {
      AtProcess(now_ns() + random_.Between(0, 30 * kMillisecond), process,
                &World::AttachWorker);
    }
  }
  for (const Fault& fault : schedule.faults) {
    queue_.Post(now_ns() + fault.at_ns, [this, &fault] { Inflict(fault); });
  }
}

World::~World() { End(); }

World::Stream& World::StreamOf(const Connection& connection) {
  while (streams_.size() <= static_cast<size_t>(connection.index)) {
    streams_.emplace_back();
  }
  return streams_[static_cast<size_t>(connection.index)];
}

void World::AtProcess(int64_t at_ns, Process& process,
                      void (World::*run)(Process&)) {
  queue_.Post(at_ns, [this, &process, run, incarnation = process.incarnation] {
    if (process.alive() && process.incarnation == incarnation) {
      (this->*run)(process);
    }
  });
}

Outcome World::Run() {
  int64_t limit_ns = kMaxTail;
  for (const Fault& fault : schedule_.faults) {
    limit_ns = std::max(limit_ns, fault.at_ns + fault.duration_ns + kMaxTail);
  }
  while (!checks_.failed() && RunNext()) {
    // The deadline of a gate without a timer is a century away.
    if (!schedule_.gate_timeouts && now_ns() > limit_ns) break;
    if (++counts_.events > kMaxEvents || now_ns() > limit_ns) {
      checks_.Fail("the schedule does not come to an end");
    }
  }
  if (!checks_.failed()) CheckAtEnd();
  return Finish();
}

// Nothing is left to happen: every session has ended and left nothing behind.
void World::CheckAtEnd() {
  for (const RequestState& request : requests_) {
    if (!request.ended) {
      checks_.Fail("request ", request.index, " hangs after ", request.emitted,
                   " tokens: nothing is left to happen");
    }
  }
  for (int i = 0; i < schedule_.num_coordinators; ++i) {
    if (!dispatcher(i)->sessions().empty()) {
      checks_.Fail("the dispatcher keeps a session that has ended");
    }
    for (const coordinator::WorkerStatus& worker : dispatcher(i)->workers()) {
      if (worker.sessions != 0) {
        checks_.Fail("the dispatcher counts ", worker.sessions,
                     " sessions on a worker that has none");
      }
      // Else its room, and its place, would be lost for ever.
      if (worker.reserved_tokens != 0) {
        checks_.Fail("the dispatcher promises ", worker.reserved_tokens,
                     " tokens of a worker that has no session");
      }
    }
  }
  for (const Process& process : processes_) {
    if (!process.alive()) continue;
    CheckGrantsAtEnd(process);
    const Worker& worker = WorkerOf(process);
    const worker::EngineStats stats = process.engine().stats();
    counts_.rejected += static_cast<int64_t>(stats.rejected_messages);
    counts_.placed_nodes += static_cast<int64_t>(stats.placed_nodes);
    counts_.late_nodes += static_cast<int64_t>(stats.late_nodes);
    counts_.stale_nodes += static_cast<int64_t>(stats.stale_nodes);
    if (stats.sessions != 0 || !ModelOf(process).sequences().empty() ||
        stats.kv_free_tokens != worker.options->kv_capacity_tokens) {
      checks_.Fail("invariant 6: worker ", process.index, " still holds ",
                   stats.sessions, " sessions, ", stats.kv_free_tokens, " of ",
                   worker.options->kv_capacity_tokens,
                   " KV positions are free");
    }
    // Streams keep their order: nothing of ours comes late or twice.
    if (stats.rejected_messages >
            worker.min_rejected + tensors_->max_stale(process.index) &&
        !process.is_target() && worker.failures_sent == 0) {
      checks_.Fail("draft worker ", process.index, " rejects ",
                   stats.rejected_messages, " messages, only ",
                   worker.min_rejected, " were injected");
    }
    if (stats.rejected_messages < worker.min_rejected) {
      checks_.Fail("invariant 5: worker ", process.index, " counted ",
                   stats.rejected_messages, " rejected messages, ",
                   worker.min_rejected, " were injected");
    }
  }
}

Outcome World::Finish() {
  Outcome outcome;
  outcome.failure = checks_.failure();
  if (checks_.failed() || keeps_trace_) outcome.trace = trace_.Format();
  outcome.end_ns = now_ns();
  counts_.holds = checks_.num_holds();
  if (!schedule_.gate_timeouts) counts_.untimed_holds = counts_.holds;
  counts_.branch_rows = checks_.num_branch_rows();
  counts_.draft_branches = checks_.num_draft_branches();
  counts_.branch_walks = checks_.num_branch_walks();
  const OwnCounts& suffixes = checks_.own_counts();
  counts_.suffix_rows = suffixes.rows;
  counts_.suffix_walks = suffixes.walks;
  if (schedule_.tree_rows < speculation::TokenTree::kMaxLocal) {
    counts_.few_slot_rows = suffixes.beside;
    counts_.few_slot_walks = suffixes.beside_walks;
  }
  counts_.remembered = suffixes.remembered;
  counts_.head_steps = suffixes.of_heads;
  counts_.head_walks = suffixes.head_walks;
  counts_.feature_steps = suffixes.of_features;
  counts_.feature_walks = suffixes.feature_walks;
  counts_.kv_steps = suffixes.of_kv;
  counts_.kv_walks = suffixes.kv_walks;
  counts_.exchanged_walks = suffixes.exchanged;
  counts_.failed_over_walks = suffixes.failed_over;
  counts_.beheaded_walks = suffixes.beheaded;
  counts_.unasked_steps = schedule_.look_percent > 0 ? suffixes.unasked : 0;
  const RightNodes::Counts& right = checks_.right_nodes();
  counts_.right_in_time = right.in_time;
  counts_.right_late = right.late;
  counts_.right_lost = right.lost;
  const RowWatch::Counts& rows = checks_.target_rows();
  counts_.target_rows = rows.rows;
  counts_.features = rows.features;
  counts_.skipped_features = rows.skipped;
  counts_.behind_features = rows.behind;
  for (const Service& service : services_) {
    counts_.overtaken += service.queue.num_overtaken();
  }
  for (RequestState& request : requests_) {
    counts_.accepted += request.accepted;
    counts_.verified += request.compared;
    counts_.stale += request.stale_messages;
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
