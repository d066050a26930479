// Calls whose requests come late, or not, or wait for the tokenizer.

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/bearer_tokens.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "coordinator/api/inference_service.h"
#include "coordinator/dispatch/dispatcher.h"
#include "proto/inference.grpc.pb.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/fake_worker.h"
#include "tests/coordinator/recording_client.h"
#include "tests/testing/certificates.h"
#include "tests/testing/raw_call.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tokenizes nothing until told to.
class HeldTokenizer final : public tokenizer::Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, tokenizer::EncodeOptions) const override {
    {
      absl::MutexLock lock(&mu_);
      texts_.emplace_back(text);
    }
    go.WaitForNotification();
    return std::vector<int32_t>(text.size(), 1000);
  }
  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool) const override {
    return nullptr;
  }
  std::vector<std::string> texts() const {
    absl::MutexLock lock(&mu_);
    return texts_;
  }
  void AwaitTexts(size_t count) const {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return texts_.size() >= count;
    };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }

  mutable absl::Notification go;

 private:
  mutable absl::Mutex mu_;
  mutable std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
};

class StartObserver final : public Observer {
 public:
  void OnStarted(uint64_t id, const RequestSpec&, const Placement&,
                 int64_t) override {
    session_id = id;
    session.Notify();
  }
  uint64_t session_id = 0;
  absl::Notification session;  // has started
};

// A call whose client sends its request and reads nothing.
class UnreadCall {
 public:
  UnreadCall(const std::string& address, const std::string& method,
             const google::protobuf::Message& request,
             const std::string& token = "")
      : stub_(NarrowChannel(address)) {
    if (!token.empty()) {
      context_.AddMetadata("authorization", "Bearer " + token);
    }
    call_ =
        stub_.PrepareCall(&context_, "/nacre.v1.Inference/" + method, &queue_);
    call_->StartCall(nullptr);
    Await();
    const grpc::Slice slice(request.SerializeAsString());
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(),
                     nullptr);
    Await();
  }
  // The first so many messages of its answer.
  void Read(int count) {
    for (int i = 0; i < count; ++i) {
      grpc::ByteBuffer message;
      call_->Read(&message, nullptr);
      EXPECT_TRUE(Await()) << i;
    }
  }
  ~UnreadCall() {
    context_.TryCancel();
    queue_.Shutdown();
    while (Await()) {
    }
  }

 private:
  // Its window does not grow: what is not read stays at the server.
  static std::shared_ptr<grpc::Channel> NarrowChannel(
      const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
  }
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class InferenceReceiveTest : public ::testing::Test {
 protected:
  static constexpr int kManyTokens = 1 << 19;

  explicit InferenceReceiveTest(int max_streams = 2)
      : max_streams_(max_streams) {}

  ~InferenceReceiveTest() override {
    if (!held_.go.HasBeenNotified()) held_.go.Notify();
    server_->Shutdown(absl::ZeroDuration());
  }

  // How often a call began to wait: once for its request, once for a thread.
  void AwaitWaits(int count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return waits_ >= count;
    };
    ASSERT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }
  int64_t WaitsUntil() {
    absl::MutexLock lock(&mu_);
    return waits_until_ns_;
  }
  void Pass(int64_t duration_ns) {
    now_ns_ += duration_ns;
    inference_.Tick();
  }
  grpc::Status Tokenize(const std::string& text, grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::TokenizeRequest request;
    request.set_text(text);
    v1::TokenizeResponse response;
    return stub_->Tokenize(context, request, &response);
  }
  grpc::Status Tokenize(const std::string& text) {
    grpc::ClientContext context;
    return Tokenize(text, &context);
  }
  uint64_t AddTarget() {
    WorkerInfo info;
    info.model_vocab_size = info.tokenizer_vocab_size =
        ByteTokenizer::kVocabSize;
    info.context_length = 2 * kManyTokens;
    return AddWorker(&dispatcher_, info, std::make_shared<RecordingClient>())
        .value();
  }
  // One token for the session that has started.
  void Commit(uint64_t target, int base_length,
              speculation::FinishReason finish) {
    speculation::Verdict verdict;
    verdict.base_length = base_length;
    verdict.token_ids = {'x'};
    verdict.finish = finish;
    wire::TargetEvents events;
    events.verdicts.push_back({starts_.session_id, std::move(verdict)});
    dispatcher_.OnEvents(target, events);
  }
  // The one thread is busy with it until held_ goes on.
  std::thread Occupy(grpc::Status* status) {
    std::thread thread([this, status] { *status = Tokenize("first"); });
    held_.AwaitTexts(1);
    AwaitWaits(2);
    return thread;
  }

  const int max_streams_;
  const ByteTokenizer tokenizer_{};
  const HeldTokenizer held_{};
  std::atomic<int64_t> now_ns_{1000 * kSecond};
  absl::Mutex mu_;
  int waits_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t waits_until_ns_ ABSL_GUARDED_BY(mu_) = 0;  // the last one
  StartObserver starts_;
  std::atomic<int64_t> received_bytes_{0};  // on every connection
  Dispatcher dispatcher_{{.tokenizer = &tokenizer_,
                          .observer = &starts_,
                          .now_ns = [this] { return now_ns_.load(); },
                          .client_timeout_ns = 3 * kSecond}};
  InferenceService inference_{
      &dispatcher_,
      &held_,
      nullptr,
      {.max_streams_per_client = max_streams_,
       .receiving = {.max_bytes = 1000,
                     .received =
                         [this](const std::string&) {
                           return received_bytes_.load();
                         }},
       .parsing = {.threads = 1},
       .client_timeout_ns = 3 * kSecond,
       .max_request_ns = 10 * kSecond,
       .wake_at = [this](int64_t at_ns) {
         // Not for what is being received.
         if (at_ns < now_ns_ + kSecond) return;
         absl::MutexLock lock(&mu_);
         ++waits_;
         waits_until_ns_ = at_ns;
       }}};
  std::unique_ptr<rpc::RpcServer> server_ =
      *rpc::RpcServer::Start({}, {&inference_});
  std::unique_ptr<v1::Inference::Stub> stub_ =
      v1::Inference::NewStub(rpc::CreateChannel(server_->address()));
};

