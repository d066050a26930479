#include "worker/process/registration.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/types/optional.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/server.h"
#include "proto/worker.grpc.pb.h"
#include "tests/worker/fake_registry.h"
#include "wire/hello.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

// A Registry that accepts and then reads and ends nothing.
class DeafRegistry : public v1::Registry::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext*) override {
    return new Reactor(&attached_);
  }
  void AwaitAttached() { attached_.WaitForNotification(); }

 private:
  class Reactor
      : public grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand> {
   public:
    explicit Reactor(absl::Notification* attached) : attached_(attached) {
      accepted_.mutable_accepted();
      this->StartWrite(&accepted_);
      this->StartRead(&hello_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      if (hello_.has_heartbeat()) {
        attached_->Notify();
      } else {
        this->StartRead(&hello_);
      }
    }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    absl::Notification* const attached_;
    v1::WorkerCommand accepted_;
    v1::WorkerEvent hello_;
  };

  absl::Notification attached_;
};

// What was logged, one text a line.
class LogLines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogLines() : before_(spdlog::default_logger()) {}
  ~LogLines() override = default;

  // Lets another thread's lines come here until Stop.
  static std::shared_ptr<LogLines> Start() {
    const auto lines = std::make_shared<LogLines>();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
    return lines;
  }
  void Stop() { spdlog::set_default_logger(before_); }

  // The first one that has `part`.
  std::string Await(const std::string& part) {
    absl::MutexLock lock(&mu_);
    const auto find = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return std::find_if(lines_.begin(), lines_.end(),
                          [&](const std::string& line) {
                            return line.find(part) != std::string::npos;
                          });
    };
    const auto is_there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return find() != lines_.end();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&is_there), absl::Seconds(60))) {
      ADD_FAILURE() << "no line says " << part;
      return "";
    }
    return *find();
  }
  int Count(const std::string& part) {
    absl::MutexLock lock(&mu_);
    return static_cast<int>(std::count_if(
        lines_.begin(), lines_.end(), [&](const std::string& line) {
          return line.find(part) != std::string::npos;
        }));
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    absl::MutexLock lock(&mu_);
    lines_.emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}

  const std::shared_ptr<spdlog::logger> before_;
  absl::Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

// KeptSessions of earlier streams.
constexpr uint64_t kKeptBefore = 7;

// What the registration told its process.
struct Heard {
  absl::Mutex mu;
  absl::Status refused ABSL_GUARDED_BY(mu);
  bool drain ABSL_GUARDED_BY(mu) = false;
  int num_lost ABSL_GUARDED_BY(mu) = 0;
  uint64_t attachment ABSL_GUARDED_BY(mu) = 0;
  uint64_t coordinator ABSL_GUARDED_BY(mu) = 0;
  uint64_t kept_lists ABSL_GUARDED_BY(mu) = kKeptBefore;
  bool asks_again ABSL_GUARDED_BY(mu) = false;             // the test says so
  std::vector<absl::Duration> delays ABSL_GUARDED_BY(mu);  // before attempts
  bool draining ABSL_GUARDED_BY(mu) = false;               // the test says so
};

class RegistrationTest : public ::testing::Test {
 protected:
  void SetUp() override { server_ = *rpc::RpcServer::Start({}, {&registry_}); }

  Registration::Options Options() {
    Registration::Options options;
    options.coordinator = server_->address();
    options.hello.set_protocol_version(wire::kProtocolVersion);
    options.hello.set_address("here:1");
    options.hello.set_tokenizer_vocab_size(100);
    options.vocabulary_hash = [](int size) {
      return "hash of " + std::to_string(size);
    };
    options.heartbeat = [this](uint64_t coordinator) {
      absl::MutexLock lock(&heard_.mu);
      v1::Heartbeat heartbeat;
      EXPECT_EQ(coordinator, heard_.coordinator);
      heartbeat.set_steps(42);
      heartbeat.set_draining(heard_.draining);
      return heartbeat;
    };
    options.kept_lists = [this](uint64_t) {
      absl::MutexLock lock(&heard_.mu);
      return heard_.kept_lists;
    };
    options.on_attachment = [this](uint64_t coordinator, uint64_t attachment) {
      absl::MutexLock lock(&heard_.mu);
      heard_.coordinator = coordinator;
      heard_.attachment = attachment;
    };
    options.on_retry = [this](absl::Duration delay) {
      absl::MutexLock lock(&heard_.mu);
      heard_.delays.push_back(delay);
    };
    options.on_lost = [this](uint64_t coordinator) {
      absl::MutexLock lock(&heard_.mu);
      EXPECT_EQ(coordinator, heard_.coordinator);
      ++heard_.num_lost;
    };
    options.on_drain = [this] {
      absl::MutexLock lock(&heard_.mu);
      heard_.drain = true;
    };
    options.on_refused = [this](const absl::Status& status) {
      absl::MutexLock lock(&heard_.mu);
      heard_.refused = status;
      return heard_.asks_again;
    };
    options.heartbeat_period = absl::Milliseconds(1);
    options.min_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(4);
    return options;
  }

