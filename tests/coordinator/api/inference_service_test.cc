#include "coordinator/api/inference_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/recording_client.h"
#include "tests/testing/raw_call.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a Generate call answered.
struct Answer {
  std::vector<v1::GenerateResponse> responses;
  grpc::Status status;
};

class InferenceServiceTest : public CoordinatorFixture {
 protected:
  InferenceServiceTest() : stub_(v1::Inference::NewStub(Channel())) {
    request_.set_text("hi");
    request_.mutable_output()->set_stream(true);
  }

  void Attach() {
    worker_.Attach(address());
    ASSERT_TRUE(worker_.AwaitAccepted());
  }

  // Reads the whole answer.
  Answer Generate() {
    grpc::ClientContext context;
    SetDeadline(&context);
    Answer answer;
    const auto reader = stub_->Generate(&context, request_);
    v1::GenerateResponse response;
    while (reader->Read(&response)) answer.responses.push_back(response);
    answer.status = reader->Finish();
    return answer;
  }

  // Every session that opens is told these verdicts, the last one final.
  void Script(std::vector<std::string> texts, v1::FinishReason finish) {
    worker_.target.SetScript([this, texts = std::move(texts),
                              finish](const v1::TargetControl& control) {
      for (const v1::OpenTarget& open : control.open()) {
        uint32_t length = open.token_ids_size();
        for (size_t i = 0; i < texts.size(); ++i) {
          v1::TargetEvent event;
          v1::Verdict* verdict = event.add_verdicts();
          verdict->set_session_id(open.session_id());
          verdict->set_base_length(length);
          for (int32_t id : Bytes(texts[i])) verdict->add_token_ids(id);
          length += texts[i].size();
          if (i + 1 == texts.size()) verdict->set_finish(finish);
          worker_.target.Send(std::move(event));
        }
      }
    });
  }

  bool AwaitClose(uint64_t session_id) {
    return worker_.target.controls.Await(
        [session_id](const v1::TargetControl& control) {
          for (const v1::CloseSession& close : control.close()) {
            if (close.session_id() == session_id) return true;
          }
          return false;
        });
  }

  FakeWorker worker_{v1::WORKER_ROLE_TARGET};
  std::unique_ptr<v1::Inference::Stub> stub_;
  v1::GenerateRequest request_;
};

TEST_F(InferenceServiceTest, StreamsChunksInOrderThenTheCompletion) {
  Attach();
  std::vector<std::string> texts;
  std::string all;
  for (int i = 0; i < 40; ++i) {
    texts.push_back("token " + std::to_string(i) + ",");
    all += texts.back();
  }
  Script(texts, v1::FINISH_REASON_LENGTH);
  request_.set_request_id("mine");
  request_.mutable_stop()->set_max_tokens(999);
  const Answer answer = Generate();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.responses.size(), texts.size() + 1);
  std::string streamed;
  uint32_t index = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const v1::GenerateResponse& response = answer.responses[i];
    EXPECT_EQ(response.request_id(), "mine");
    EXPECT_EQ(response.chunk().first_index(), index);
    index += response.chunk().token_ids_size();
    streamed += response.chunk().text();
  }
  EXPECT_EQ(streamed, all);
  const v1::Complete& complete = answer.responses.back().complete();
  EXPECT_EQ(answer.responses.back().request_id(), "mine");
  EXPECT_EQ(complete.text(), all);
  EXPECT_EQ(complete.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(complete.usage().completion_tokens(), all.size());
  EXPECT_EQ(complete.usage().prompt_tokens(), 3u);
  EXPECT_THAT(complete.prompt_token_ids(),
              ElementsAre(ByteTokenizer::kBos, 'h', 'i'));
  EXPECT_EQ(complete.speculation().method(), v1::METHOD_ASYNC);
  EXPECT_EQ(complete.speculation().rounds(), texts.size());
}

TEST_F(InferenceServiceTest, WithoutStreamingOneCompletionCarriesAll) {
  Attach();
  Script({"he", "llo"}, v1::FINISH_REASON_LENGTH);
  request_.clear_output();
  const Answer answer = Generate();
  ASSERT_TRUE(answer.status.ok());
  ASSERT_EQ(answer.responses.size(), 1u);
  EXPECT_EQ(answer.responses[0].complete().text(), "hello");
  EXPECT_EQ(answer.responses[0].request_id().size(), 16u);  // filled
}

