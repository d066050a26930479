#include "common/rpc/message_stream.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::rpc {
namespace {

using ServerStream = ServerMessageStream<v1::DraftControl, v1::DraftEvent>;
using ClientStream = ClientMessageStream<v1::DraftControl, v1::DraftEvent>;

constexpr absl::Duration kPatience = absl::Seconds(60);

// One end's record of what happened to it.
template <typename Message>
class Record {
 public:
  void Add(const Message& message) {
    absl::MutexLock lock(&mu_);
    messages_.push_back(message);
  }
  void SetDone(absl::Status status) {
    absl::MutexLock lock(&mu_);
    status_ = std::move(status);
    ++num_done_;
  }
  // Waits until so many messages came; false when they do not.
  bool AwaitMessages(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() { return messages_.size() >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
  }
  bool AwaitDone() {
    absl::MutexLock lock(&mu_);
    const auto done = [&]() { return num_done_ > 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&done), kPatience);
  }
  std::vector<Message> messages() {
    absl::MutexLock lock(&mu_);
    return messages_;
  }
  absl::Status status() {
    absl::MutexLock lock(&mu_);
    return status_;
  }
  int num_done() {
    absl::MutexLock lock(&mu_);
    return num_done_;
  }

 private:
  absl::Mutex mu_;
  std::vector<Message> messages_;
  absl::Status status_;
  int num_done_ = 0;
};

// Records every stream's messages in one record; hands out the last stream.
class RecordingService : public v1::DraftWorker::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::DraftControl, v1::DraftEvent>* Session(
      grpc::CallbackServerContext*) override {
    auto stream = ServerStream::Create(
        {[this](const v1::DraftControl& message) { record.Add(message); },
         [this] { record.SetDone(absl::OkStatus()); }});
    absl::MutexLock lock(&mu_);
    stream_ = stream;
    return stream.get();
  }

  std::shared_ptr<ServerStream> AwaitStream() {
    absl::MutexLock lock(&mu_);
    const auto there = [this]() { return stream_ != nullptr; };
    mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
    return std::exchange(stream_, nullptr);
  }

  Record<v1::DraftControl> record;

 private:
  absl::Mutex mu_;
  std::shared_ptr<ServerStream> stream_;
};

class MessageStreamTest : public ::testing::Test {
 protected:
  MessageStreamTest()
      : server_(*RpcServer::Start({"127.0.0.1:0", ""}, {&service_})) {}

  // Connects; sets client_ and, once a first message arrived, peer_.
  void Open() {
    client_ = Connect(server_->address());
    ASSERT_TRUE(client_->Send(Control(0, 0)));
    peer_ = service_.AwaitStream();
    ASSERT_NE(peer_, nullptr);
    ASSERT_TRUE(service_.record.AwaitMessages(1));
  }

  std::shared_ptr<ClientStream> Connect(const std::string& address) {
    auto stub = v1::DraftWorker::NewStub(CreateChannel(address));
    auto stream = ClientStream::Create(
        {[this](const v1::DraftEvent& event) { record_.Add(event); },
         [this](const absl::Status& status) { record_.SetDone(status); }});
    stub->async()->Session(stream->context(), stream.get());
    stream->Start();
    return stream;
  }

  // A message that carries two numbers.
  static v1::DraftControl Control(uint64_t thread, uint32_t index) {
    v1::DraftControl message;
    v1::CommitTokens* commit = message.add_commit();
    commit->set_session_id(thread);
    commit->set_first_position(index);
    return message;
  }
  static v1::DraftEvent Event(uint64_t thread, uint32_t index) {
    v1::DraftEvent message;
    v1::Tail* tail = message.add_tails();
    tail->set_session_id(thread);
    tail->set_first_position(index);
    return message;
  }

  RecordingService service_;
  Record<v1::DraftEvent> record_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<ClientStream> client_;
  std::shared_ptr<ServerStream> peer_;
};

