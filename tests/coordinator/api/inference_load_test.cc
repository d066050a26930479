// The public API under load: limits, storms of cancellations, clients that do
// not read.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/dispatch/tick_thread.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/endless_target.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kKvTokens = 4096;
// More than a client that reads may have to wait for a core.
constexpr int64_t kClientTimeoutNs = 1'000'000'000;

class AnswerCounter : public Observer {
 public:
  void OnAnswered(absl::string_view, const absl::Status&,
                  absl::optional<Finish>) override {
    ++count;
  }
  std::atomic<int> count{0};
};

// A coordinator with narrow limits.
class InferenceLoadTest : public ::testing::Test {
 protected:
  explicit InferenceLoadTest(int64_t kv_tokens = kKvTokens,
                             uint32_t context_length = 1024) {
    target_.hello().set_kv_capacity_tokens(kv_tokens);
    target_.hello().set_context_length(context_length);
    EXPECT_TRUE(target_.Attach(server_->address()));
    ticks_.Start(
        [this] { return std::min(dispatcher_.Tick(), inference_.Tick()); });
  }
  ~InferenceLoadTest() override {
    server_->Shutdown(absl::ZeroDuration());
    ticks_.Stop();
  }

  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

  static v1::GenerateRequest Request(uint32_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text("hi");
    request.mutable_stop()->set_max_tokens(max_tokens);
    request.mutable_output()->set_stream(true);
    return request;
  }
  std::unique_ptr<v1::Inference::Stub> Stub() {
    return v1::Inference::NewStub(rpc::CreateChannel(server_->address()));
  }
  // Reads all; the status.
  grpc::Status Call(const v1::GenerateRequest& request) {
    const auto stub = Stub();
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  // Nothing runs or waits, and all KV has been given back.
  bool IsQuiet() {
    if (!dispatcher_.sessions().empty() || !dispatcher_.queued().empty()) {
      return false;
    }
    for (const WorkerStatus& worker : dispatcher_.workers()) {
      if (worker.reserved_tokens != 0) return false;
    }
    return true;
  }

  const ByteTokenizer tokenizer_;
  AnswerCounter answers_;
  TickThread ticks_;
  Dispatcher dispatcher_{
      {.tokenizer = &tokenizer_,
       .max_running = 8,
       .max_queue = 64,
       .client_timeout_ns = kClientTimeoutNs,
       .wake_at = [this](int64_t at_ns) { ticks_.WakeAt(at_ns); }}};
  RegistryService registry_{&dispatcher_, &tokenizer_};
  InferenceService inference_{
      &dispatcher_,
      &tokenizer_,
      &answers_,
      {.max_streams_per_client = 40,
       .client_timeout_ns = kClientTimeoutNs,
       .wake_at = [this](int64_t at_ns) { ticks_.WakeAt(at_ns); }}};
  std::unique_ptr<rpc::RpcServer> server_ = *rpc::RpcServer::Start(
      {.listen = "127.0.0.1:0", .max_request_bytes = 1 << 20},
      {&registry_, &inference_});
  EndlessTarget target_;
};

TEST_F(InferenceLoadTest, ManyStreamsShareFewPlaces) {
  std::vector<std::thread> clients;
  std::atomic<int> num_ok{0};
  for (int i = 0; i < 30; ++i) {
    clients.emplace_back([&, i] {
      if (Call(Request(50 + i)).ok()) ++num_ok;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_ok, 30);
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
}

// Every one is cancelled at another moment: before it is parsed, in the queue,
// while it runs.
TEST_F(InferenceLoadTest, AStormOfCancellationsLeavesNothingBehind) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const auto stub = Stub();
      for (int round = 0; round < 50; ++round) {
        grpc::ClientContext context;
        context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
        const auto reader = stub->Generate(&context, Request(900));
        v1::GenerateResponse response;
        const int reads = (i * 7 + round) % 5;
        for (int read = 1; read < reads; ++read) reader->Read(&response);
        context.TryCancel();
        while (reader->Read(&response)) {
        }
        const grpc::StatusCode code = reader->Finish().error_code();
        EXPECT_TRUE(code == grpc::StatusCode::CANCELLED ||
                    code == grpc::StatusCode::OK)
            << code;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
  EXPECT_TRUE(Call(Request(100)).ok());
}

// A small window: what is not read stays at the coordinator.
std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Of sessions that never had to wait for their clients.
class UnreadAnswersTest : public InferenceLoadTest {
 protected:
  UnreadAnswersTest() : InferenceLoadTest(1 << 20, 1 << 16) {}
};

TEST_F(UnreadAnswersTest, AreGivenUpWhenTheyAreFinished) {
  const auto stub = v1::Inference::NewStub(NarrowChannel(server_->address()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    // The Complete, which repeats the prompt, is larger than any window.
    v1::GenerateRequest request = Request(20);
    request.mutable_token_ids()->mutable_ids()->Resize(50000, 200);
    calls.push_back(stub->Generate(contexts.back().get(), request));
  }
  ASSERT_TRUE(Eventually([&] { return answers_.count == 40; }));
  // The client may have 40 streams: some of these have to go.
  v1::GenerateRequest request = Request(10);
  request.set_n(16);
  EXPECT_TRUE(Eventually([&] { return Call(request).ok(); }));
  int cancelled = 0;
  for (auto& call : calls) {
    v1::GenerateResponse response;
    while (call->Read(&response)) {
    }
    if (call->Finish().error_code() == grpc::StatusCode::CANCELLED) ++cancelled;
  }
  EXPECT_GE(cancelled, 16);
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
}

class ClientsThatDoNotReadTest : public InferenceLoadTest,
                                 public ::testing::WithParamInterface<int> {};

// The parameter: choices of a call.
TEST_P(ClientsThatDoNotReadTest, AreCutOffAndBlockNobody) {
  const auto stub = v1::Inference::NewStub(NarrowChannel(server_->address()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  // More than there are places.
  for (int i = 0; i < 12 / GetParam(); ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    v1::GenerateRequest request = Request(1000);
    request.set_n(GetParam());
    // Every response repeats it: the window is soon full.
    request.set_request_id(std::string(250, static_cast<char>('a' + i)));
    calls.push_back(stub->Generate(contexts.back().get(), request));
  }
  EXPECT_TRUE(Call(Request(100)).ok());
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
  for (auto& call : calls) {
    v1::GenerateResponse response;
    int tokens = 0;
    while (call->Read(&response)) tokens += response.chunk().token_ids_size();
    EXPECT_LT(tokens, 1000 * GetParam());
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

INSTANTIATE_TEST_SUITE_P(Choices, ClientsThatDoNotReadTest,
                         ::testing::Values(1, 4));

TEST_F(InferenceLoadTest, OneClientHasOnlySoManyStreams) {
  target_.silent = true;
  const auto stub = Stub();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(stub->Generate(contexts.back().get(), Request(1000)));
  }
  ASSERT_TRUE(Eventually([&] {
    return dispatcher_.sessions().size() + dispatcher_.queued().size() == 40;
  }));
  const grpc::Status status = Call(Request(10));
  target_.silent = false;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max-streams-per-client"));
  for (auto& context : contexts) context->TryCancel();
  for (auto& call : calls) {
    v1::GenerateResponse response;
    while (call->Read(&response)) {
    }
    call->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return Call(Request(10)).ok(); }));
}

TEST_F(InferenceLoadTest, EachChoiceIsOneOfTheClientsStreams) {
  target_.silent = true;
  const auto stub = Stub();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  v1::GenerateRequest request = Request(1000);
  request.set_n(16);
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(stub->Generate(contexts.back().get(), request));
  }
  ASSERT_TRUE(Eventually([&] {
    return dispatcher_.sessions().size() + dispatcher_.queued().size() == 32;
  }));
  request.set_n(9);
  const grpc::Status status = Call(request);
  target_.silent = false;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            "the client has 32 streams and wants 9 more; "
            "--max-streams-per-client is 40");
  for (auto& context : contexts) context->TryCancel();
  for (auto& call : calls) {
    v1::GenerateResponse response;
    while (call->Read(&response)) {
    }
    call->Finish();
  }
  // All are given back: they fit once more.
  request = Request(10);
  request.set_n(16);
  EXPECT_TRUE(Eventually([&] { return Call(request).ok(); }));
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
}

TEST_F(InferenceLoadTest, AMessageOverTheLimitIsRefused) {
  v1::GenerateRequest request = Request(10);
  request.set_text(std::string(2 << 20, 'x'));
  EXPECT_EQ(Call(request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.set_text(std::string(1000, 'x'));
  EXPECT_TRUE(Call(request).ok());
}

TEST_F(InferenceLoadTest, TheTimeInTheQueueIsTold) {
  const auto stub = Stub();
  const v1::GenerateRequest request = Request(10);
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  bool completed = false;
  while (reader->Read(&response)) {
    if (!response.has_complete()) continue;
    completed = true;
    const v1::Timing& timing = response.complete().timing();
    EXPECT_TRUE(timing.has_queue());
    EXPECT_GT(timing.queue().seconds() + timing.queue().nanos(), 0);
  }
  EXPECT_TRUE(completed);
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace nacre::coordinator