TEST_F(InferenceReceiveTest, ARequestThatDoesNotComeIsNotWaitedForForEver) {
  int waits = 0;
  for (const char* method : {"Generate", "Tokenize", "GetModel"}) {
    SCOPED_TRACE(method);
    grpc::Status status;
    std::thread client([&] {
      status = nacre::testing::CallWithBytes(
          rpc::CreateChannel(server_->address()),
          std::string("/nacre.v1.Inference/") + method, std::nullopt);
    });
    AwaitWaits(++waits);
    Pass(3 * kSecond - 1);
    Pass(1);
    client.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(status.error_message(),
              "the request had not come 3s after its call");
  }
}

TEST_F(InferenceReceiveTest, ARequestThatHoldsTooMuchIsRefused) {
  int waits = 0;
  for (const char* method : {"Generate", "Tokenize", "GetModel"}) {
    SCOPED_TRACE(method);
    grpc::Status status;
    std::thread client([&] {
      status = nacre::testing::CallWithBytes(
          rpc::CreateChannel(server_->address()),
          std::string("/nacre.v1.Inference/") + method, std::nullopt);
    });
    AwaitWaits(++waits);
    received_bytes_ += 1000;
    Pass(1);
    received_bytes_ += 1;
    Pass(1);
    client.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("is on its way"));
  }
}

