#include "draft_worker/draft_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/testing/raw_call.h"
#include "tests/testing/table_model.h"

namespace nacre::draft_worker {
namespace {

using nacre::testing::TableModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A served engine on its own thread, and the coordinator's end of a stream.
class DraftServiceTest : public ::testing::Test {
 protected:
  DraftServiceTest() {
    DraftEngine::Options options;
    options.model = &model_;
    options.send = [this](worker::StreamId stream, const DraftEvents& events) {
      service_.Send(stream, events);
    };
    options.deliver = [this](worker::Delivery delivery) {
      service_.Deliver(delivery);
    };
    engine_ = std::make_unique<DraftEngine>(std::move(options));
    service_.set_engine(engine_.get());
    server_ = *rpc::RpcServer::Start({}, {service_.grpc_service()});
    thread_ = std::thread([this] { EXPECT_TRUE(engine_->Run().ok()); });
    stub_ = v1::DraftWorker::NewStub(rpc::CreateChannel(server_->address()));
    stream_ = stub_->Session(&context_);
  }
  ~DraftServiceTest() override {
    context_.TryCancel();
    stream_->Finish();
    server_->Shutdown(absl::Seconds(5));
    engine_->Stop();
    thread_.join();
  }

  template <typename Done>
  v1::DraftEvent ReadUntil(Done done) {
    v1::DraftEvent event;
    while (stream_->Read(&event)) {
      if (done(event)) return event;
    }
    ADD_FAILURE() << "the stream has ended";
    return {};
  }

  // Greedy tokens for the positions after `length`, until a stop mark.
  std::vector<uint32_t> ReadDraft(uint32_t length) {
    std::vector<uint32_t> drafted;
    ReadUntil([&](const v1::DraftEvent& event) {
      bool stopped = false;
      for (const v1::Tail& tail : event.tails()) {
        EXPECT_EQ(tail.first_position(), length + drafted.size());
        drafted.insert(drafted.end(), tail.token_ids().begin(),
                       tail.token_ids().end());
        stopped = tail.stop() != v1::STOP_MARK_UNSPECIFIED;
      }
      return stopped;
    });
    return drafted;
  }

  static v1::OpenDraft* AddOpen(v1::DraftControl* control) {
    v1::OpenDraft* open = control->add_open();
    open->set_session_id(1);
    for (const uint32_t id : {3u, 1u, 4u}) open->add_token_ids(id);
    open->set_prompt_length(3);
    open->set_max_length(100);
    open->mutable_plan()->set_lead_after_mismatch(4);
    open->mutable_plan()->set_lead_in_flow(4);
    return open;
  }

