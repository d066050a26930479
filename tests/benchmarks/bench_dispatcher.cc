// What a verdict costs the coordinator's dispatcher, by the number of sessions:
// text, metrics and plans included; no network, no prompts.
//
//   bench_dispatcher [--sessions LIST] [--waiting N] [--verdicts N] [--runs N]
//
// One thread drives 64 sessions a target, each target with a draft of its own.
// In a step the draft sends a tail of every session and the target a verdict of
// every session, with their spans. A session ends after 64 tokens; its workers
// close it and another one starts. Of what all calls took, a verdict's share:
// processor time, the median over runs, and how long the lock was held, the
// median over steps.
//
// The last row has --waiting requests in the queue, without room for any: each
// that ends makes room for another.
//
// Then: what a waiting request of 1,000 tokens keeps in memory.

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/mutex_checks.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/observe/metrics_observer.h"
#include "simulation/random.h"
#include "tests/coordinator/byte_tokenizer.h"

ABSL_FLAG(std::vector<std::string>, sessions,
          std::vector<std::string>({"64", "1000", "10000"}),
          "numbers of sessions");
ABSL_FLAG(int, waiting, 10000, "requests that wait beside 1,000 sessions");
ABSL_FLAG(int, verdicts, 100000, "verdicts of a run");
ABSL_FLAG(int, runs, 5, "runs, of which the median is printed");

namespace nacre::coordinator {
namespace {

constexpr int kSessionsPerTarget = 64;
constexpr int kTokens = 64;  // of an answer
constexpr int kPromptTokens = 32;
constexpr int64_t kStepNs = 12'000'000;
constexpr int64_t kTokenNs = 1'500'000;

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Remembers what was opened and closed, and counts the rest.
class Client final : public TargetLink, public DraftLink {
 public:
  void OpenTarget(const TargetOpening& opening) override {
    opened.push_back(opening.session_id);
  }
  void RelayTail(uint64_t, const speculation::Tail& tail) override {
    tokens_ += tail.token_ids.size();
  }
  void UpdateTarget(uint64_t, const speculation::TargetPlan&) override {}
  void AttachDraft(uint64_t, uint32_t, int) override {}
  void LoseDraft(uint64_t) override {}
  void Acknowledge(uint64_t, int) override {}
  void OpenDraft(const DraftOpening& opening) override {
    opened.push_back(opening.session_id);
    epochs.push_back(opening.epoch);
  }
  void RelayCommit(uint64_t, const speculation::Commit& commit) override {
    tokens_ += commit.token_ids.size();
  }
  void UpdateDraft(uint64_t, const speculation::DraftPlan&) override {}
  void Close(uint64_t session_id) override { closed.push_back(session_id); }
  void Keep(const std::vector<uint64_t>&) override {}
  void ReportKv(const wire::KvReport&) override {}
  void Cut() override {}
  void Flush() override {}
  int64_t clock_offset_ns() const override { return 0; }
  int64_t round_trip_ns() const override { return 400'000; }

  std::vector<uint64_t> opened;  // since it was last looked at
  std::vector<uint32_t> epochs;  // of these on a draft
  std::vector<uint64_t> closed;

 private:
  size_t tokens_ = 0;
};

class Sink final : public ResponseSink {
 public:
  explicit Sink(int64_t* ended) : ended_(ended) {}
  void OnChunk(const Chunk&) override {}
  void OnComplete(const RequestSpec&, const Completion&) override { ++*ended_; }
  void OnError(const absl::Status& status) override {
    if (absl::IsUnavailable(status)) return;  // the dispatcher is going
    std::fprintf(stderr, "a session failed: %s\n",
                 std::string(status.message()).c_str());
    std::exit(1);
  }
  int pending_chunks() const override { return 0; }
  int64_t taken_chunks() const override { return 0; }

 private:
  int64_t* const ended_;
};

class Bench {
 public:
  Bench(int num_sessions, int num_waiting)
      : metrics_("bench", [this] { return now_ns_; }),
        dispatcher_(MakeOptions(num_sessions, num_waiting)) {
    const int num_pairs =
        (num_sessions + kSessionsPerTarget - 1) / kSessionsPerTarget;
    const int64_t need =
        KvLedger::Need(kPromptTokens + kTokens) *
        (num_waiting > 0 ? kSessionsPerTarget : kSessionsPerTarget + 1);
    for (int i = 0; i < num_pairs; ++i) {
      for (const WorkerRole role : {WorkerRole::kTarget, WorkerRole::kDraft}) {
        Worker& worker = workers_.emplace_back();
        worker.client = std::make_shared<Client>();
        WorkerInfo info;
        info.role = role;
        info.address = absl::StrCat("worker-", workers_.size(), ":7000");
        info.fingerprint = role == WorkerRole::kTarget ? "big" : "small";
        info.model_vocab_size = info.tokenizer_vocab_size = 258;
        info.context_length = 4096;
        info.kv_capacity_tokens = need;
        info.step_times_ns =
            role == WorkerRole::kTarget
                ? std::vector<std::pair<int, int64_t>>{{1, kStepNs},
                                                       {64, kStepNs * 5 / 4},
                                                       {512, kStepNs * 4}}
                : std::vector<std::pair<int, int64_t>>{{1, kTokenNs},
                                                       {64, kTokenNs * 2}};
        worker.id = (role == WorkerRole::kTarget
                         ? dispatcher_.AddTarget(info, worker.client)
                         : dispatcher_.AddDraft(info, worker.client))
                        .value();
      }
    }
    for (int i = 0; i < num_sessions + num_waiting; ++i) Start();
    Look();
    // Past the beginning, where all are in step.
    for (int i = 0; i < 20 * num_pairs; ++i) Step();
  }

