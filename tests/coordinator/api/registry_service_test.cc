#include "coordinator/api/registry_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/api/attachment.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/recording_sink.h"
#include "tests/testing/raw_call.h"
#include "wire/hello.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

class RegistryServiceTest : public CoordinatorFixture {
 protected:
  static RequestSpec Request(const std::string& request_id) {
    RequestSpec request;
    request.request_id = request_id;
    request.prompt_ids = {7, 8};
    request.max_tokens = 10;
    return request;
  }
  // The first may come late for the registry: only the second judges.
  void TickTwice() {
    registry_.Tick();
    registry_.Tick();
  }
  // Returns when the coordinator has heard a heartbeat and, after it, a verdict
  // of a session that has none yet.
  void SayOnBothStreams(FakeWorker& worker, uint64_t session_id,
                        const RecordingSink& sink) {
    v1::Heartbeat heartbeat;
    heartbeat.set_steps(3);
    worker.Heartbeat(heartbeat);
    ASSERT_TRUE(Eventually(
        [&] { return registry_.ListWorkers()[0].heartbeat().steps() == 3; }));
    v1::TargetEvent event;
    v1::Verdict* verdict = event.add_verdicts();
    verdict->set_session_id(session_id);
    verdict->set_base_length(2);
    verdict->add_token_ids('x');
    worker.target.Send(std::move(event));
    ASSERT_TRUE(Eventually([&] { return !sink.chunks().empty(); }));
  }
};

TEST_F(RegistryServiceTest, AWorkerIsAcceptedOnceItsAddressAnswers) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const std::vector<v1::WorkerCommand> commands = worker.commands.values();
  EXPECT_EQ(commands[0].vocabulary_request().common_size(),
            static_cast<uint32_t>(ByteTokenizer::kVocabSize));
  EXPECT_TRUE(dispatcher_.model().has_value());
  const std::vector<v1::WorkerInfo> workers = registry_.ListWorkers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].hello().address(), worker.address());
  EXPECT_TRUE(workers[0].ready());
  EXPECT_EQ(workers[0].sessions(), 0u);
}

TEST_F(RegistryServiceTest, TheModelHasItsServedName) {
  RegistryService::Options options;
  options.served_model_name = "served";
  RegistryService registry(&dispatcher_, &tokenizer_, std::move(options));
  const auto server = rpc::RpcServer::Start({"127.0.0.1:0", ""}, {&registry});
  ASSERT_TRUE(server.ok()) << server.status();
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach((*server)->address());
  ASSERT_TRUE(worker.AwaitAccepted());
  EXPECT_EQ(dispatcher_.model()->model_name, "served");
  // Operators still see what the worker said.
  EXPECT_EQ(registry.ListWorkers()[0].hello().model_name(), "pearl");
}

TEST_F(RegistryServiceTest, OnlyTheCommonIdsAreCompared) {
  FakeWorker worker(v1::WORKER_ROLE_DRAFT);
  worker.hello.set_tokenizer_vocab_size(100);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  EXPECT_EQ(worker.commands.values()[0].vocabulary_request().common_size(),
            100u);
}

TEST_F(RegistryServiceTest, AnotherVocabularyIsAFailedPrecondition) {
  FakeWorker worker(v1::WORKER_ROLE_DRAFT);
  worker.proof = "another hash";
  worker.Attach(address());
  const absl::Status status = worker.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("VOCABULARY_MISMATCH"));
  EXPECT_TRUE(dispatcher_.workers().empty());
  // The coordinator did not dial it.
  EXPECT_TRUE(worker.draft.controls.values().empty());
}

TEST_F(RegistryServiceTest, AnotherProtocolVersionIsAFailedPrecondition) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.hello.set_protocol_version(wire::kProtocolVersion + 1);
  worker.Attach(address());
  const absl::Status status = worker.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("PROTOCOL_VERSION"));
}

TEST_F(RegistryServiceTest, AMalformedHelloIsInvalid) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.hello.clear_fingerprint();
  worker.Attach(address());
  EXPECT_EQ(worker.AwaitDetached().code(), absl::StatusCode::kInvalidArgument);
  worker.AttachWith(address(), v1::WorkerEvent());
  EXPECT_EQ(worker.AwaitDetached(2).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RegistryServiceTest, BytesThatAreNoEventAreInvalid) {
  const grpc::Status status = nacre::testing::CallWithBytes(
      Channel(), "/nacre.v1.Registry/Attach", nacre::testing::kNoMessage);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(registry_.ListWorkers().empty());
}