  // Once so many KeptSessions have come.
  bool IsDrainKnown(const Registration& registration, uint64_t kept_lists) {
    const auto set = [this](uint64_t count) {
      absl::MutexLock lock(&heard_.mu);
      heard_.kept_lists = count;
    };
    set(kept_lists);
    const bool is_known = registration.IsDrainKnown();
    set(kKeptBefore);
    return is_known;
  }

  FakeRegistry registry_;
  std::unique_ptr<rpc::RpcServer> server_;
  Heard heard_;
};

TEST_F(RegistrationTest, SaysHelloProvesItsVocabularyAndBeats) {
  const Registration registration(Options());
  EXPECT_EQ(registry_.NextEvent().hello().address(), "here:1");
  registry_.Ask(77);
  EXPECT_EQ(registry_.NextEvent().vocabulary_proof().hash(), "hash of 77");
  registry_.Accept();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(registry_.NextEvent().heartbeat().steps(), 42u);
  }
}

TEST_F(RegistrationTest, ProvesNoMoreIdsThanItHas) {
  const Registration registration(Options());
  registry_.NextEvent();
  registry_.Ask(4'000'000'000u);
  EXPECT_EQ(registry_.NextEvent().vocabulary_proof().hash(), "hash of 100");
}

TEST_F(RegistrationTest, KnowsItsAttachmentBeforeTheCoordinatorDials) {
  const Registration registration(Options());
  for (const uint64_t attachment : {0xF000000000000001u, uint64_t{2}}) {
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Ask(77, attachment);
    EXPECT_TRUE(registry_.NextEvent().has_vocabulary_proof());
    {
      absl::MutexLock lock(&heard_.mu);
      EXPECT_EQ(heard_.attachment, attachment);
    }
    registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""));
  }
}

TEST_F(RegistrationTest, AHeartbeatCanGoOutAtOnce) {
  Registration::Options options = Options();
  options.heartbeat_period = absl::Hours(1);
  Registration registration(std::move(options));
  registry_.NextEvent();
  registry_.Accept();
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

TEST_F(RegistrationTest, WaitsLongerEachTimeUntilItIsAccepted) {
  Registration::Options options = Options();
  options.heartbeat_period = absl::Hours(1);
  const absl::Duration least = options.min_backoff;
  const absl::Duration most = options.max_backoff;
  {
    const Registration registration(std::move(options));
    const grpc::Status unavailable(grpc::StatusCode::UNAVAILABLE, "");
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(registry_.NextEvent().has_hello());
      registry_.Finish(unavailable);
    }
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Accept();
    EXPECT_TRUE(registry_.NextEvent().has_heartbeat());
    registry_.Finish(unavailable);
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Finish(unavailable);
    EXPECT_TRUE(registry_.NextEvent().has_hello());
  }
  const std::vector<absl::Duration> expected = {least, 2 * least, most,
                                                most,  least,     2 * least};
  absl::MutexLock lock(&heard_.mu);
  ASSERT_EQ(heard_.delays.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_GE(heard_.delays[i], 0.5 * expected[i]) << i;
    EXPECT_LE(heard_.delays[i], expected[i]) << i;
  }
}

TEST_F(RegistrationTest, ACoordinatorThatDoesNotAcceptIsLoggedOnce) {
  constexpr char kWaiting[] = "has not accepted this worker";
  const std::shared_ptr<LogLines> log = LogLines::Start();
  {
    Registration::Options options = Options();
    options.accept_patience = absl::Milliseconds(1);
    options.heartbeat_period = absl::Hours(1);
    const Registration registration(std::move(options));
    registry_.NextEvent();
    registry_.Ask(77);
    const std::string line = log->Await(kWaiting);
    EXPECT_THAT(line, HasSubstr(server_->address()));
    EXPECT_THAT(line, HasSubstr("here:1"));
    EXPECT_TRUE(registry_.NextEvent().has_vocabulary_proof());
    // Not again before it has been accepted: the next stream says nothing.
    registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "first"));
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "second"));
    log->Await("second");
    EXPECT_EQ(log->Count(kWaiting), 1);
    EXPECT_TRUE(registry_.NextEvent().has_hello());
    registry_.Accept();
    EXPECT_TRUE(registry_.NextEvent().has_heartbeat());
  }
  log->Stop();
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
      registry_.Ask(77);
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