  // Microseconds of processor time for a verdict.
  double Run(int64_t num_verdicts) {
    verdicts_ = 0;
    cpu_seconds_ = 0.0;
    while (verdicts_ < num_verdicts) {
      const int64_t locked_ns = dispatcher_.locked_ns();
      const int64_t verdicts = verdicts_;
      Step();
      locked_us_.push_back(
          1e-3 * static_cast<double>(dispatcher_.locked_ns() - locked_ns) /
          static_cast<double>(verdicts_ - verdicts));
    }
    return 1e6 * cpu_seconds_ / static_cast<double>(verdicts_);
  }
  // Of a verdict, by step.
  const std::vector<double>& locked_us() const { return locked_us_; }

 private:
  struct Worker {
    uint64_t id = 0;
    std::shared_ptr<Client> client;
    std::vector<uint64_t> sessions;
    std::vector<uint64_t> closed;  // not yet told
  };
  struct Session {
    int length = kPromptTokens;
    uint32_t epoch = 0;
    size_t draft = 0;  // index of its worker
  };

  Dispatcher::Options MakeOptions(int num_sessions, int num_waiting) {
    Dispatcher::Options options;
    options.tokenizer = &tokenizer_;
    options.observer = &metrics_;
    options.now_ns = [this] { return now_ns_; };
    options.max_queue = num_sessions + num_waiting;
    options.queue_timeout_ns = kNever;
    return options;
  }
  template <typename Call>
  void Timed(const Call& call) {
    const double start = ThreadSeconds();
    call();
    cpu_seconds_ += ThreadSeconds() - start;
  }

  void Start() {
    RequestSpec request;
    request.request_id = absl::StrCat("request-", ++num_started_);
    request.prompt_ids.assign(kPromptTokens, 'p');
    request.max_tokens = kTokens;
    request.stop = {"\n\n###", "END"};
    request.stream = true;
    auto sink = std::make_shared<Sink>(&ended_);
    Timed([&] {
      (void)dispatcher_.Start(std::move(request), std::move(sink)).value();
    });
  }

  // What the dispatcher has told the workers.
  void Look() {
    for (size_t i = 0; i < workers_.size(); ++i) Look(i);
  }
  void Look(size_t index) {
    Worker& worker = workers_[index];
    Client& client = *worker.client;
    for (size_t i = 0; i < client.opened.size(); ++i) {
      const uint64_t id = client.opened[i];
      worker.sessions.push_back(id);
      if (id >= sessions_.size()) sessions_.resize(id + 1);
      if (index % 2 == 1) {
        sessions_[id].epoch = client.epochs[i];
        sessions_[id].draft = index;
      }
    }
    client.opened.clear();
    client.epochs.clear();
    for (uint64_t id : client.closed) {
      worker.sessions.erase(
          std::find(worker.sessions.begin(), worker.sessions.end(), id));
      worker.closed.push_back(id);
    }
    client.closed.clear();
  }

  SpanRecord Span(SpanRecord::Kind kind, uint64_t session, int rows,
                  int batch_rows, int batch_sessions) const {
    SpanRecord span;
    span.session_id = session;
    span.kind = kind;
    span.start_ns = now_ns_;
    span.duration_ns = kind == SpanRecord::Kind::kDraft ? kTokenNs : kStepNs;
    span.rows = rows;
    span.batch_rows = batch_rows;
    span.batch_sessions = batch_sessions;
    return span;
  }

  // One step of the next pair.
  void Step() {
    next_ = (next_ + 2) % workers_.size();
    now_ns_ += kStepNs * 2 / static_cast<int64_t>(workers_.size()) + 1;
    SendTails(workers_[next_ + 1], next_ + 1);
    SendVerdicts(workers_[next_]);
    Look();
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      if (worker.closed.empty()) continue;
      wire::SessionEvents events;
      events.closed = std::exchange(worker.closed, {});
      Timed([&] {
        if (i % 2 == 0) {
          dispatcher_.OnEvents(worker.id, wire::TargetEvents{events});
        } else {
          dispatcher_.OnEvents(worker.id, wire::DraftEvents{events});
        }
      });
    }
    while (num_started_ - ended_ < static_cast<int64_t>(num_wanted())) Start();
    Look();
  }
  size_t num_wanted() {
    if (num_wanted_ == 0) num_wanted_ = static_cast<size_t>(num_started_);
    return num_wanted_;
  }