TEST_F(RegistryServiceTest, ATargetOfAnotherCheckpointIsAFailedPrecondition) {
  FakeWorker first(v1::WORKER_ROLE_TARGET);
  first.Attach(address());
  ASSERT_TRUE(first.AwaitAccepted());
  FakeWorker second(v1::WORKER_ROLE_TARGET);
  second.hello.set_fingerprint("bigger");
  second.Attach(address());
  const absl::Status status = second.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MODEL_MISMATCH"));
}

TEST_F(RegistryServiceTest, ATargetOfOtherEndTokensIsAFailedPrecondition) {
  FakeWorker first(v1::WORKER_ROLE_TARGET);
  first.hello.add_eos_token_ids(2);
  first.Attach(address());
  ASSERT_TRUE(first.AwaitAccepted());
  FakeWorker second(v1::WORKER_ROLE_TARGET);
  second.hello.add_eos_token_ids(2);
  second.hello.add_eos_token_ids(7);
  second.Attach(address());
  const absl::Status status = second.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MODEL_MISMATCH"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("end tokens"));
}

TEST_F(RegistryServiceTest, AnAddressThatCannotBeReachedIsUnavailable) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  {
    const FakeWorker gone(v1::WORKER_ROLE_TARGET);
    worker.hello.set_address(gone.address());
  }
  worker.Attach(address());
  const absl::Status status = worker.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(worker.hello.address()));
}

TEST_F(RegistryServiceTest, AWorkerThatDetachesLeavesAndItsStreamIsEnded) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(dispatcher_.Start(Request("r"), sink).ok());
  worker.Detach();
  ASSERT_TRUE(worker.target.ended.Await([](bool) { return true; }));
  ASSERT_TRUE(Eventually([&] { return registry_.ListWorkers().empty(); }));
  EXPECT_TRUE(dispatcher_.workers().empty());
  EXPECT_EQ(sink->error().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RegistryServiceTest, AWorkerThatDetachesWhileItIsDialledLeaves) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.answers_pings = false;
  worker.Attach(address());
  ASSERT_TRUE(worker.target.controls.Await(
      [](const v1::TargetControl& control) { return control.has_ping(); }));
  EXPECT_TRUE(dispatcher_.workers().empty());  // not before it has answered
  worker.Detach();
  ASSERT_TRUE(worker.target.ended.Await([](bool) { return true; }));
  EXPECT_TRUE(dispatcher_.workers().empty());
}

TEST_F(RegistryServiceTest, WhenTheSessionStreamEndsTheWorkerMayAttachAgain) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  worker.target.Finish(grpc::Status(grpc::StatusCode::INTERNAL, "oops"));
  const absl::Status status = worker.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("oops"));
  EXPECT_TRUE(dispatcher_.workers().empty());
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted(2));
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
}

TEST_F(RegistryServiceTest, ANewAttachmentEndsTheOldOneOfTheSameAddress) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  worker.hello.set_incarnation("second life");
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted(2));
  EXPECT_EQ(worker.AwaitDetached().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  const std::vector<v1::WorkerInfo> workers = registry_.ListWorkers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].hello().incarnation(), "second life");
}

TEST_F(RegistryServiceTest, ASilentWorkerCountsAsLostAndMayAttachAgain) {
  constexpr int64_t kSecond = 1'000'000'000;
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const auto sink = std::make_shared<RecordingSink>();
  RequestSpec request = Request("r");
  request.stream = true;
  const auto session_id = dispatcher_.Start(request, sink);
  ASSERT_TRUE(session_id.ok());
  silence_ns_ = 4 * kSecond;
  TickTwice();
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  SayOnBothStreams(worker, *session_id, *sink);
  silence_ns_ = 8 * kSecond;  // 4 after what it said
  TickTwice();
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  silence_ns_ = 14 * kSecond;
  // It may be ours that was stopped: the first tick after does not judge.
  registry_.Tick();
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  registry_.Tick();
  EXPECT_TRUE(dispatcher_.workers().empty());
  EXPECT_EQ(sink->error().code(), absl::StatusCode::kUnavailable);
  // Both streams end, so that it closes its sessions and tries again; the same
  // process is as welcome as a new one.
  EXPECT_TRUE(worker.target.ended.Await([](bool) { return true; }));
  const absl::Status status = worker.AwaitDetached();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(worker.address()));
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted(2));
  TickTwice();
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
}

