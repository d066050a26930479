// What the dispatcher does when its lock is free, and that several threads may
// use it at once. Run it under ThreadSanitizer, too.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_client.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

// Looks whether the dispatcher's lock is free, from another thread: this one
// may hold it.
class LockProbe {
 public:
  ~LockProbe() { Join(); }
  // Before the dispatcher ends.
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void Expect(const char* what) {
    EXPECT_TRUE(Returns([this] { (void)dispatcher->locked_ns(); }))
        << what << " is called under the dispatcher's lock";
    seen.push_back(what);
  }
  // Whether `call` does, on a thread of its own.
  bool Returns(std::function<void()> call,
               absl::Duration within = absl::Minutes(1)) {
    const auto returned = std::make_shared<absl::Notification>();
    threads_.emplace_back([call = std::move(call), returned] {
      call();
      returned->Notify();
    });
    return returned->WaitForNotificationWithTimeout(within);
  }
  bool HasSeen(const char* what) const {
    return std::find(seen.begin(), seen.end(), what) != seen.end();
  }

  Dispatcher* dispatcher = nullptr;
  std::vector<std::string> seen;

 private:
  std::vector<std::thread> threads_;
};

class ProbingSink final : public ResponseSink {
 public:
  explicit ProbingSink(LockProbe* probe) : probe_(probe) {}
  void OnChunk(const Chunk&) override { probe_->Expect("OnChunk"); }
  void OnComplete(const RequestSpec&, const Completion&) override {
    probe_->Expect("OnComplete");
  }
  void OnError(const absl::Status&) override { probe_->Expect("OnError"); }
  int pending_chunks() const override { return pending; }
  int64_t taken_chunks() const override { return 0; }
  void Abandon() override { probe_->Expect("Abandon"); }

  int pending = 0;

 private:
  LockProbe* const probe_;
};

class ProbingObserver final : public Observer {
 public:
  explicit ProbingObserver(LockProbe* probe) : probe_(probe) {}
  void OnQueued(const RequestSpec&, int) override {
    probe_->Expect("OnQueued");
  }
  void OnRefused(const RequestSpec&, const absl::Status&) override {
    probe_->Expect("OnRefused");
  }
  void OnStarted(uint64_t, const RequestSpec&, const Placement&,
                 int64_t) override {
    probe_->Expect("OnStarted");
  }
  void OnTail(uint64_t, const speculation::Tail&) override {
    probe_->Expect("OnTail");
  }
  void OnSpan(uint64_t, WorkerRole, const SpanRecord&, int64_t) override {
    probe_->Expect("OnSpan");
  }
  void OnRound(uint64_t, const speculation::Verdict&, int) override {
    probe_->Expect("OnRound");
  }
  void OnMoved(uint64_t, const Placement&) override {
    probe_->Expect("OnMoved");
  }
  void OnVerdictsHandled(int64_t) override {
    probe_->Expect("OnVerdictsHandled");
  }
  void OnFinished(uint64_t, const RequestSpec&, const absl::Status&,
                  const Completion*) override {
    probe_->Expect("OnFinished");
  }

 private:
  LockProbe* const probe_;
};

// A worker that does what it is told on a thread of the test's.
class PlayedWorker : public TargetLink, public DraftLink {
 public:
  struct Call {
    enum class Kind { kOpen, kCommit, kClose } kind;
    uint64_t session_id = 0;
    uint32_t epoch = 0;
    int length = 0;      // of what it was opened or goes on with
    int end = 0;         // where max_tokens ends it
    int num_tokens = 0;  // of a commit
  };

  void OpenTarget(const TargetOpening& opening) override {
    Open(opening.session_id, opening.epoch, opening.token_ids(),
         *opening.request);
  }
  void RelayTail(uint64_t, const speculation::Tail&) override {}
  void UpdateTarget(uint64_t, const speculation::TargetPlan&) override {}
  void AttachDraft(uint64_t, uint32_t, int) override {}
  void LoseDraft(uint64_t) override {}
  void Acknowledge(uint64_t, int) override {}
  void OpenDraft(const DraftOpening& opening) override {
    Open(opening.session_id, opening.epoch, opening.token_ids(),
         *opening.request);
  }
  void RelayCommit(uint64_t session_id,
                   const speculation::Commit& commit) override {
    Call call{Call::Kind::kCommit, session_id};
    call.length = commit.first_position;
    call.num_tokens = static_cast<int>(commit.token_ids.size());
    Add(call);
  }
  void UpdateDraft(uint64_t, const speculation::DraftPlan&) override {}
  void Close(uint64_t session_id) override {
    Add({Call::Kind::kClose, session_id});
  }
  void Keep(const std::vector<uint64_t>&) override {}
  void ReportKv(const wire::KvReport&) override {}
  void Cut() override {
    absl::MutexLock lock(&mu_);
    cut_ = called_.size();
  }
  void Flush() override {
    if (on_flush) on_flush();
    absl::MutexLock lock(&mu_);
    while (cut_ > 0) {
      sent_.push_back(called_.front());
      called_.pop_front();
      --cut_;
    }
  }
  int64_t clock_offset_ns() const override { return 0; }
  int64_t round_trip_ns() const override { return 0; }