TEST_F(InferenceReceiveTest, TheLimitOfARequestCountsWhileItWaits) {
  grpc::Status first;
  std::thread busy = Occupy(&first);
  grpc::Status second;
  std::thread waiting([&] {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::GenerateRequest request;
    request.set_text("second");
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    second = reader->Finish();
  });
  AwaitWaits(4);
  Pass(10 * kSecond);
  waiting.join();
  EXPECT_EQ(second.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(second.error_message(),
              HasSubstr("waited to be tokenized for --max-request-duration"));
  busy.join();  // refused as well, while its text is tokenized
  EXPECT_EQ(first.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(InferenceReceiveTest, ACancelledCallLeavesTheQueueOfTheTokenizer) {
  grpc::Status first;
  std::thread busy = Occupy(&first);
  grpc::ClientContext context;
  grpc::Status second;
  std::thread waiting([&] { second = Tokenize("second", &context); });
  AwaitWaits(4);
  EXPECT_EQ(Tokenize("too many").error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  context.TryCancel();
  waiting.join();
  EXPECT_EQ(second.error_code(), grpc::StatusCode::CANCELLED);
  // It gives its stream back as nothing is left of it, the first still busy.
  grpc::Status third;
  std::thread next([&] {
    do {
      third = Tokenize("third");
    } while (third.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  });
  AwaitWaits(6);
  held_.go.Notify();
  next.join();
  busy.join();
  EXPECT_TRUE(first.ok()) << first.error_message();
  EXPECT_TRUE(third.ok()) << third.error_message();
  EXPECT_THAT(held_.texts(), ElementsAre("first", "third"));
}

// The client has one stream: it has it again when nothing is left of the call.
class UnreadReceiveTest : public InferenceReceiveTest {
 protected:
  UnreadReceiveTest() : InferenceReceiveTest(/*max_streams=*/1) {}

  void ExpectStreamTaken() { EXPECT_TRUE(IsStreamTaken()); }
  void ExpectStreamGivenBack() {
    const absl::Time deadline = absl::Now() + kPatience;
    while (IsStreamTaken() && absl::Now() < deadline) {
    }
    EXPECT_LT(absl::Now(), deadline) << "the server does not end the call";
  }

 private:
  bool IsStreamTaken() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::Model model;
    return stub_->GetModel(&context, {}, &model).error_code() ==
           grpc::StatusCode::RESOURCE_EXHAUSTED;
  }
};

TEST_F(UnreadReceiveTest, AnAnswerThatIsNotTakenIsGivenUp) {
  held_.go.Notify();
  v1::TokenizeRequest request;
  request.set_text(std::string(size_t{1} << 20, 'x'));  // over any window
  UnreadCall call(server_->address(), "Tokenize", request);
  AwaitWaits(3);  // for its request, for a thread, for its reader
  Pass(3 * kSecond - 1);
  ExpectStreamTaken();
  Pass(1);
  ExpectStreamGivenBack();
}

// However long it waited for a thread.
TEST_F(UnreadReceiveTest, AnAnswerThatComesLateHasAllOfItsTimeToBeTaken) {
  v1::TokenizeRequest request;
  request.set_text(std::string(size_t{1} << 20, 'x'));  // over any window
  UnreadCall call(server_->address(), "Tokenize", request);
  held_.AwaitTexts(1);
  AwaitWaits(2);  // for its request, for a thread
  Pass(2 * kSecond);
  held_.go.Notify();
  AwaitWaits(3);  // for its reader
  EXPECT_EQ(WaitsUntil(), now_ns_ + 3 * kSecond);
  Pass(3 * kSecond - 1);
  ExpectStreamTaken();
  Pass(1);
  ExpectStreamGivenBack();
}

TEST_F(UnreadReceiveTest, ACompletionThatIsNotTakenIsGivenUp) {
  const uint64_t target = AddTarget();
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Resize(kManyTokens, 'p');
  request.mutable_stop()->set_max_tokens(1);
  UnreadCall call(server_->address(), "Generate", request);
  starts_.session.WaitForNotification();
  // It repeats the prompt: over any window.
  Commit(target, kManyTokens, speculation::FinishReason::kLength);
  AwaitWaits(3);  // for its request, for a thread, for its reader
  Pass(3 * kSecond - 1);
  ExpectStreamTaken();
  Pass(1);
  ExpectStreamGivenBack();
}

// The client has the timeout for each part that it takes of a finished answer.
TEST_F(UnreadReceiveTest, AFinishedAnswerThatIsStillReadIsNotGivenUp) {
  const uint64_t target = AddTarget();
  v1::GenerateRequest request;
  request.set_request_id(std::string(250, 'r'));  // each chunk repeats it
  request.mutable_token_ids()->mutable_ids()->Resize(kManyTokens, 'p');
  request.mutable_stop()->set_max_tokens(1001);
  request.mutable_output()->set_stream(true);
  UnreadCall call(server_->address(), "Generate", request);
  starts_.session.WaitForNotification();
  for (int i = 0; i < 1000; ++i) {  // far more than the window has room for
    Commit(target, kManyTokens + i, speculation::FinishReason::kNone);
  }
  Commit(target, kManyTokens + 1000, speculation::FinishReason::kLength);
  AwaitWaits(3);  // for its request, for a thread, for its reader
  call.Read(900);
  Pass(3 * kSecond);
  AwaitWaits(4);  // for its reader, again
  ExpectStreamTaken();
}

// The call ends with its session: it does not get the time of a reader on top.
TEST_F(UnreadReceiveTest, ASessionWhoseChunksAreNotTakenIsGivenUp) {
  const uint64_t target = AddTarget();
  v1::GenerateRequest request;
  request.set_request_id(std::string(250, 'r'));  // each chunk repeats it
  request.mutable_token_ids()->add_ids('p');
  request.mutable_stop()->set_max_tokens(10000);
  request.mutable_output()->set_stream(true);
  UnreadCall call(server_->address(), "Generate", request);
  starts_.session.WaitForNotification();
  for (int i = 1; i <= 1000; ++i) {  // far more than the window has room for
    Commit(target, i, speculation::FinishReason::kNone);
  }
  ExpectStreamTaken();
  // What gRPC took of the first chunks may come to be known late.
  const absl::Time deadline = absl::Now() + kPatience;
  while (!dispatcher_.sessions().empty() && absl::Now() < deadline) {
    now_ns_ += 3 * kSecond;
    dispatcher_.Tick();
  }
  ExpectStreamGivenBack();
}

// Two clients, and room for one long answer.
class FullAnswersTest : public InferenceReceiveTest {
 protected:
  FullAnswersTest() { held_.go.Notify(); }
  ~FullAnswersTest() override {
    guarded_server_->Shutdown(absl::ZeroDuration());
    std::filesystem::remove(path_);
  }

  static v1::TokenizeRequest Request(size_t ids) {
    v1::TokenizeRequest request;
    request.set_text(std::string(ids, 'x'));
    return request;
  }
  std::unique_ptr<UnreadCall> CallUnread(size_t ids, const std::string& token) {
    return std::make_unique<UnreadCall>(guarded_server_->address(), "Tokenize",
                                        Request(ids), token);
  }
  grpc::Status Call(size_t ids, const std::string& token) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    context.AddMetadata("authorization", "Bearer " + token);
    v1::TokenizeResponse response;
    return v1::Inference::NewStub(
               rpc::CreateChannel(guarded_server_->address()))
        ->Tokenize(&context, Request(ids), &response);
  }
  std::unique_ptr<rpc::BearerTokens> Tokens() {
    nacre::testing::WriteFileAtomically(path_,
                                        "alice:" + kAlice + "\nbob:" + kBob);
    return *rpc::BearerTokens::Load(path_);
  }
  // An answer beside which Alice has no room for another one; `refusal` says
  // so.
  std::unique_ptr<UnreadCall> HoldAnswer(grpc::Status* refusal) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      // One that comes while another is on its way is refused itself.
      std::unique_ptr<UnreadCall> unread = CallUnread(500'000, kAlice);
      for (int i = 0; i < 20; ++i) {
        *refusal = Call(400'000, kAlice);
        if (!refusal->ok()) return unread;
      }
    }
    ADD_FAILURE() << "no answer is held";
    return nullptr;
  }

  const std::string kAlice = "alice-0123456789abcdef";
  const std::string kBob = "bob-0123456789abcdef";
  const std::string path_ =
      ::testing::TempDir() + "/nacre_answers_" + std::to_string(getpid());
  const Authenticator authenticator_{Tokens(), nullptr};
  InferenceService guarded_{
      &dispatcher_,
      &held_,
      nullptr,
      {.max_answer_bytes = 4'000'000, .client_timeout_ns = 3 * kSecond},
      &authenticator_};
  std::unique_ptr<rpc::RpcServer> guarded_server_ =
      *rpc::RpcServer::Start({}, {&guarded_});
};

TEST_F(FullAnswersTest, AnAnswerWithoutRoomIsRefusedUntilThereIsSome) {
  grpc::Status status;
  const auto unread = HoldAnswer(&status);
  const absl::Time deadline = absl::Now() + kPatience;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("bytes: at most 4000000 bytes of answers wait"));
  // What is refused is an answer, too, while it is on its way: which of them
  // waited at a tick is not known.
  do {
    now_ns_ += 3 * kSecond;
    guarded_.Tick();
    status = Call(400'000, kAlice);
  } while (!status.ok() && absl::Now() < deadline);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(FullAnswersTest, WhoReadsNothingMakesRoomForOthers) {
  grpc::Status refusal;
  const auto unread = HoldAnswer(&refusal);
  // Its answer is cut off, and more than once another has its room: as soon as
  // what others have read, or he himself, has left it.
  const absl::Time deadline = absl::Now() + kPatience;
  for (int i = 0; i < 2; ++i) {
    grpc::Status status;
    do {
      status = Call(400'000, kBob);
    } while (!status.ok() && absl::Now() < deadline);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(InferenceReceiveTest, TheModelIsToldWhateverIsTokenized) {
  grpc::Status first;
  std::thread busy = Occupy(&first);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::Model model;
  EXPECT_EQ(stub_->GetModel(&context, {}, &model).error_code(),
            grpc::StatusCode::UNAVAILABLE);  // no target is there
  held_.go.Notify();
  busy.join();
}

// Its message is parsed by the tokenizers' threads, after its fields are
// counted.
TEST_F(InferenceReceiveTest, ABombOfFieldsIsRefused) {
  std::string bomb;
  for (int i = 0; i < 100000; ++i) bomb += "\x78\x01";  // of no schema
  for (const char* method : {"Generate", "Tokenize"}) {
    const grpc::Status status = nacre::testing::CallWithBytes(
        rpc::CreateChannel(server_->address()),
        std::string("/nacre.v1.Inference/") + method, bomb);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("has more than 4096"));
  }
}

}  // namespace
}  // namespace nacre::coordinator