TEST_F(RegistryServiceTest, HeartbeatsAloneDoNotProveThatItsAddressAnswers) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const auto sink = std::make_shared<RecordingSink>();
  RequestSpec request = Request("r");
  request.stream = true;
  const auto session_id = dispatcher_.Start(request, sink);
  ASSERT_TRUE(session_id.ok());
  worker.target.answers_pings = false;
  SayOnBothStreams(worker, *session_id, *sink);
  silence_ns_ = 6'000'000'000;
  v1::Heartbeat heartbeat;
  heartbeat.set_steps(4);
  worker.Heartbeat(heartbeat);
  ASSERT_TRUE(Eventually(
      [&] { return registry_.ListWorkers()[0].heartbeat().steps() == 4; }));
  TickTwice();
  EXPECT_TRUE(dispatcher_.workers().empty());
  EXPECT_EQ(worker.AwaitDetached().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RegistryServiceTest, TheNextTickIsWellBeforeTheTimeout) {
  const int64_t now_ns = MonotonicNs();
  const int64_t next_ns = registry_.Tick();
  EXPECT_GT(next_ns, now_ns);
  EXPECT_LT(next_ns, MonotonicNs() + 2'000'000'000);
}

TEST_F(RegistryServiceTest, HeartbeatsAreShownAndADrainingWorkerGetsNoMore) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  v1::Heartbeat heartbeat;
  heartbeat.set_steps(12);
  heartbeat.set_draining(true);
  worker.Heartbeat(heartbeat);
  ASSERT_TRUE(Eventually([&] { return !dispatcher_.model().has_value(); }));
  const std::vector<v1::WorkerInfo> workers = registry_.ListWorkers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].heartbeat().steps(), 12u);
  EXPECT_FALSE(workers[0].ready());
  // Each heartbeat asks for the worker's clock.
  EXPECT_TRUE(worker.target.controls.Await(
      [](const v1::TargetControl& control) { return control.has_ping(); }, 2));
}

// Not as long as the machine runs.
TEST_F(RegistryServiceTest, BeforeTheFirstHeartbeatItHasNoAge) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const std::vector<v1::WorkerInfo> workers = registry_.ListWorkers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].heartbeat_age_ns(), 0);
}

TEST_F(RegistryServiceTest, AHeartbeatIsAnsweredWithTheSessionsToKeep) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  worker.Heartbeat();
  ASSERT_TRUE(
      worker.target.controls.Await([](const v1::TargetControl& control) {
        return control.has_kept() && control.kept().session_ids().empty();
      }));
  const auto first =
      dispatcher_.Start(Request("a"), std::make_shared<RecordingSink>());
  const auto second =
      dispatcher_.Start(Request("b"), std::make_shared<RecordingSink>());
  ASSERT_TRUE(first.ok() && second.ok());
  dispatcher_.Cancel(*first);
  worker.Heartbeat();
  EXPECT_TRUE(
      worker.target.controls.Await([&](const v1::TargetControl& control) {
        return control.kept().session_ids_size() == 1 &&
               control.kept().session_ids(0) == *second;
      }));
  // Nothing was opened or closed by the message that names what is kept.
  for (const v1::TargetControl& control : worker.target.controls.values()) {
    if (control.has_kept()) {
      EXPECT_EQ(control.close_size() + control.open_size(), 0);
    }
  }
}

TEST_F(RegistryServiceTest, AHungWorkerGetsNoMoreUntilItMovesAgain) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  v1::Heartbeat heartbeat;
  heartbeat.set_hung(true);
  worker.Heartbeat(heartbeat);
  ASSERT_TRUE(Eventually([&] { return !dispatcher_.model().has_value(); }));
  heartbeat.set_hung(false);
  worker.Heartbeat(heartbeat);
  EXPECT_TRUE(Eventually([&] { return dispatcher_.model().has_value(); }));
}

