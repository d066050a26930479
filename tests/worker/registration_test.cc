#include "worker/registration.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>

#include "absl/types/optional.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/server.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

// A coordinator's Registry that does what the test says: hands out what the
// worker sent, sends commands, ends streams.
class FakeRegistry : public v1::Registry::CallbackService {
 public:
  using Stream = rpc::ServerMessageStream<v1::WorkerEvent, v1::WorkerCommand>;

  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext*) override {
    absl::MutexLock lock(&mu_);
    Stream::Callbacks callbacks;
    callbacks.on_message = [this](const v1::WorkerEvent& event) {
      absl::MutexLock lock(&mu_);
      events_.push_back(event);
    };
    callbacks.on_done = [this] {
      absl::MutexLock lock(&mu_);
      ++num_ended_;
    };
    stream_ = Stream::Create(std::move(callbacks));
    ++num_attached_;
    return stream_.get();
  }

  v1::WorkerEvent NextEvent() {
    absl::MutexLock lock(&mu_);
    const auto arrived = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return !events_.empty();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(60))) {
      ADD_FAILURE() << "the worker says nothing";
      return {};
    }
    v1::WorkerEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  void AwaitEnded(int count) {
    absl::MutexLock lock(&mu_);
    const auto ended = [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return num_ended_ >= count;
    };
    EXPECT_TRUE(
        mu_.AwaitWithTimeout(absl::Condition(&ended), absl::Seconds(60)));
  }

  void Send(const v1::WorkerCommand& command) { stream()->Send(command); }
  void Finish(const grpc::Status& status) { stream()->Finish(status); }
  int num_attached() {
    absl::MutexLock lock(&mu_);
    return num_attached_;
  }

 private:
  std::shared_ptr<Stream> stream() {
    absl::MutexLock lock(&mu_);
    return stream_;
  }

  absl::Mutex mu_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::WorkerEvent> events_ ABSL_GUARDED_BY(mu_);
  int num_attached_ ABSL_GUARDED_BY(mu_) = 0;
  int num_ended_ ABSL_GUARDED_BY(mu_) = 0;
};

// What the registration told its process.
struct Heard {
  absl::Mutex mu;
  absl::Status refused ABSL_GUARDED_BY(mu);
  bool drain ABSL_GUARDED_BY(mu) = false;
  int num_lost ABSL_GUARDED_BY(mu) = 0;
};

class RegistrationTest : public ::testing::Test {
 protected:
  void SetUp() override { server_ = *rpc::RpcServer::Start({}, {&registry_}); }

  Registration::Options Options() {
    Registration::Options options;
    options.coordinator = server_->address();
    options.hello.set_protocol_version(1);
    options.hello.set_address("here:1");
    options.hello.set_tokenizer_vocab_size(100);
    options.vocabulary_hash = [](int size) {
      return "hash of " + std::to_string(size);
    };
    options.heartbeat = [] {
      v1::Heartbeat heartbeat;
      heartbeat.set_steps(42);
      return heartbeat;
    };
    options.on_lost = [this] {
      absl::MutexLock lock(&heard_.mu);
      ++heard_.num_lost;
    };
    options.on_drain = [this] {
      absl::MutexLock lock(&heard_.mu);
      heard_.drain = true;
    };
    options.on_refused = [this](const absl::Status& status) {
      absl::MutexLock lock(&heard_.mu);
      heard_.refused = status;
    };
    options.heartbeat_period = absl::Milliseconds(1);
    options.min_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(4);
    return options;
  }

  void Ask(uint32_t common_size) {
    v1::WorkerCommand command;
    command.mutable_vocabulary_request()->set_common_size(common_size);
    registry_.Send(command);
  }
  void Accept() {
    v1::WorkerCommand command;
    command.mutable_accepted();
    registry_.Send(command);
  }

  FakeRegistry registry_;
  std::unique_ptr<rpc::RpcServer> server_;
  Heard heard_;
};

TEST_F(RegistrationTest, SaysHelloProvesItsVocabularyAndBeats) {
  const Registration registration(Options());
  EXPECT_EQ(registry_.NextEvent().hello().address(), "here:1");
  Ask(77);
  EXPECT_EQ(registry_.NextEvent().vocabulary_proof().hash(), "hash of 77");
  Accept();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(registry_.NextEvent().heartbeat().steps(), 42u);
  }
}