TEST_F(RegistrationTest, ARefusedWorkerMayAskAgain) {
  {
    absl::MutexLock lock(&heard_.mu);
    heard_.asks_again = true;
  }
  const Registration registration(Options());
  EXPECT_TRUE(registry_.NextEvent().has_hello());
  registry_.Finish(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "PROTOCOL_VERSION"));
  EXPECT_TRUE(registry_.NextEvent().has_hello());
}

TEST_F(RegistrationTest, KnowsItsCoordinatorUntilThatIsLost) {
  constexpr uint64_t kCoordinator = 0xC000000000000001u;
  const Registration registration(Options());
  registry_.NextEvent();
  EXPECT_FALSE(registration.is_known());
  registry_.Ask(77, 1, kCoordinator);
  registry_.NextEvent();
  EXPECT_TRUE(registration.is_known());
  EXPECT_EQ(registration.coordinator(), 0u);
  registry_.Accept();
  registry_.NextEvent();
  EXPECT_TRUE(registration.registered());
  EXPECT_EQ(registration.coordinator(), kCoordinator);
  registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""));
  while (!registry_.NextEvent().has_hello()) {
  }
  EXPECT_FALSE(registration.is_known());
  EXPECT_FALSE(registration.registered());
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

TEST_F(RegistrationTest, ADrainIsKnownOnceItsHeartbeatIsAnswered) {
  Registration::Options options = Options();
  options.heartbeat_period = absl::Hours(1);
  Registration registration(std::move(options));
  constexpr uint64_t kAll = 1'000'000;
  registry_.NextEvent();
  EXPECT_TRUE(IsDrainKnown(registration, 0));  // no coordinator dialled yet
  registry_.Ask(77);
  registry_.NextEvent();
  EXPECT_FALSE(IsDrainKnown(registration, kAll));
  registry_.Accept();
  registry_.NextEvent();
  registration.SendHeartbeat();
  EXPECT_FALSE(registry_.NextEvent().heartbeat().draining());
  EXPECT_FALSE(IsDrainKnown(registration, kAll));
  {
    absl::MutexLock lock(&heard_.mu);
    heard_.draining = true;
  }
  // Two that say so: the first is the third of the stream.
  for (int i = 0; i < 2; ++i) {
    registration.SendHeartbeat();
    EXPECT_TRUE(registry_.NextEvent().heartbeat().draining());
    EXPECT_FALSE(IsDrainKnown(registration, kKeptBefore + 2));
    EXPECT_TRUE(IsDrainKnown(registration, kKeptBefore + 3));
  }
  // The next coordinator has not been told.
  registry_.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""));
  EXPECT_TRUE(registry_.NextEvent().has_hello());
  EXPECT_TRUE(IsDrainKnown(registration, 0));
  registry_.Ask(77);
  registry_.NextEvent();
  EXPECT_FALSE(IsDrainKnown(registration, kAll));
  registry_.Accept();
  EXPECT_TRUE(registry_.NextEvent().heartbeat().draining());
  EXPECT_FALSE(IsDrainKnown(registration, kKeptBefore));
  EXPECT_TRUE(IsDrainKnown(registration, kKeptBefore + 1));
}

// Else the coordinator would count it as lost.
TEST_F(RegistrationTest, SaysWhyItLeaves) {
  {
    Registration::Options options = Options();
    options.heartbeat_period = absl::Hours(1);
    options.leave_patience = absl::InfiniteDuration();
    const Registration registration(std::move(options));
    registry_.NextEvent();
    registry_.Accept();
    EXPECT_FALSE(registry_.NextEvent().heartbeat().draining());
    absl::MutexLock lock(&heard_.mu);
    heard_.draining = true;
  }
  EXPECT_TRUE(registry_.NextEvent().heartbeat().draining());
  registry_.AwaitEnded(1);
}

TEST_F(RegistrationTest, LeavesACoordinatorThatHangs) {
  DeafRegistry deaf;
  const auto server = rpc::RpcServer::Start({}, {&deaf});
  ASSERT_TRUE(server.ok()) << server.status();
  {
    Registration::Options options = Options();
    options.coordinator = (*server)->address();
    options.leave_patience = absl::Milliseconds(1);
    const Registration registration(std::move(options));
    deaf.AwaitAttached();
  }
  SUCCEED() << "it has not waited for an answer";
}

TEST_F(RegistrationTest, LeavesWhenDestroyed) {
  {
    const Registration registration(Options());
    registry_.NextEvent();
    registry_.Accept();
  }
  registry_.AwaitEnded(1);
  EXPECT_EQ(registry_.num_attached(), 1);
}

}  // namespace
}  // namespace nacre::worker