  uint32_t Greedy(const std::vector<int32_t>& tokens) const {
    const std::vector<float> logits = model_.Logits(tokens);
    return static_cast<uint32_t>(
        std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  TableModel model_{nacre::testing::TableModelOptions{}};
  DraftService service_;
  std::unique_ptr<DraftEngine> engine_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::thread thread_;
  std::unique_ptr<v1::DraftWorker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DraftControl, v1::DraftEvent>>
      stream_;
};

TEST_F(DraftServiceTest, LengthPoliciesTravel) {
  v1::DraftControl control;
  v1::OpenDraft* open = AddOpen(&control);
  open->set_policy("constant:n=2");
  ASSERT_TRUE(stream_->Write(control));
  // Under overlap a mark, and the draft goes on.
  std::vector<v1::StopMark> marks;
  ReadUntil([&](const v1::DraftEvent& event) {
    for (const v1::Tail& tail : event.tails()) marks.push_back(tail.stop());
    return marks.size() == 4;
  });
  EXPECT_THAT(marks,
              ElementsAre(v1::STOP_MARK_UNSPECIFIED, v1::STOP_MARK_CHUNK,
                          v1::STOP_MARK_UNSPECIFIED, v1::STOP_MARK_LEAD));
  control.Clear();
  control.add_close()->set_session_id(1);
  open = AddOpen(&control);
  open->set_session_id(2);
  open->set_policy("oracle");
  open->mutable_plan()->set_waits_at_stop(true);
  std::vector<int32_t> tokens = {3, 1, 4};
  for (int i = 0; i < 2; ++i) {
    tokens.push_back(static_cast<int32_t>(Greedy(tokens)));
    open->add_oracle_token_ids(static_cast<uint32_t>(tokens.back()));
  }
  open = AddOpen(&control);
  open->set_session_id(3);
  open->set_policy("disco");
  open = AddOpen(&control);
  open->set_session_id(4);
  open->set_policy("cali-ts");
  ASSERT_TRUE(stream_->Write(control));
  bool refused = false;
  bool noted = false;
  bool stopped = false;
  ReadUntil([&](const v1::DraftEvent& event) {
    for (const v1::SessionError& error : event.errors()) {
      EXPECT_EQ(error.session_id(), 3u);
      EXPECT_EQ(error.code(), 9u);  // FAILED_PRECONDITION
      refused = true;
    }
    for (const v1::SessionOpened& opened : event.opened()) {
      noted =
          noted || (opened.session_id() == 4 && !opened.policy_note().empty());
    }
    for (const v1::Tail& tail : event.tails()) {
      stopped =
          stopped || (tail.session_id() == 2 && tail.first_position() == 5 &&
                      tail.stop() == v1::STOP_MARK_POLICY);
    }
    return refused && noted && stopped;
  });
}

TEST_F(DraftServiceTest, DraftsFollowsCommitsAndCloses) {
  const int64_t free = model_.kv_free_tokens();
  v1::DraftControl control;
  AddOpen(&control);
  ASSERT_TRUE(stream_->Write(control));
  const std::vector<uint32_t> drafted = ReadDraft(3);
  std::vector<int32_t> tokens = {3, 1, 4};
  ASSERT_EQ(drafted.size(), 4u);
  for (const uint32_t id : drafted) {
    EXPECT_EQ(id, Greedy(tokens));
    tokens.push_back(static_cast<int32_t>(id));
  }

  tokens.resize(4);
  tokens.push_back((tokens.back() + 1) % 16);
  if (static_cast<uint32_t>(tokens[4]) == drafted[1]) {
    tokens[4] = (tokens[4] + 1) % 16;
  }
  v1::DraftControl commit;
  v1::CommitTokens* committed = commit.add_commit();
  committed->set_session_id(1);
  committed->set_first_position(3);
  committed->add_token_ids(static_cast<uint32_t>(tokens[3]));
  committed->add_token_ids(static_cast<uint32_t>(tokens[4]));
  commit.mutable_ping()->set_coordinator_ns(7);
  ASSERT_TRUE(stream_->Write(commit));
  EXPECT_EQ(ReadUntil([](const auto& event) { return event.has_pong(); })
                .pong()
                .coordinator_ns(),
            7u);
  const std::vector<uint32_t> again = ReadDraft(5);
  ASSERT_EQ(again.size(), 4u);
  EXPECT_EQ(again[0], Greedy(tokens));

  v1::DraftControl close;
  close.add_close()->set_session_id(1);
  ASSERT_TRUE(stream_->Write(close));
  ReadUntil([](const auto& event) { return event.closed_size() > 0; });
  while (engine_->stats().sessions > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().kv_free_tokens, free);
}

TEST_F(DraftServiceTest, AnAbandonedStreamsSessionsAreClosed) {
  const int64_t free = model_.kv_free_tokens();
  v1::DraftControl control;
  AddOpen(&control);
  ASSERT_TRUE(stream_->Write(control));
  ReadDraft(3);
  EXPECT_LT(engine_->stats().kv_free_tokens, free);
  service_.AbandonStreams(0);
  while (engine_->stats().sessions > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().kv_free_tokens, free);
}

// A stream whose other end takes nothing cannot end before its connection does.
TEST_F(DraftServiceTest, AnAbandonedStreamThatIsStuckIsClosedAllTheSame) {
  v1::DraftControl control;
  AddOpen(&control);
  ASSERT_TRUE(stream_->Write(control));
  ReadDraft(3);  // the engine has no more to say
  for (int i = 0; i < 8; ++i) {
    DraftEvents events;
    events.common.failures.push_back(
        {99, absl::InternalError(std::string(1 << 20, 'x')), 0});
    service_.Send(/*stream=*/1, std::move(events));
  }
  service_.Deliver(worker::Delivery::kHere);
  service_.AbandonStreams(0);
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (engine_->stats().sessions > 0 && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(engine_->stats().sessions, 0);
  // What it still says is as good as unsaid.
  stream_->Write(control);
  v1::DraftEvent event;
  while (stream_->Read(&event)) {
  }
  grpc::ClientContext context;
  const auto next = stub_->Session(&context);
  ASSERT_TRUE(next->Write(control));
  ASSERT_TRUE(next->Read(&event));
  EXPECT_EQ(event.opened_size(), 1);
  EXPECT_EQ(engine_->stats().prefix_queries, 3u + 3u);
  context.TryCancel();
  next->Finish();
}

TEST_F(DraftServiceTest, NumbersThatDoNotFitAreRefused) {
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  const auto error_of = [&](const std::function<void(v1::OpenDraft*)>& change) {
    v1::DraftControl control;
    change(AddOpen(&control));
    EXPECT_TRUE(stream_->Write(control));
    const v1::DraftEvent event =
        ReadUntil([](const auto& event) { return event.errors_size() > 0; });
    EXPECT_EQ(event.errors(0).code(), 3u);  // INVALID_ARGUMENT
    return event.errors(0).message();
  };
  EXPECT_THAT(error_of([](auto* open) { open->set_prompt_length(kHuge); }),
              HasSubstr("prompt_length -1"));
  EXPECT_THAT(error_of([](auto* open) { open->set_token_ids(2, kHuge); }),
              HasSubstr("token_ids[2] is -1"));
  EXPECT_THAT(error_of([](auto* open) {
                open->mutable_end_token_ids()->Resize(wire::kMaxTokenIds + 1,
                                                      0);
              }),
              HasSubstr("end_token_ids has 4194305 entries, at most 4194304"));
}

TEST_F(DraftServiceTest, GarbageChangesNothingAndIsCounted) {
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  v1::DraftControl control;
  v1::OpenDraft* open = AddOpen(&control);
  open->set_max_length(kHuge);   // the context is the limit
  open->set_vocab_limit(kHuge);  // the vocabulary is
  ASSERT_TRUE(stream_->Write(control));
  EXPECT_EQ(ReadDraft(3).size(), 4u);
  v1::DraftControl garbage;
  v1::CommitTokens* commit = garbage.add_commit();
  commit->set_session_id(1);
  commit->set_first_position(kHuge);
  commit->add_token_ids(1);
  commit = garbage.add_commit();
  commit->set_session_id(1);
  commit->set_first_position(kHuge / 2);
  commit->add_token_ids(1);
  garbage.add_commit()->set_session_id(99);
  garbage.add_plan()->set_session_id(99);
  garbage.add_close()->set_session_id(99);
  garbage.mutable_ping()->set_coordinator_ns(1);
  ASSERT_TRUE(stream_->Write(garbage));
  while (engine_->stats().rejected_messages < 5) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().rejected_messages, 5u);
  EXPECT_EQ(engine_->stats().sessions, 1);
}

TEST_F(DraftServiceTest, AnswersPingsWithItsAttachment) {
  service_.SetAttachment(0, 0xF000000000000001u);
  v1::DraftControl control;
  control.mutable_ping()->set_coordinator_ns(12345);
  ASSERT_TRUE(stream_->Write(control));
  v1::DraftEvent event;
  while (!event.has_pong()) ASSERT_TRUE(stream_->Read(&event));
  EXPECT_EQ(event.pong().coordinator_ns(), 12345u);
  EXPECT_EQ(event.pong().attachment(), 0xF000000000000001u);
}

TEST_F(DraftServiceTest, AnAbandonedStreamIsToldSo) {
  grpc::ClientContext context;
  const auto stream = stub_->Session(&context);
  v1::DraftControl control;
  AddOpen(&control);
  ASSERT_TRUE(stream->Write(control));
  v1::DraftEvent event;
  ASSERT_TRUE(stream->Read(&event));
  service_.AbandonStreams(0);
  while (stream->Read(&event)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("not attached any more"));
}

TEST_F(DraftServiceTest, BytesThatAreNoMessageEndOnlyTheirOwnStream) {
  const grpc::Status status = nacre::testing::CallWithBytes(
      rpc::CreateChannel(server_->address()), "/nacre.v1.DraftWorker/Session",
      nacre::testing::kNoMessage);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::DraftControl control;
  AddOpen(&control);
  ASSERT_TRUE(stream_->Write(control));
  EXPECT_EQ(ReadDraft(3).size(), 4u);
}

}  // namespace
}  // namespace nacre::draft_worker