TEST_F(RegistryServiceTest, AHungWorkerThatDrainsMeanwhileGetsNoMore) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  v1::Heartbeat heartbeat;
  heartbeat.set_hung(true);
  worker.Heartbeat(heartbeat);
  heartbeat.set_hung(false);
  heartbeat.set_draining(true);
  worker.Heartbeat(heartbeat);
  // Each heartbeat is answered when all of it is done.
  ASSERT_TRUE(worker.target.controls.Await(
      [](const v1::TargetControl& control) { return control.has_kept(); }, 2));
  EXPECT_FALSE(dispatcher_.model().has_value());
}

// Not even what waited for it to move again.
TEST_F(RegistryServiceTest, AHungWorkerThatAnOperatorDrainsGetsNoMore) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  v1::Heartbeat heartbeat;
  heartbeat.set_hung(true);
  worker.Heartbeat(heartbeat);
  ASSERT_TRUE(Eventually([&] { return !dispatcher_.model().has_value(); }));
  const auto sink = std::make_shared<RecordingSink>();
  const auto waiting = dispatcher_.Start(Request("r"), sink);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_TRUE(registry_.Drain(worker.address()).ok());
  heartbeat.set_hung(false);
  worker.Heartbeat(heartbeat);
  // Each heartbeat is answered when all of it is done.
  ASSERT_TRUE(worker.target.controls.Await(
      [](const v1::TargetControl& control) { return control.has_kept(); }, 2));
  for (const v1::TargetControl& control : worker.target.controls.values()) {
    EXPECT_EQ(control.open_size(), 0);
  }
  dispatcher_.Cancel(*waiting, "over");
}

TEST_F(RegistryServiceTest, DrainTellsTheWorkerAtThatAddress) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  EXPECT_EQ(registry_.Drain(worker.address()).code(),
            absl::StatusCode::kNotFound);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  EXPECT_EQ(registry_.Drain("").code(), absl::StatusCode::kNotFound);
  const absl::Status other = registry_.Drain("host:1");
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.message()), HasSubstr("host:1"));
  EXPECT_TRUE(registry_.Drain(worker.address()).ok());
  EXPECT_TRUE(worker.commands.Await(
      [](const v1::WorkerCommand& command) { return command.has_drain(); }));
  EXPECT_FALSE(dispatcher_.model().has_value());
}

TEST_F(RegistryServiceTest, ShutdownEndsAllAttachmentsAndRefusesNewOnes) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  FakeWorker dialled(v1::WORKER_ROLE_DRAFT);
  dialled.draft.answers_pings = false;
  worker.Attach(address());
  dialled.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  ASSERT_TRUE(dialled.draft.controls.Await(
      [](const v1::DraftControl& control) { return control.has_ping(); }));
  registry_.Shutdown();
  EXPECT_EQ(worker.AwaitDetached().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(dialled.AwaitDetached().code(), absl::StatusCode::kUnavailable);
  worker.Attach(address());
  EXPECT_EQ(worker.AwaitDetached(2).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return dispatcher_.workers().empty(); }));
}

TEST_F(RegistryServiceTest, ARefusedWorkersNextMessagesChangeNothing) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  v1::WorkerEvent event;
  event.mutable_hello();  // malformed
  worker.AttachWith(address(), event);
  *event.mutable_hello() = worker.hello;
  worker.Say(event);
  EXPECT_FALSE(worker.AwaitDetached().ok());
  EXPECT_TRUE(worker.commands.values().empty());
  EXPECT_TRUE(dispatcher_.workers().empty());
}

// Workers that come and go while the coordinator goes down: sanitizers watch.
TEST_F(RegistryServiceTest, AttachmentsMayEndAtAnyMoment) {
  for (int round = 0; round < 5; ++round) {
    FakeWorker target(v1::WORKER_ROLE_TARGET);
    FakeWorker draft(v1::WORKER_ROLE_DRAFT);
    target.Attach(address());
    draft.Attach(address());
    if (round % 2 == 0) {
      ASSERT_TRUE(target.AwaitAccepted());
    }
    if (round == 4) {
      registry_.Shutdown();
      server_->Shutdown(absl::ZeroDuration());
    }
  }
}

}  // namespace
}  // namespace nacre::coordinator