  // What has reached it.
  std::vector<Call> Take() {
    absl::MutexLock lock(&mu_);
    return std::exchange(sent_, {});
  }

  std::function<void()> on_flush;

 private:
  void Open(uint64_t session_id, uint32_t epoch, std::vector<int32_t> ids,
            const RequestSpec& request) {
    Call call{Call::Kind::kOpen, session_id};
    call.epoch = epoch;
    call.length = static_cast<int>(ids.size());
    call.end = static_cast<int>(request.prompt_ids.size()) + request.max_tokens;
    Add(call);
  }
  void Add(const Call& call) {
    absl::MutexLock lock(&mu_);
    called_.push_back(call);
  }

  absl::Mutex mu_;
  std::deque<Call> called_;
  size_t cut_ = 0;  // calls at its front that are ready to go
  std::vector<Call> sent_;
};

WorkerInfo Info(WorkerRole role, const std::string& address) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  info.fingerprint = role == WorkerRole::kTarget ? "big" : "small";
  info.numerics_id = "n";
  info.model_vocab_size = info.tokenizer_vocab_size = 258;
  info.context_length = 1024;
  info.kv_capacity_tokens = 6 * 64;
  info.step_times_ns = {{1, 5000000}, {16, 9000000}};
  return info;
}

RequestSpec Request(const std::string& request_id) {
  RequestSpec request;
  request.request_id = request_id;
  request.prompt_ids = {7, 8};
  request.max_tokens = 40;
  request.stream = true;
  return request;
}

wire::TargetEvents Say(uint64_t session_id, int base_length, const char* text,
                       FinishReason finish = FinishReason::kNone) {
  wire::TargetEvents events;
  speculation::Verdict verdict;
  verdict.base_length = base_length;
  verdict.token_ids = Bytes(text);
  verdict.finish = finish;
  SpanRecord span;
  span.session_id = session_id;
  span.kind = SpanRecord::Kind::kVerify;
  span.duration_ns = 1000;
  span.rows = span.batch_rows = 1;
  events.common.spans.push_back(span);
  events.verdicts.push_back({session_id, std::move(verdict)});
  return events;
}

TEST(DispatcherTurnTest, NothingIsToldUnderTheLock) {
  const ByteTokenizer tokenizer;
  LockProbe probe;
  ProbingObserver observer(&probe);
  int64_t now_ns = 1000;
  Dispatcher::Options options;
  options.tokenizer = &tokenizer;
  options.observer = &observer;
  options.now_ns = [&now_ns] { return now_ns; };
  options.wake_at = [&probe](int64_t) { probe.Expect("wake_at"); };
  options.max_running = 2;
  Dispatcher dispatcher(options);
  probe.dispatcher = &dispatcher;

  std::vector<std::shared_ptr<PlayedWorker>> workers;
  const auto add = [&](WorkerRole role, const std::string& address) {
    workers.push_back(std::make_shared<PlayedWorker>());
    workers.back()->on_flush = [&probe] { probe.Expect("Flush"); };
    return AddWorker(&dispatcher, Info(role, address), workers.back()).value();
  };
  const uint64_t target = add(WorkerRole::kTarget, "t0");
  const uint64_t draft = add(WorkerRole::kDraft, "d0");
  RequestSpec stopped = Request("stopped");
  stopped.stop = {"END"};
  const auto sink = std::make_shared<ProbingSink>(&probe);
  const auto slow = std::make_shared<ProbingSink>(&probe);
  const uint64_t first = dispatcher.Start(stopped, sink).value();
  const uint64_t second = dispatcher.Start(Request("slow"), slow).value();
  const uint64_t third = dispatcher.Start(Request("third"), sink).value();
  EXPECT_FALSE(dispatcher.Start(Request("third"), sink).ok());

  wire::DraftEvents tails;
  speculation::Tail tail;
  tail.epoch = 1;
  tail.base_length = tail.first_position = 2;
  tail.token_ids = {'a'};
  tails.tails.push_back({first, tail});
  dispatcher.OnEvents(draft, tails);
  dispatcher.OnEvents(target, Say(first, 2, "the END"));
  EXPECT_TRUE(probe.HasSeen("OnComplete")) << "of the stop string";
  wire::TargetEvents closed;
  closed.common.closed.push_back(first);
  dispatcher.OnEvents(target, closed);
  slow->pending = 100;
  dispatcher.OnEvents(target, Say(second, 2, "more than sixteen"));
  now_ns += options.client_timeout_ns;
  dispatcher.Tick();  // the slow client's time is over
  add(WorkerRole::kTarget, "t1");
  dispatcher.DrainWorker(target);  // the third moves
  dispatcher.RemoveWorker(draft);
  dispatcher.OnSinkDrained(third);
  dispatcher.StateKept(target);
  dispatcher.Cancel(third);
  EXPECT_TRUE(dispatcher.Drain(absl::ZeroDuration()));
  for (const char* what :
       {"Flush", "OnChunk", "OnComplete", "OnError", "Abandon", "wake_at",
        "OnQueued", "OnRefused", "OnStarted", "OnTail", "OnSpan", "OnRound",
        "OnMoved", "OnVerdictsHandled", "OnFinished"}) {
    EXPECT_TRUE(probe.HasSeen(what)) << what;
  }
}

