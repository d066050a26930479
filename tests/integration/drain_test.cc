// A drained target loses no stream, however little room the others have, and
// calls outlast the moment in which every target restarts.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

constexpr int kKinds = 3;
constexpr int kTokens = 200;
// Keys and values of a position of the bundled target: f32, 6 layers, 2 heads
// of 64.
constexpr int kKvBytesPerToken = 6144;

// What the coordinator reserves for a stream on its target.
int KvNeed(Service& service, int kind) {
  const auto complete =
      service.Generate(StreamRequest(kind, v1::METHOD_AR, /*max_tokens=*/1));
  EXPECT_TRUE(complete.ok()) << complete.status();
  const int prompt = static_cast<int>(complete->usage().prompt_tokens());
  return (prompt + kTokens + 15) / 16 * 16;
}

// And for the rows of the trees of the first four: later ones get none.
constexpr int kSlots = 4 * 16;

// Flags of a target with KV for so many tokens of streams.
std::vector<std::string> WithKv(int tokens) {
  return {"--max-memory", absl::StrCat((tokens + kSlots) * kKvBytesPerToken),
          // A test stops a target while another one loads its model.
          "--hang-timeout", "5m"};
}

// Streams of mixed methods and kinds, each on a thread of its own.
class Streams {
 public:
  Streams(Service& service, const std::vector<Tokens>& expected)
      : service_(service), expected_(expected) {}
  ~Streams() { Join(); }

  // Returns when each of `count` more streams has `tokens` tokens or has ended;
  // `then` is called when the last one gets there.
  void Start(
      int count, size_t tokens, const std::function<void()>& then = [] {}) {
    const int first = static_cast<int>(threads_.size());
    const auto waiting = std::make_shared<std::atomic<int>>(count);
    const auto done = std::make_shared<absl::Notification>();
    for (int i = first; i < first + count; ++i) {
      threads_.emplace_back([this, i, tokens, then, waiting, done] {
        bool is_there = false;
        const auto arrive = [&] {
          if (std::exchange(is_there, true) || --*waiting > 0) return;
          then();
          done->Notify();
        };
        Run(i, [&](size_t so_far) {
          if (so_far >= tokens) arrive();
        });
        arrive();
      });
    }
    EXPECT_TRUE(done->WaitForNotificationWithTimeout(kCallTimeout));
  }

  // Waits until all have ended, each with the tokens that it should have.
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Run(int i, const std::function<void(size_t)>& on_tokens) {
    const int kind = i % kKinds;
    const StreamOutcome outcome = RunStream(
        service_, StreamRequest(kind, MethodOf(i), kTokens), on_tokens);
    EXPECT_TRUE(outcome.status.ok())
        << "stream " << i << ": " << outcome.status;
    EXPECT_TRUE(outcome.streamed == expected_[kind])
        << "stream " << i << " has " << outcome.streamed.size() << " tokens";
  }

  Service& service_;
  const std::vector<Tokens>& expected_;
  std::vector<std::thread> threads_;
};

// A coordinator with a draft; targets come and go.
class DrainTest : public ::testing::Test {
 protected:
  void StartService(const std::vector<std::string>& coordinator_flags) {
    Processes::Options options;
    // A stopped target is not lost.
    options.coordinator = {"--worker-timeout=5m"};
    options.coordinator.insert(options.coordinator.end(),
                               coordinator_flags.begin(),
                               coordinator_flags.end());
    processes_ = std::make_unique<Processes>(std::move(options));
    service_ = std::make_unique<Service>(processes_->address(),
                                         processes_->admin_address());
    processes_->StartWorker("draft", "draft");
    processes_->StartWorker("quiet", "target");
    ASSERT_NO_FATAL_FAILURE(processes_->AwaitReady(2));
    expected_ = QuietRun(*service_, kKinds, kTokens);
    for (int kind = 0; kind < kKinds; ++kind) {
      need_.push_back(KvNeed(*service_, kind));
    }
    End("quiet");
  }

  void End(const std::string& target) {
    processes_->Signal(target, SIGTERM);
    processes_->AwaitExit(target);
    processes_->AwaitReady(1);
  }

  std::unique_ptr<v1::Admin::Stub> Admin() const {
    return v1::Admin::NewStub(rpc::CreateChannel(processes_->admin_address()));
  }