TEST_F(RegistrationTest, ProvesNoMoreIdsThanItHas) {
  const Registration registration(Options());
  registry_.NextEvent();
  Ask(4'000'000'000u);
  EXPECT_EQ(registry_.NextEvent().vocabulary_proof().hash(), "hash of 100");
}

TEST_F(RegistrationTest, AHeartbeatCanGoOutAtOnce) {
  Registration::Options options = Options();
  options.heartbeat_period = absl::Hours(1);
  Registration registration(std::move(options));
  registry_.NextEvent();
  Accept();
  EXPECT_TRUE(registry_.NextEvent().has_heartbeat());
  registration.SendHeartbeat();
  EXPECT_TRUE(registry_.NextEvent().has_heartbeat());
}

TEST_F(RegistrationTest, AttachesAgainHoweverOftenTheStreamEnds) {
  Registration::Options options = Options();
  options.heartbeat_period = absl::Hours(1);
  const Registration registration(std::move(options));
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::OK,
        grpc::StatusCode::INTERNAL, grpc::StatusCode::UNAVAILABLE}) {
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Finish(grpc::Status(code, ""));
  }
  EXPECT_TRUE(registry_.NextEvent().has_hello());
  absl::MutexLock lock(&heard_.mu);
  EXPECT_TRUE(heard_.refused.ok());
}

TEST_F(RegistrationTest, ACoordinatorThatAnsweredIsLostBeforeTheNextHello) {
  const Registration registration(Options());
  int num_lost = 0;
  for (const bool answers : {true, false, true, true, false}) {
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    {
      absl::MutexLock lock(&heard_.mu);
      EXPECT_EQ(heard_.num_lost, num_lost);
    }
    if (answers) {
      Ask(77);
      EXPECT_TRUE(registry_.NextEvent().has_vocabulary_proof());
      ++num_lost;
    }
    registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""));
  }
}

TEST_F(RegistrationTest, WaitsForACoordinatorThatIsNotThereYet) {
  Registration::Options options = Options();
  const std::string address = server_->address();
  server_.reset();
  const Registration registration(std::move(options));
  rpc::RpcServer::Options server_options;
  server_options.listen = address;
  FakeRegistry registry;
  const auto server = rpc::RpcServer::Start(server_options, {&registry});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(registry.NextEvent().has_hello());
}

TEST_F(RegistrationTest, ARefusalIsFinal) {
  for (const grpc::StatusCode code : {grpc::StatusCode::FAILED_PRECONDITION,
                                      grpc::StatusCode::INVALID_ARGUMENT}) {
    const int before = registry_.num_attached();
    {
      const Registration registration(Options());
      registry_.NextEvent();
      registry_.Finish(grpc::Status(code, "VOCABULARY_MISMATCH"));
      absl::MutexLock lock(&heard_.mu);
      const auto refused = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return !heard_.refused.ok();
      };
      heard_.mu.Await(absl::Condition(&refused));
      EXPECT_EQ(static_cast<int>(heard_.refused.code()),
                static_cast<int>(code));
      EXPECT_THAT(std::string(heard_.refused.message()),
                  HasSubstr("VOCABULARY_MISMATCH"));
      heard_.refused = absl::OkStatus();
    }
    EXPECT_EQ(registry_.num_attached(), before + 1);
  }
}

TEST_F(RegistrationTest, PassesOnDrain) {
  const Registration registration(Options());
  registry_.NextEvent();
  v1::WorkerCommand command;
  command.mutable_drain();
  registry_.Send(command);
  absl::MutexLock lock(&heard_.mu);
  heard_.mu.Await(absl::Condition(&heard_.drain));
}

TEST_F(RegistrationTest, LeavesWhenDestroyed) {
  {
    const Registration registration(Options());
    registry_.NextEvent();
    Accept();
  }
  registry_.AwaitEnded(1);
  EXPECT_EQ(registry_.num_attached(), 1);
}

}  // namespace
}  // namespace nacre::worker