// Scrapes and lists read a board of their own.
TEST(DispatcherTurnTest, WhoLooksDoesNotWaitForTheLock) {
  LockProbe looks;
  const ByteTokenizer tokenizer;
  Dispatcher::Options options;
  options.tokenizer = &tokenizer;
  bool is_asked = false;
  int num_asked = 0;
  options.now_ns = [&]() -> int64_t {
    if (!std::exchange(is_asked, false)) return 1000;
    ++num_asked;
    EXPECT_FALSE(looks.Returns([&] { (void)looks.dispatcher->locked_ns(); },
                               absl::Milliseconds(50)))
        << "the lock is free: this shows nothing";
    EXPECT_TRUE(looks.Returns([&] {
      (void)looks.dispatcher->workers();
      (void)looks.dispatcher->sessions();
      (void)looks.dispatcher->queued();
      (void)looks.dispatcher->demand();
    }));
    return 1000;
  };
  Dispatcher dispatcher(options);
  looks.dispatcher = &dispatcher;
  is_asked = true;
  dispatcher.Tick();  // asks for the time under its lock
  looks.Join();
  EXPECT_EQ(num_asked, 1);
}

// Holds a client to its word: chunks in order, one end, nothing after it.
class CheckingSink final : public ResponseSink {
 public:
  void OnChunk(const Chunk& chunk) override {
    EXPECT_EQ(num_ends_, 0);
    EXPECT_EQ(chunk.first_index, num_tokens_);
    num_tokens_ += static_cast<int>(chunk.token_ids.size());
    text_ += chunk.text;
  }
  void OnComplete(const RequestSpec& request,
                  const Completion& completion) override {
    EXPECT_EQ(num_ends_++, 0);
    EXPECT_EQ(static_cast<int>(completion.token_ids.size()), num_tokens_);
    EXPECT_EQ(completion.text, text_);
    EXPECT_LE(num_tokens_, request.max_tokens);
    if (completion.finish == Finish::kStop) {
      EXPECT_EQ(text_.find("END"), std::string::npos);
    } else {
      EXPECT_EQ(num_tokens_, request.max_tokens);
    }
    ended_.Notify();
  }
  void OnError(const absl::Status& status) override {
    EXPECT_EQ(num_ends_++, 0);
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    ended_.Notify();
  }
  int pending_chunks() const override { return 0; }
  int64_t taken_chunks() const override { return 0; }

  void AwaitEnd() { ended_.WaitForNotification(); }

 private:
  // Used by one thread at a time: ThreadSanitizer watches.
  int num_tokens_ = 0;
  int num_ends_ = 0;
  std::string text_;
  absl::Notification ended_;
};

// Does what a worker does until it is told to stop.
class Player {
 public:
  Player(Dispatcher* dispatcher, WorkerRole role, const std::string& address)
      : dispatcher_(dispatcher), role_(role) {
    id_ = AddWorker(dispatcher, Info(role, address), client_).value();
    thread_ = std::thread([this] {
      while (!stopped_) Play();
    });
  }
  ~Player() {
    stopped_ = true;
    thread_.join();
  }
  uint64_t id() const { return id_; }