TEST_F(InferenceServiceTest, TheWorkerIsToldAllThatDecidesTheTokens) {
  Attach();
  Script({"x"}, v1::FINISH_REASON_EOS);
  request_.mutable_sampling()->set_temperature(0.5f);
  request_.mutable_sampling()->set_top_k(3);
  request_.mutable_sampling()->set_seed(~uint64_t{0});
  request_.mutable_stop()->set_max_tokens(17);
  request_.mutable_stop()->add_stop_token_ids('q');
  request_.mutable_stop()->set_ignore_eos(true);
  const Answer answer = Generate();
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.responses.back().complete().seed(), ~uint64_t{0});
  v1::OpenTarget open;
  for (const v1::TargetControl& control : worker_.target.controls.values()) {
    if (control.open_size() > 0) open = control.open(0);
  }
  EXPECT_THAT(open.token_ids(), ElementsAre(ByteTokenizer::kBos, 'h', 'i'));
  EXPECT_EQ(open.prompt_length(), 3u);
  EXPECT_EQ(open.max_tokens(), 17u);
  EXPECT_EQ(open.sampling().temperature(), 0.5f);
  EXPECT_EQ(open.sampling().top_k(), 3u);
  EXPECT_EQ(open.sampling().seed(), ~uint64_t{0});
  EXPECT_THAT(open.stop_token_ids(), ElementsAre('q'));
  EXPECT_TRUE(open.ignore_eos());
  EXPECT_FALSE(open.has_draft());
}

TEST_F(InferenceServiceTest, TailsAndCommitsTravelBetweenTheWorkers) {
  Attach();
  FakeWorker draft(v1::WORKER_ROLE_DRAFT);
  draft.Attach(address());
  ASSERT_TRUE(draft.AwaitAccepted());
  // The draft proposes at once, the target judges when it has the tail.
  draft.draft.SetScript([&](const v1::DraftControl& control) {
    for (const v1::OpenDraft& open : control.open()) {
      v1::DraftEvent event;
      v1::Tail* tail = event.add_tails();
      tail->set_session_id(open.session_id());
      tail->set_epoch(open.epoch());
      tail->set_base_length(open.token_ids_size());
      tail->set_first_position(open.token_ids_size());
      for (int32_t id : Bytes("abc")) tail->add_token_ids(id);
      tail->set_stop(v1::STOP_MARK_LEAD);
      draft.draft.Send(std::move(event));
    }
    for (const v1::CommitTokens& commit : control.commit()) {
      v1::DraftEvent event;
      v1::Tail* tail = event.add_tails();
      tail->set_session_id(commit.session_id());
      tail->set_epoch(1);
      tail->set_base_length(commit.first_position() + commit.token_ids_size());
      tail->set_first_position(tail->base_length());
      tail->add_token_ids('!');
      draft.draft.Send(std::move(event));
    }
  });
  worker_.target.SetScript([&](const v1::TargetControl& control) {
    for (const v1::Tail& tail : control.tails()) {
      v1::TargetEvent event;
      v1::Verdict* verdict = event.add_verdicts();
      verdict->set_session_id(tail.session_id());
      verdict->set_base_length(tail.base_length());
      *verdict->mutable_token_ids() = tail.token_ids();
      verdict->set_window(tail.token_ids_size());
      verdict->set_matched(tail.token_ids_size() - 1);
      verdict->set_verified(tail.token_ids_size());
      verdict->set_accepted(tail.token_ids_size());
      if (tail.token_ids(0) == '!') {
        verdict->set_finish(v1::FINISH_REASON_LENGTH);
      }
      worker_.target.Send(std::move(event));
    }
  });
  const Answer answer = Generate();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::Complete& complete = answer.responses.back().complete();
  EXPECT_EQ(complete.text(), "abc!");
  EXPECT_EQ(complete.speculation().drafted(), 4u);
  EXPECT_EQ(complete.speculation().verified(), 4u);
  EXPECT_EQ(complete.speculation().accepted(), 4u);
  EXPECT_EQ(complete.speculation().degraded_rounds(), 0u);
  EXPECT_TRUE(draft.draft.controls.Await([](const v1::DraftControl& control) {
    return control.close_size() > 0;
  }));
}

TEST_F(InferenceServiceTest, ACancelFreesTheWorkerAndTheRequestId) {
  Attach();
  Script({"first"}, v1::FINISH_REASON_UNSPECIFIED);  // and then nothing
  request_.set_request_id("mine");
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.chunk().text(), "first");
  EXPECT_EQ(Generate().status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  const uint64_t session_id = dispatcher_.sessions()[0].id;
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitClose(session_id));
  EXPECT_TRUE(dispatcher_.sessions().empty());
  Script({"again"}, v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(Generate().status.ok());
}

TEST_F(InferenceServiceTest, ADeadlineFreesTheWorker) {
  Attach();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(100));
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return dispatcher_.sessions().empty(); }));
}