TEST_F(MessageStreamTest, EveryThreadsMessagesArriveOnceAndInOrderBothWays) {
  Open();
  constexpr int kThreads = 3;
  constexpr int kMessages = 301;
  std::vector<std::thread> threads;
  for (int t = 1; t <= kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(client_->Send(Control(t, i)));
        EXPECT_TRUE(peer_->Send(Event(t, i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(service_.record.AwaitMessages(1 + kThreads * kMessages));
  ASSERT_TRUE(record_.AwaitMessages(kThreads * kMessages));

  std::map<uint64_t, uint32_t> next;
  for (const v1::DraftControl& message : service_.record.messages()) {
    const v1::CommitTokens& commit = message.commit(0);
    EXPECT_EQ(commit.first_position(), next[commit.session_id()]++);
  }
  next.clear();
  for (const v1::DraftEvent& message : record_.messages()) {
    const v1::Tail& tail = message.tails(0);
    EXPECT_EQ(tail.first_position(), next[tail.session_id()]++);
  }
  EXPECT_EQ(next.size(), size_t{kThreads});
  client_->Cancel();
  EXPECT_TRUE(record_.AwaitDone());
}

TEST_F(MessageStreamTest, AServersFinishDeliversWhatWasSentThenTheStatus) {
  Open();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(peer_->Send(Event(1, i)));
  peer_->Finish(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no"));
  EXPECT_FALSE(peer_->Send(Event(1, 50)));
  peer_->Finish(grpc::Status::OK);  // the first one counts
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_EQ(record_.status(), absl::FailedPreconditionError("no"));
  EXPECT_EQ(record_.messages().size(), 50u);
  EXPECT_FALSE(client_->Send(Control(1, 1)));
  client_->CloseWrites();  // harmless after the end
  client_->Cancel();
  EXPECT_TRUE(service_.record.AwaitDone());
}

TEST_F(MessageStreamTest, AFinishBeforeAnyMessageEndsTheStream) {
  client_ = Connect(server_->address());
  peer_ = service_.AwaitStream();
  ASSERT_NE(peer_, nullptr);
  peer_->Finish(grpc::Status::OK);
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_TRUE(record_.status().ok());
  EXPECT_TRUE(service_.record.AwaitDone());
}

TEST_F(MessageStreamTest, AClientsCancelEndsBothSides) {
  Open();
  client_->Cancel();
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_EQ(record_.status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(service_.record.AwaitDone());
  EXPECT_FALSE(peer_->Send(Event(1, 0)));
  EXPECT_FALSE(client_->Send(Control(1, 0)));
}

TEST_F(MessageStreamTest, ACancelBeforeAnythingWasSentEndsTheCall) {
  auto stub = v1::DraftWorker::NewStub(CreateChannel(server_->address()));
  auto stream = ClientStream::Create(
      {[this](const v1::DraftEvent& event) { record_.Add(event); },
       [this](const absl::Status& status) { record_.SetDone(status); }});
  stub->async()->Session(stream->context(), stream.get());
  stream->Cancel();
  stream->Start();
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_EQ(record_.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(MessageStreamTest, CloseWritesDeliversWhatWasSentAndEndsWithOk) {
  Open();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(client_->Send(Control(1, i)));
  client_->CloseWrites();
  client_->CloseWrites();
  EXPECT_FALSE(client_->Send(Control(1, 50)));
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_TRUE(record_.status().ok()) << record_.status();
  EXPECT_EQ(service_.record.messages().size(), 51u);
  EXPECT_TRUE(service_.record.AwaitDone());
}

TEST_F(MessageStreamTest, AnIdleClientMayCloseItsWrites) {
  client_ = Connect(server_->address());
  client_->CloseWrites();
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_TRUE(record_.status().ok()) << record_.status();
}

TEST_F(MessageStreamTest, AServerThatVanishesIsUnavailable) {
  Open();
  server_->Shutdown(absl::ZeroDuration());
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_FALSE(record_.status().ok());
  EXPECT_FALSE(client_->Send(Control(1, 0)));
  EXPECT_TRUE(service_.record.AwaitDone());
}

// The same method as bytes: sends `answer` for the first message, then lives on
// and says nothing more until the call is cancelled.
class RawService : public v1::DraftWorker::WithRawCallbackMethod_Session<
                       v1::DraftWorker::Service> {
 public:
  explicit RawService(std::string answer) : answer_(std::move(answer)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext*) override {
    class Reactor
        : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
     public:
      explicit Reactor(const std::string& answer) {
        const grpc::Slice slice(answer);
        answer_ = grpc::ByteBuffer(&slice, 1);
        StartRead(&incoming_);
      }

     private:
      void OnReadDone(bool ok) override {
        if (ok) StartWrite(&answer_);
      }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }

      grpc::ByteBuffer incoming_;
      grpc::ByteBuffer answer_;
    };
    return new Reactor(answer_);
  }

 private:
  const std::string answer_;
};

// The second one holds a field before it breaks off.
const std::string kNoMessages[] = {
    std::string(11, '\xff'),
    v1::DraftEvent::default_instance().SerializeAsString() +
        std::string("\x80\x80\x01\x05\xff", 5)};

TEST_F(MessageStreamTest, BytesThatAreNoMessageEndTheClientsCall) {
  for (const std::string& bytes : kNoMessages) {
    Record<v1::DraftEvent> record;
    RawService service(bytes);
    const auto server = *RpcServer::Start({"127.0.0.1:0", ""}, {&service});
    auto stub = v1::DraftWorker::NewStub(CreateChannel(server->address()));
    const auto stream = ClientStream::Create(
        {[&](const v1::DraftEvent& event) { record.Add(event); },
         [&](const absl::Status& status) { record.SetDone(status); }});
    stub->async()->Session(stream->context(), stream.get());
    stream->Start();
    ASSERT_TRUE(stream->Send(Control(0, 0)));
    ASSERT_TRUE(record.AwaitDone());
    EXPECT_EQ(record.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(record.status().message(), "a message that cannot be parsed");
    EXPECT_TRUE(record.messages().empty());
    EXPECT_FALSE(stream->Send(Control(0, 1)));
  }
}

TEST_F(MessageStreamTest, AnEmptyMessageIsOne) {
  Record<v1::DraftEvent> record;
  RawService service("");
  const auto server = *RpcServer::Start({"127.0.0.1:0", ""}, {&service});
  auto stub = v1::DraftWorker::NewStub(CreateChannel(server->address()));
  const auto stream = ClientStream::Create(
      {[&](const v1::DraftEvent& event) { record.Add(event); },
       [&](const absl::Status& status) { record.SetDone(status); }});
  stub->async()->Session(stream->context(), stream.get());
  stream->Start();
  ASSERT_TRUE(stream->Send(Control(0, 0)));
  ASSERT_TRUE(record.AwaitMessages(1));
  EXPECT_EQ(record.num_done(), 0);
  // The mark of an unread message does not reach anyone.
  EXPECT_EQ(record.messages()[0].ByteSizeLong(), 0u);
  stream->Cancel();
  ASSERT_TRUE(record.AwaitDone());
}

TEST_F(MessageStreamTest, BytesThatAreNoMessageEndTheServersCall) {
  for (const std::string& bytes : kNoMessages) {
    grpc::GenericStub stub(CreateChannel(server_->address()));
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto call =
        stub.PrepareCall(&context, "/nacre.v1.DraftWorker/Session", &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);  // the client sends no end
    queue.Next(&tag, &ok);
    EXPECT_FALSE(ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  ASSERT_TRUE(service_.record.AwaitDone());
  EXPECT_TRUE(service_.record.messages().empty());
}

TEST_F(MessageStreamTest, NobodyThereIsUnavailable) {
  const std::string address = server_->address();
  server_->Shutdown(absl::ZeroDuration());
  client_ = Connect(address);
  // The call has not failed yet, or has: both are fine for a Send.
  client_->Send(Control(1, 0));
  ASSERT_TRUE(record_.AwaitDone());
  EXPECT_EQ(record_.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(client_->Send(Control(1, 1)));
}

TEST_F(MessageStreamTest, SendsThatRaceWithTheEndAreRefusedNotLostInACrash) {
  for (int round = 0; round < 20; ++round) {
    Record<v1::DraftEvent> record;
    auto stub = v1::DraftWorker::NewStub(CreateChannel(server_->address()));
    auto stream = ClientStream::Create(
        {[](const v1::DraftEvent&) {},
         [&record](const absl::Status& status) { record.SetDone(status); }});
    stub->async()->Session(stream->context(), stream.get());
    stream->Start();
    std::shared_ptr<ServerStream> peer = service_.AwaitStream();
    ASSERT_NE(peer, nullptr) << record.status();
    std::thread sender([&] {
      for (int i = 0; stream->Send(Control(1, i)) && i < 20000; ++i) {
      }
    });
    std::thread peer_sender([&] {
      for (int i = 0; peer->Send(Event(1, i)) && i < 200; ++i) {
      }
      if (round % 2 == 0) peer->Finish(grpc::Status::OK);
      if (round % 2 == 1) stream->Cancel();
    });
    peer_sender.join();
    sender.join();
    ASSERT_TRUE(record.AwaitDone());
    EXPECT_EQ(record.num_done(), 1);
    EXPECT_FALSE(stream->Send(Control(1, 0)));
  }
}

TEST_F(MessageStreamTest, NeitherSideIsLeakedByCallbacksThatHoldIt) {
  std::weak_ptr<ClientStream> client_life;
  std::weak_ptr<ServerStream> server_life;
  auto held = std::make_shared<std::shared_ptr<ClientStream>>();
  absl::Notification done;
  {
    auto stub = v1::DraftWorker::NewStub(CreateChannel(server_->address()));
    auto stream = ClientStream::Create(
        {[held](const v1::DraftEvent&) {},
         [held, &done](const absl::Status&) { done.Notify(); }});
    *held = stream;  // a cycle: stream, callbacks, stream
    client_life = stream;
    held.reset();
    stub->async()->Session(stream->context(), stream.get());
    stream->Start();
    const auto peer = service_.AwaitStream();
    ASSERT_NE(peer, nullptr);
    server_life = peer;
    stream->Cancel();
  }
  done.WaitForNotification();
  ASSERT_TRUE(service_.record.AwaitDone());
  // The server waits for the last reaction to return; the client's own thread
  // may still be leaving its one.
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(server_life.expired());
  for (int i = 0; i < 60000 && !client_life.expired(); ++i) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(client_life.expired());
}

}  // namespace
}  // namespace nacre::rpc