 private:
  struct Session {
    uint32_t epoch = 0;
    int length = 0;
    int end = 0;
  };
  void Play() {
    wire::TargetEvents verdicts;
    wire::DraftEvents tails;
    wire::SessionEvents& events =
        role_ == WorkerRole::kTarget ? verdicts.common : tails.common;
    for (const PlayedWorker::Call& call : client_->Take()) Apply(call, &events);
    for (auto& [session_id, session] : sessions_) {
      if (role_ == WorkerRole::kDraft) {
        speculation::Tail tail;
        tail.epoch = session.epoch;
        tail.base_length = tail.first_position = session.length;
        tail.token_ids = {'a'};
        tails.tails.push_back({session_id, std::move(tail)});
      } else if (session.length < session.end) {
        const bool is_last = session.length + 3 >= session.end;
        wire::TargetEvents said =
            Say(session_id, session.length,
                is_last ? std::string(session.end - session.length, '.').c_str()
                : session.length % 7 == 3 ? "END"
                                          : "abc",
                is_last ? FinishReason::kLength : FinishReason::kNone);
        session.length = std::min(session.length + 3, session.end);
        events.spans.push_back(said.common.spans[0]);
        verdicts.verdicts.push_back(std::move(said.verdicts[0]));
      }
    }
    if (role_ == WorkerRole::kTarget) {
      dispatcher_->OnEvents(id_, std::move(verdicts));
    } else {
      dispatcher_->OnEvents(id_, std::move(tails));
    }
    std::this_thread::yield();
  }
  void Apply(const PlayedWorker::Call& call, wire::SessionEvents* events) {
    using Kind = PlayedWorker::Call::Kind;
    const auto it = sessions_.find(call.session_id);
    switch (call.kind) {
      case Kind::kOpen:
        EXPECT_EQ(it, sessions_.end()) << "it is open";
        sessions_[call.session_id] = {call.epoch, call.length, call.end};
        return;
      case Kind::kCommit:
        ASSERT_NE(it, sessions_.end()) << "it is not open";
        EXPECT_EQ(call.length, it->second.length);
        it->second.length += call.num_tokens;
        return;
      case Kind::kClose:
        EXPECT_NE(it, sessions_.end()) << "it is not open";
        sessions_.erase(call.session_id);
        events->closed.push_back(call.session_id);
        return;
    }
  }

  Dispatcher* const dispatcher_;
  const WorkerRole role_;
  const std::shared_ptr<PlayedWorker> client_ =
      std::make_shared<PlayedWorker>();
  uint64_t id_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

TEST(DispatcherTurnTest, SeveralThreadsTellWorkersAndClientsAllInOrder) {
  constexpr int kClients = 3;
  constexpr int kRequests = 60;
  const ByteTokenizer tokenizer;
  Dispatcher::Options options;
  options.tokenizer = &tokenizer;
  options.max_running = 4;
  Dispatcher dispatcher(options);
  std::vector<std::unique_ptr<Player>> players;
  for (const char* address : {"t0", "t1"}) {
    players.push_back(
        std::make_unique<Player>(&dispatcher, WorkerRole::kTarget, address));
  }
  players.push_back(
      std::make_unique<Player>(&dispatcher, WorkerRole::kDraft, "d0"));

  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&dispatcher, client] {
      for (int i = 0; i < kRequests; ++i) {
        RequestSpec request = Request(absl::StrCat(client, "-", i));
        request.max_tokens = 1 + i % 40;
        if (i % 3 == 0) request.stop = {"cE", "ENDa", "END"};
        if (i % 4 == 0) request.method = speculation::Method::kAr;
        const auto sink = std::make_shared<CheckingSink>();
        const auto id = dispatcher.Start(std::move(request), sink);
        ASSERT_TRUE(id.ok()) << id.status();
        if (i % 5 == 0) dispatcher.Cancel(*id);
        dispatcher.OnSinkDrained(*id);
        sink->AwaitEnd();
      }
    });
  }
  std::atomic<bool> done{false};
  std::thread operators([&] {
    while (!done) {
      for (const auto& player : players) {
        dispatcher.StateKept(player->id());
      }
      dispatcher.DrainWorker(players[0]->id());
      (void)dispatcher.workers();
      (void)dispatcher.sessions();
      (void)dispatcher.queued();
      dispatcher.Tick();
      dispatcher.ResumeWorker(players[0]->id());
      std::this_thread::yield();
    }
  });
  for (std::thread& client : clients) client.join();
  done = true;
  operators.join();
  EXPECT_TRUE(dispatcher.sessions().empty());
  EXPECT_TRUE(dispatcher.Drain(absl::Seconds(10)));
}

}  // namespace
}  // namespace nacre::coordinator