  void SendTails(const Worker& draft, size_t index) {
    wire::DraftEvents events;
    const int batch = static_cast<int>(draft.sessions.size());
    for (uint64_t id : draft.sessions) {
      const Session& session = sessions_[id];
      if (session.draft != index) continue;
      speculation::Tail tail;
      tail.epoch = session.epoch;
      tail.base_length = tail.first_position = session.length;
      tail.token_ids = {'a', 'b', 'c', 'd'};
      events.tails.push_back({id, std::move(tail)});
      events.common.spans.push_back(
          Span(SpanRecord::Kind::kDraft, id, 1, batch, batch));
    }
    Timed([&] { dispatcher_.OnEvents(draft.id, std::move(events)); });
  }

  void SendVerdicts(const Worker& target) {
    wire::TargetEvents events;
    const int batch = static_cast<int>(target.sessions.size());
    for (uint64_t id : target.sessions) {
      Session& session = sessions_[id];
      speculation::Verdict verdict;
      verdict.base_length = session.length;
      const int left = kPromptTokens + kTokens - session.length;
      verdict.window = 4;
      verdict.matched = static_cast<int>(random_.Between(0, 4));
      verdict.verified = std::min(4, verdict.matched + 1);
      verdict.accepted = std::min(4, verdict.matched);
      const int count = std::min(left, verdict.matched + 1);
      for (int i = 0; i < count; ++i) {
        verdict.token_ids.push_back("the END\n of"[random_.Between(0, 10)]);
      }
      if (count == left) {
        verdict.finish = speculation::FinishReason::kLength;
      }
      session.length += count;
      events.verdicts.push_back({id, std::move(verdict)});
      events.common.spans.push_back(
          Span(SpanRecord::Kind::kVerify, id, 5, 5 * batch, batch));
    }
    verdicts_ += batch;
    Timed([&] { dispatcher_.OnEvents(target.id, std::move(events)); });
  }

  const ByteTokenizer tokenizer_;
  int64_t now_ns_ = 1000;
  simulation::Random random_{1};
  MetricsObserver metrics_;
  Dispatcher dispatcher_;
  std::deque<Worker> workers_;  // target, its draft, the next target, ...
  std::vector<Session> sessions_;
  size_t next_ = 0;
  size_t num_wanted_ = 0;
  int64_t num_started_ = 0;
  int64_t ended_ = 0;
  int64_t verdicts_ = 0;
  double cpu_seconds_ = 0.0;
  std::vector<double> locked_us_;
};

// Of the heap, by one of many requests that wait.
double BytesOfAWaitingRequest() {
  constexpr int kRequests = 10'000;
  constexpr int kTokensEach = 1000;
  const ByteTokenizer tokenizer;
  Dispatcher::Options options;
  options.tokenizer = &tokenizer;
  options.max_queue = kRequests;
  Dispatcher dispatcher(std::move(options));
  WorkerInfo info;
  info.model_vocab_size = info.tokenizer_vocab_size = 258;
  // It takes none any more, and may come back.
  dispatcher.DrainWorker(
      dispatcher.AddTarget(info, std::make_shared<Client>()).value());
  int64_t ended = 0;
  const auto heap_bytes = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = heap_bytes();
  for (int i = 0; i < kRequests; ++i) {
    RequestSpec request;
    request.request_id = absl::StrCat("request-", i);
    request.prompt_ids.assign(kTokensEach, 'p');
    request.max_tokens = kTokens;
    request.stop = {"\n\n###", "END"};
    (void)dispatcher.Start(std::move(request), std::make_shared<Sink>(&ended))
        .value();
  }
  return (heap_bytes() - before) / kRequests;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintRow(int num_sessions, int num_waiting) {
  Bench bench(num_sessions, num_waiting);
  std::vector<double> cpu;
  for (int i = 0; i < absl::GetFlag(FLAGS_runs); ++i) {
    cpu.push_back(bench.Run(absl::GetFlag(FLAGS_verdicts)));
  }
  std::printf("%10d %10d %14.0f %12.2f %18.2f\n", num_sessions, num_waiting,
              1e6 / Median(cpu), Median(cpu), Median(bench.locked_us()));
  std::fflush(stdout);
}

void Main() {
  std::printf("%10s %10s %14s %12s %18s\n", "sessions", "waiting", "verdicts/s",
              "us each", "us under the lock");
  for (const std::string& text : absl::GetFlag(FLAGS_sessions)) {
    int num_sessions = 0;
    if (!absl::SimpleAtoi(text, &num_sessions) || num_sessions < 1) {
      std::fprintf(stderr, "--sessions: \"%s\" is no number of sessions\n",
                   text.c_str());
      std::exit(1);
    }
    PrintRow(num_sessions, 0);
  }
  PrintRow(1000, absl::GetFlag(FLAGS_waiting));
  std::printf("a waiting request of 1000 tokens: %.0f bytes\n",
              BytesOfAWaitingRequest());
}

}  // namespace
}  // namespace nacre::coordinator

int main(int argc, char** argv) {
  nacre::DisableMutexChecks();  // as the coordinator
  absl::ParseCommandLine(argc, argv);
  nacre::coordinator::Main();
}