TEST_F(InferenceServiceTest, ACallWaitsForATargetThatComesBack) {
  Attach();
  Script({"ok"}, v1::FINISH_REASON_LENGTH);
  worker_.Detach();
  ASSERT_TRUE(Eventually([&] { return !dispatcher_.model().has_value(); }));
  Answer answer;
  std::thread call([&] { answer = Generate(); });
  EXPECT_TRUE(Eventually([&] { return dispatcher_.queued().size() == 1; }));
  worker_.Attach(address());
  call.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.responses.size(), 2u);
  EXPECT_EQ(answer.responses[0].chunk().numerics_id(), "fake");
  EXPECT_EQ(answer.responses[1].complete().numerics_id(), "fake");
  EXPECT_EQ(answer.responses[1].complete().text(), "ok");
}

TEST_F(InferenceServiceTest, ErrorsReachTheClientWithCodeAndMessage) {
  const Answer none = Generate();
  EXPECT_EQ(none.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(none.status.error_message(), HasSubstr("no target"));
  Attach();
  request_.mutable_stop()->set_max_tokens(0);
  const Answer invalid = Generate();
  EXPECT_EQ(invalid.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(invalid.status.error_message(), HasSubstr("max_tokens is 0"));
  request_.clear_stop();
  request_.set_model("ruby");
  EXPECT_EQ(Generate().status.error_code(), grpc::StatusCode::NOT_FOUND);
  request_.clear_model();
  request_.mutable_speculation()->set_policy("nonsense");
  EXPECT_EQ(Generate().status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request_.clear_speculation();
  request_.mutable_sampling()->set_temperature(1.0f);
  request_.mutable_speculation()->set_verification(v1::VERIFICATION_RATIO);
  request_.mutable_speculation()->set_policy("confidence");
  EXPECT_EQ(Generate().status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(dispatcher_.sessions().empty());
}

// However many drafts there are, what they have fits into the headers of the
// answer, of 8 KiB.
TEST_F(InferenceServiceTest, ARefusalOfAHundredDraftsArrivesWhole) {
  Attach();
  for (int i = 0; i < 100; ++i) {
    WorkerInfo draft;
    draft.role = WorkerRole::kDraft;
    draft.address = absl::StrCat("draft ", i);
    draft.model_vocab_size = 300;
    draft.tokenizer_vocab_size = 290;
    draft.context_length = 1024;
    draft.policy_files = {{"disco", absl::StrCat(i, std::string(64, 'f'))}};
    ASSERT_TRUE(AddWorker(&dispatcher_, std::move(draft),
                          std::make_shared<RecordingClient>())
                    .ok());
  }
  request_.mutable_speculation()->set_policy("disco");
  const absl::Status status = rpc::FromGrpcStatus(Generate().status);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(FieldOf(status), "speculation.policy");
  EXPECT_THAT(std::string(status.message()), HasSubstr(" and 92 more"));
}

TEST_F(InferenceServiceTest, TheTargetsRefusalIsTheAnswer) {
  Attach();
  worker_.target.SetScript([this](const v1::TargetControl& control) {
    for (const v1::OpenTarget& open : control.open()) {
      v1::TargetEvent event;
      v1::SessionError* error = event.add_errors();
      error->set_session_id(open.session_id());
      error->set_code(3);
      error->set_message("no such token");
      worker_.target.Send(std::move(event));
    }
  });
  const Answer answer = Generate();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(answer.status.error_message(), "no such token");
}

// But for what another target, or this one later, may do better: with no time
// to wait, a session without room, or that it has forgotten, is lost with it.
TEST_F(InferenceServiceTest, EveryWordOfATargetHasItsStatus) {
  Attach();
  struct Case {
    uint32_t said;  // google.rpc.Code
    grpc::StatusCode answered;
  };
  for (const Case& word : {Case{3, grpc::StatusCode::INVALID_ARGUMENT},
                           Case{6, grpc::StatusCode::ALREADY_EXISTS},
                           Case{8, grpc::StatusCode::UNAVAILABLE},
                           Case{10, grpc::StatusCode::UNAVAILABLE},
                           Case{13, grpc::StatusCode::INTERNAL},
                           Case{0, grpc::StatusCode::INTERNAL},
                           Case{99, grpc::StatusCode::UNKNOWN}}) {
    worker_.target.SetScript([&](const v1::TargetControl& control) {
      for (const v1::OpenTarget& open : control.open()) {
        v1::TargetEvent event;
        v1::SessionError* error = event.add_errors();
        error->set_session_id(open.session_id());
        error->set_code(word.said);
        error->set_message("so it is");
        worker_.target.Send(std::move(event));
      }
    });
    const Answer answer = Generate();
    EXPECT_EQ(answer.status.error_code(), word.answered) << word.said;
    EXPECT_THAT(answer.status.error_message(), HasSubstr("so it is"));
    EXPECT_TRUE(answer.responses.empty());
  }
  EXPECT_TRUE(dispatcher_.sessions().empty());
}

TEST_F(InferenceServiceTest, ALostTargetIsUnavailableAfterWhatItHadSaid) {
  Attach();
  worker_.target.SetScript([this](const v1::TargetControl& control) {
    for (const v1::OpenTarget& open : control.open()) {
      v1::TargetEvent event;
      v1::Verdict* verdict = event.add_verdicts();
      verdict->set_session_id(open.session_id());
      verdict->set_base_length(open.token_ids_size());
      verdict->add_token_ids('x');
      worker_.target.Send(std::move(event));
      worker_.target.Finish(grpc::Status(grpc::StatusCode::INTERNAL, "dead"));
    }
  });
  const Answer answer = Generate();
  ASSERT_EQ(answer.responses.size(), 1u);
  EXPECT_EQ(answer.responses[0].chunk().text(), "x");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("1 tokens"));
}

TEST_F(InferenceServiceTest, AClientThatVanishesWhileChunksAreOnTheirWay) {
  Attach();
  request_.mutable_stop()->set_max_tokens(1000);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::string> texts(200, "many words");
    Script(texts, v1::FINISH_REASON_LENGTH);
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto reader = stub_->Generate(&context, request_);
    v1::GenerateResponse response;
    for (int i = 0; i < round; ++i) reader->Read(&response);
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    reader->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return dispatcher_.sessions().empty(); }));
  Script({"still here"}, v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(Generate().status.ok());
}

TEST_F(InferenceServiceTest, MorePromptsThanMayWaitForTheTokenizerAreRefused) {
  Attach();
  InferenceService busy(&dispatcher_, &tokenizer_, /*observer=*/nullptr,
                        {.parsing = {.max_tasks = 0}});
  const auto server = *rpc::RpcServer::Start({}, {&busy});
  const auto channel = rpc::CreateChannel(server->address());
  stub_ = v1::Inference::NewStub(channel);
  const grpc::Status generate = Generate().status;
  EXPECT_EQ(generate.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(generate.error_message(), HasSubstr("too many prompts wait"));
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::TokenizeResponse response;
  EXPECT_EQ(stub_->Tokenize(&context, {}, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(dispatcher_.sessions().empty());
}

TEST_F(InferenceServiceTest, TokenizeShowsWhatGenerateWouldSee) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("hi");
  v1::TokenizeResponse response;
  ASSERT_TRUE(stub_->Tokenize(&context, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(ByteTokenizer::kBos, 'h', 'i'));
  grpc::ClientContext without;
  request.set_no_special_tokens(true);
  ASSERT_TRUE(stub_->Tokenize(&without, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre('h', 'i'));
  grpc::ClientContext bad;
  request.set_text("\x01");
  EXPECT_EQ(stub_->Tokenize(&bad, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// A string that is not UTF-8 is no string to protobuf.
TEST_F(InferenceServiceTest, BytesThatAreNoRequestAreInvalid) {
  Attach();
  constexpr char kBadText[] = "\x1a\x01\xff";      // GenerateRequest.text
  constexpr char kBadTokenize[] = "\x0a\x01\xff";  // TokenizeRequest.text
  for (const auto& [method, bytes] :
       {std::pair{"Generate", +nacre::testing::kNoMessage},
        std::pair{"Tokenize", +nacre::testing::kNoMessage},
        std::pair{"GetModel", +nacre::testing::kNoMessage},
        std::pair{"Generate", +kBadText},
        std::pair{"Tokenize", +kBadTokenize}}) {
    EXPECT_EQ(
        nacre::testing::CallWithBytes(
            Channel(), absl::StrCat("/nacre.v1.Inference/", method), bytes)
            .error_code(),
        grpc::StatusCode::INVALID_ARGUMENT)
        << method;
  }
  EXPECT_TRUE(dispatcher_.sessions().empty());
}

TEST_F(InferenceServiceTest, GetModelDescribesTheTargetOrIsUnavailable) {
  v1::Model model;
  {
    grpc::ClientContext context;
    EXPECT_EQ(stub_->GetModel(&context, {}, &model).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
  Attach();
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->GetModel(&context, {}, &model).ok());
  EXPECT_EQ(model.name(), "pearl");
  EXPECT_EQ(model.vocab_size(), 300u);
  EXPECT_EQ(model.context_length(), 1024u);
  EXPECT_EQ(model.fingerprint(), "big");
  EXPECT_EQ(model.numerics_id(), "fake");
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(ByteTokenizer::kEos));
}

TEST_F(InferenceServiceTest, ADrainingServerIsUnavailable) {
  Attach();
  EXPECT_TRUE(dispatcher_.Drain(absl::InfiniteDuration()));
  EXPECT_EQ(Generate().status.error_code(), grpc::StatusCode::UNAVAILABLE);
  // Clients wait by this question for one that takes requests.
  grpc::ClientContext context;
  v1::Model model;
  const grpc::Status status = stub_->GetModel(&context, {}, &model);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the server is shutting down");
}

}  // namespace
}  // namespace nacre::coordinator