  // How many sessions have the target at `address`.
  int SessionsAt(const std::string& address) const {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    const grpc::Status status = Admin()->ListSessions(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return static_cast<int>(std::count_if(
        response.sessions().begin(), response.sessions().end(),
        [&](const auto& each) { return each.target_address() == address; }));
  }

  // Of a worker at `address`.
  void Drain(const std::string& address) {
    grpc::ClientContext context;
    v1::DrainWorkerRequest request;
    request.set_address(address);
    v1::DrainWorkerResponse response;
    const grpc::Status status =
        Admin()->DrainWorker(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  // Drains a target with half of the streams while another one runs the other
  // half and has room for `room` more.
  void DrainUnderStreams(int num_streams, int room) {
    SCOPED_TRACE(absl::StrCat(num_streams, " streams, room for ", room));
    const int half = num_streams / 2;
    const std::string drained = absl::StrCat("drained-", room);
    const std::string other = absl::StrCat("other-", room);
    int kv[2] = {0, room * *std::max_element(need_.begin(), need_.end())};
    for (int i = 0; i < num_streams; ++i) kv[i / half] += need_[i % kKinds];

    processes_->StartWorker(drained, "target", WithKv(kv[0]));
    ASSERT_NO_FATAL_FAILURE(processes_->AwaitReady(2));
    const std::string address = processes_->WorkerAddress(drained);
    Streams streams(*service_, expected_);
    // It waits for the other one, in the middle of its streams.
    streams.Start(half, /*tokens=*/8,
                  [&] { processes_->Signal(drained, SIGSTOP); });
    processes_->StartWorker(other, "target", WithKv(kv[1]));
    ASSERT_NO_FATAL_FAILURE(processes_->AwaitReady(3));
    streams.Start(half, /*tokens=*/1);
    EXPECT_GE(service_->ServerInfo().running_requests(),
              static_cast<uint32_t>(half));
    const int there = SessionsAt(address);
    EXPECT_GT(there, 0);
    Drain(address);
    // It stands still: what it has no more has moved. More follows as streams
    // of the other one end.
    EXPECT_LE(SessionsAt(address), std::max(0, there - room));
    processes_->Signal(drained, SIGCONT);
    streams.Join();
    processes_->AwaitExit(drained);
    EXPECT_TRUE(service_->KvReturnsToEmpty());
    End(other);
  }

  std::unique_ptr<Processes> processes_;
  std::unique_ptr<Service> service_;
  std::vector<Tokens> expected_;  // of each kind
  std::vector<int> need_;         // of each kind
};

class DrainedTargetTest : public DrainTest,
                          public ::testing::WithParamInterface<int> {};

TEST_P(DrainedTargetTest, LosesNoStreamWhateverRoomThereIsElsewhere) {
  // Less than it takes until there is room for those that find none at first.
  ASSERT_NO_FATAL_FAILURE(StartService({"--failover-timeout=2s"}));
  const int moving = GetParam() / 2;
  for (const int room : {moving / 4, moving / 2, moving}) {
    ASSERT_NO_FATAL_FAILURE(DrainUnderStreams(GetParam(), room));
  }
  processes_->Signal("draft", SIGTERM);
  processes_->AwaitExit("draft");
}

INSTANTIATE_TEST_SUITE_P(Streams, DrainedTargetTest,
                         ::testing::Values(12, 40, 64));

TEST_F(DrainTest, CallsWaitWhileEveryTargetRestarts) {
  ASSERT_NO_FATAL_FAILURE(StartService({}));
  constexpr int kCalls = 8;
  Streams streams(*service_, expected_);
  std::thread starting([&] { streams.Start(kCalls, /*tokens=*/1); });
  EXPECT_TRUE(Service::Eventually(
      [this] { return service_->ServerInfo().queued_requests() == kCalls; }));
  processes_->StartWorker("again-0", "target");
  processes_->StartWorker("again-1", "target");
  starting.join();
  streams.Join();
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

TEST_F(DrainTest, CallsDoNotWaitForATargetWhereTheyAreToldNotTo) {
  ASSERT_NO_FATAL_FAILURE(StartService({"--hold-without-target=off"}));
  const StreamOutcome outcome =
      RunStream(*service_, StreamRequest(0, v1::METHOD_AR, kTokens));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable)
      << outcome.status;
}

TEST_F(DrainTest, CallsDoNotWaitForATargetThatNeverWas) {
  const Processes processes({});
  Service service(processes.address(), processes.admin_address());
  const StreamOutcome outcome =
      RunStream(service, StreamRequest(0, v1::METHOD_AR, kTokens));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable)
      << outcome.status;
}

}  // namespace
}  // namespace nacre::integration
