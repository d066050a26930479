#include "target_worker/target_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/target_worker/target_fixture.h"
#include "tests/testing/raw_call.h"

namespace nacre::target_worker {
namespace {

using nacre::testing::TableModel;
using ::testing::HasSubstr;

// A served engine on its own thread.
class Worker {
 public:
  explicit Worker(nacre::testing::TableModelOptions model_options = {})
      : model(std::move(model_options)) {
    TargetEngine::Options options;
    options.model = &model;
    options.send = [this](worker::StreamId stream, const TargetEvents& events) {
      service.Send(stream, events);
    };
    options.deliver = [this](worker::Delivery delivery) {
      service.Deliver(delivery);
    };
    engine = std::make_unique<TargetEngine>(std::move(options));
    service.set_engine(engine.get());
    server = *rpc::RpcServer::Start({}, {service.grpc_service()});
    channel = rpc::CreateChannel(server->address());
    thread = std::thread([this] { EXPECT_TRUE(engine->Run().ok()); });
  }
  ~Worker() {
    service.FinishStreams(grpc::Status::OK);
    server->Shutdown(absl::Seconds(5));
    engine->Stop();
    thread.join();
  }

  TableModel model;
  TargetService service;
  std::unique_ptr<TargetEngine> engine;
  std::unique_ptr<rpc::RpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::thread thread;
};

// The coordinator's end of a Session stream, one call at a time.
class Client {
 public:
  explicit Client(Worker& worker)
      : stub_(v1::TargetWorker::NewStub(worker.channel)),
        stream_(stub_->Session(&context_)) {}
  ~Client() {
    context_.TryCancel();
    stream_->Finish();
  }

  void Write(const v1::TargetControl& control) {
    ASSERT_TRUE(stream_->Write(control));
  }
  // Reads until an event satisfies `done`.
  template <typename Done>
  v1::TargetEvent ReadUntil(Done done) {
    v1::TargetEvent event;
    while (stream_->Read(&event)) {
      if (done(event)) return event;
    }
    ADD_FAILURE() << "the stream has ended";
    return {};
  }
  v1::SessionError ReadError() {
    return ReadUntil([](const auto& event) { return event.errors_size() > 0; })
        .errors(0);
  }
  std::vector<int32_t> ReadToEnd(std::vector<int32_t> tokens) {
    ReadUntil([&tokens](const v1::TargetEvent& event) {
      bool finished = false;
      for (const v1::Verdict& verdict : event.verdicts()) {
        EXPECT_EQ(verdict.base_length(), tokens.size());
        tokens.insert(tokens.end(), verdict.token_ids().begin(),
                      verdict.token_ids().end());
        finished = verdict.finish() != v1::FINISH_REASON_UNSPECIFIED;
      }
      return finished;
    });
    return tokens;
  }

 private:
  std::unique_ptr<v1::TargetWorker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TargetControl, v1::TargetEvent>>
      stream_;
};

v1::OpenTarget* AddOpen(const OpenTarget& open, v1::TargetControl* control) {
  v1::OpenTarget* proto = control->add_open();
  proto->set_session_id(open.session_id);
  for (const int32_t id : open.token_ids) {
    proto->add_token_ids(static_cast<uint32_t>(id));
  }
  proto->set_prompt_length(static_cast<uint32_t>(open.prompt_length));
  proto->set_max_tokens(static_cast<uint32_t>(open.max_tokens));
  proto->mutable_sampling()->set_temperature(open.sampling.temperature);
  proto->mutable_sampling()->set_seed(open.sampling.seed);
  return proto;
}

OpenTarget SampledOpen(uint64_t id) {
  OpenTarget open = MakeOpen(id, {3, 1, 4, 1, 5}, 40);
  open.sampling.temperature = 0.9f;
  open.sampling.seed = id;
  return open;
}

TEST(TargetServiceTest, ServesSeveralSessionsOnOneStream) {
  Worker worker;
  const int64_t free = worker.model.kv_free_tokens();
  Client client(worker);
  for (uint64_t id = 1; id <= 3; ++id) {
    const OpenTarget open = SampledOpen(id);
    v1::TargetControl control;
    AddOpen(open, &control);
    client.Write(control);
    EXPECT_EQ(client.ReadToEnd(open.token_ids),
              Autoregressive(worker.model, open));
    v1::TargetControl close;
    close.add_close()->set_session_id(id);
    client.Write(close);
    const v1::TargetEvent event = client.ReadUntil(
        [](const auto& event) { return event.closed_size() > 0; });
    EXPECT_EQ(event.closed(0).session_id(), id);
  }
  EXPECT_EQ(worker.engine->stats().kv_free_tokens, free);
}

TEST(TargetServiceTest, AnswersPings) {
  Worker worker;
  Client client(worker);
  v1::TargetControl control;
  control.mutable_ping()->set_coordinator_ns(12345);
  client.Write(control);
  const v1::TargetEvent event =
      client.ReadUntil([](const auto& event) { return event.has_pong(); });
  EXPECT_EQ(event.pong().coordinator_ns(), 12345u);
  EXPECT_GT(event.pong().worker_ns(), 0u);
  EXPECT_EQ(event.pong().attachment(), 0u);
  // What it has been told when it attached.
  worker.service.SetAttachment(0, 0xF000000000000001u);
  client.Write(control);
  EXPECT_EQ(client.ReadUntil([](const auto& event) { return event.has_pong(); })
                .pong()
                .attachment(),
            0xF000000000000001u);
}

TEST(TargetServiceTest, ClosesWhatTheCoordinatorDoesNotKeep) {
  Worker worker;
  const int64_t free = worker.model.kv_free_tokens();
  Client client(worker);
  v1::TargetControl control;
  AddOpen(SampledOpen(1), &control);
  AddOpen(SampledOpen(2), &control);
  client.Write(control);
  v1::TargetControl kept;
  kept.mutable_kept()->add_session_ids(2);
  client.Write(kept);
  const auto has_closed = [](const v1::TargetEvent& event) {
    return event.closed_size() > 0;
  };
  EXPECT_EQ(client.ReadUntil(has_closed).closed(0).session_id(), 1u);
  kept.mutable_kept()->clear_session_ids();  // an empty set, not none
  client.Write(kept);
  EXPECT_EQ(client.ReadUntil(has_closed).closed(0).session_id(), 2u);
  EXPECT_EQ(worker.engine->stats().kv_free_tokens, free);
  EXPECT_EQ(worker.engine->stats().reaped_sessions, 2u);
}

TEST(TargetServiceTest, AStreamThatEndsClosesItsSessions) {
  Worker worker;
  const int64_t free = worker.model.kv_free_tokens();
  {
    Client client(worker);
    v1::TargetControl control;
    AddOpen(MakeOpen(1, {3, 1, 4}, 800), &control);
    client.Write(control);
    client.ReadUntil(
        [](const auto& event) { return event.verdicts_size() > 0; });
    EXPECT_LT(worker.engine->stats().kv_free_tokens, free);
  }
  // The next stream's session is served after the end was seen.
  while (worker.engine->stats().sessions > 0) std::this_thread::yield();
  EXPECT_EQ(worker.engine->stats().kv_free_tokens, free);
}

TEST(TargetServiceTest, AnAbandonedStreamsSessionsMakeRoomForTheNextOnes) {
  Worker worker({.kv_capacity_tokens = 1024});
  Client former(worker);
  v1::TargetControl control;
  AddOpen(MakeOpen(1, {3, 1, 4}, 1000), &control);
  former.Write(control);
  // To where it waits for an acknowledgement: between two steps.
  int num_tokens = 0;
  former.ReadUntil([&num_tokens](const v1::TargetEvent& event) {
    for (const v1::Verdict& verdict : event.verdicts()) {
      num_tokens += verdict.token_ids_size();
    }
    return num_tokens >= 64;
  });
  worker.service.AbandonStreams(0);
  Client client(worker);
  client.Write(control);
  const v1::TargetEvent event = client.ReadUntil([](const auto& event) {
    return event.opened_size() > 0 || event.errors_size() > 0;
  });
  EXPECT_EQ(event.errors_size(), 0) << event.errors(0).message();
}

TEST(TargetServiceTest, NumbersThatDoNotFitAreRefused) {
  Worker worker;
  Client client(worker);
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  const auto error_of =
      [&](const std::function<void(v1::OpenTarget*)>& change) {
        v1::TargetControl control;
        change(AddOpen(SampledOpen(1), &control));
        client.Write(control);
        const v1::SessionError error = client.ReadError();
        EXPECT_EQ(error.code(), 3u);  // INVALID_ARGUMENT
        return error.message();
      };
  EXPECT_THAT(error_of([](auto* open) { open->set_prompt_length(kHuge); }),
              HasSubstr("prompt_length -1"));
  EXPECT_THAT(error_of([](auto* open) { open->set_max_tokens(kHuge); }),
              HasSubstr("over the context"));
  EXPECT_THAT(error_of([](auto* open) { open->set_token_ids(1, kHuge); }),
              HasSubstr("token_ids[1] is -1"));
  EXPECT_THAT(error_of([](auto* open) {
                open->mutable_sampling()->set_temperature(
                    std::numeric_limits<float>::quiet_NaN());
              }),
              HasSubstr("temperature"));
  EXPECT_THAT(error_of([](auto* open) {
                open->mutable_token_ids()->Resize(wire::kMaxTokenIds + 1, 0);
              }),
              HasSubstr("token_ids has 4194305 entries, at most 4194304"));
}

TEST(TargetServiceTest, GarbageChangesNothingAndIsCounted) {
  Worker worker;
  Client client(worker);
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  const OpenTarget open = SampledOpen(1);
  v1::TargetControl control;
  v1::OpenTarget* proto = AddOpen(open, &control);
  proto->set_has_draft(true);
  proto->mutable_plan()->set_window(kHuge);
  proto->mutable_plan()->set_gate_timeout_ns(
      std::numeric_limits<uint64_t>::max());
  for (const uint32_t value : {kHuge, kHuge / 2, 1000u}) {
    v1::Tail* tail = control.add_tails();
    tail->set_session_id(1);
    tail->set_base_length(value);
    tail->set_first_position(value);
    tail->add_token_ids(value);
    tail = control.add_tails();
    tail->set_session_id(1);
    tail->set_base_length(5);
    tail->set_first_position(5);
    tail->add_token_ids(value);
  }
  control.add_tails()->set_stop(static_cast<v1::StopMark>(99));
  control.add_attach_draft()->set_session_id(77);
  control.add_acknowledge()->set_committed_length(kHuge);
  client.Write(control);
  EXPECT_EQ(client.ReadToEnd(open.token_ids),
            Autoregressive(worker.model, open));
  EXPECT_EQ(worker.engine->stats().rejected_messages, 9u);
}

TEST(TargetServiceTest, BytesThatAreNoMessageEndOnlyTheirOwnStream) {
  Worker worker;
  const grpc::Status status = nacre::testing::CallWithBytes(
      worker.channel, "/nacre.v1.TargetWorker/Session",
      nacre::testing::kNoMessage);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  Client client(worker);
  const OpenTarget open = SampledOpen(1);
  v1::TargetControl control;
  AddOpen(open, &control);
  client.Write(control);
  EXPECT_EQ(client.ReadToEnd(open.token_ids),
            Autoregressive(worker.model, open));
}

}  // namespace
}  // namespace nacre::target_worker
