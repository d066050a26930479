// n > 1: several choices of one prompt in one Generate call.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/endless_target.h"
#include "tests/telemetry/samples.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

// What a call answered, by choice.
struct ChoicesAnswer {
  std::map<uint32_t, std::vector<v1::Chunk>> chunks;
  std::map<uint32_t, v1::Complete> completes;
  std::set<std::string> request_ids;
  size_t num_responses = 0;
  std::vector<v1::Start> starts;  // of the first response, and of any other
  bool starts_first = false;
  grpc::Status status;
};

class InferenceChoicesTest : public CoordinatorFixture {
 protected:
  explicit InferenceChoicesTest(const Adjust& adjust =
                                    [](Dispatcher::Options*) {})
      : CoordinatorFixture(adjust), stub_(v1::Inference::NewStub(Channel())) {
    request_.set_text("hi");
    request_.set_n(4);
    request_.set_request_id("mine");
    request_.mutable_output()->set_stream(true);
    request_.mutable_sampling()->set_temperature(0.8f);
    request_.mutable_sampling()->set_seed(kSeed);
  }

  static constexpr uint64_t kSeed = 5;

  void Attach() {
    worker_.Attach(address());
    ASSERT_TRUE(worker_.AwaitAccepted());
  }

  // Six tokens that the seed decides, as in a real target.
  static std::string TextOf(uint64_t seed) {
    std::string text;
    for (uint64_t i = 0; i < 6; ++i) {
      text.push_back(static_cast<char>('a' + (seed * 31 + i * seed) % 26));
    }
    return text;
  }
  void Say(const v1::OpenTarget& open, uint32_t done, const std::string& text,
           bool last) {
    v1::TargetEvent event;
    v1::Verdict* verdict = event.add_verdicts();
    verdict->set_session_id(open.session_id());
    verdict->set_base_length(open.token_ids_size() + done);
    for (int32_t id : Bytes(text)) verdict->add_token_ids(id);
    if (last) verdict->set_finish(v1::FINISH_REASON_LENGTH);
    worker_.target.Send(std::move(event));
  }
  void SayAll(const v1::OpenTarget& open) {
    const std::string text = TextOf(open.sampling().seed());
    Say(open, 0, text.substr(0, 2), false);
    Say(open, 2, text.substr(2), true);
  }
  void Refuse(const v1::OpenTarget& open) {
    v1::TargetEvent event;
    v1::SessionError* error = event.add_errors();
    error->set_session_id(open.session_id());
    error->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
    error->set_message("a broken block");
    worker_.target.Send(std::move(event));
  }
  // What the target does with each session; it closes them when it is told to.
  void Script(std::function<void(const v1::OpenTarget& open)> on_open) {
    worker_.target.SetScript(
        [this, on_open = std::move(on_open)](const v1::TargetControl& control) {
          v1::TargetEvent event;
          for (const v1::CloseSession& close : control.close()) {
            event.add_closed()->set_session_id(close.session_id());
          }
          if (event.closed_size() > 0) worker_.target.Send(std::move(event));
          for (const v1::OpenTarget& open : control.open()) on_open(open);
        });
  }

  static void Read(
      grpc::ClientReader<v1::GenerateResponse>* reader, ChoicesAnswer* answer,
      const std::function<void()>& on_complete = [] {}) {
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      const uint32_t index = response.index();
      if (response.has_start()) {
        if (answer->num_responses == 0) answer->starts_first = true;
        answer->starts.push_back(response.start());
      }
      ++answer->num_responses;
      answer->request_ids.insert(response.request_id());
      EXPECT_EQ(answer->completes.count(index), 0u) << "more after the end";
      if (response.has_complete()) {
        answer->completes[index] = response.complete();
        on_complete();
      } else {
        answer->chunks[index].push_back(response.chunk());
      }
    }
    answer->status = reader->Finish();
  }
  ChoicesAnswer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    ChoicesAnswer answer;
    Read(stub_->Generate(&context, request).get(), &answer);
    return answer;
  }
  // Of nothing is anything left.
  bool IsQuiet() const {
    return dispatcher_.sessions().empty() && dispatcher_.queued().empty();
  }
  double Sum(const std::string& name, const std::string& part = "") {
    return telemetry::Sum(
        telemetry::Collect(*observability_.metrics().collectable()), name,
        part);
  }

  FakeWorker worker_{v1::WORKER_ROLE_TARGET};
  std::unique_ptr<v1::Inference::Stub> stub_;
  v1::GenerateRequest request_;
};

TEST_F(InferenceChoicesTest, EachIsTheAnswerToARequestOfItsOwn) {
  Attach();
  Script([this](const v1::OpenTarget& open) { SayAll(open); });
  constexpr uint64_t kLast = ~uint64_t{0};
  request_.mutable_sampling()->set_seed(kLast - 1);  // wraps
  const ChoicesAnswer answer = Generate(request_);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.request_ids, std::set<std::string>{"mine"});
  ASSERT_EQ(answer.completes.size(), 4u);
  std::set<std::string> texts;
  for (const auto& [index, complete] : answer.completes) {
    const uint64_t seed = kLast - 1 + index;
    v1::GenerateRequest alone = request_;
    alone.clear_n();
    alone.mutable_sampling()->set_seed(seed);
    const ChoicesAnswer single = Generate(alone);
    ASSERT_TRUE(single.status.ok());
    ASSERT_EQ(single.completes.size(), 1u);
    ASSERT_EQ(single.completes.begin()->first, 0u);
    v1::Complete expected = single.completes.begin()->second;
    v1::Complete got = complete;
    // How fast it went, and by which plan, depends on the company.
    for (v1::Complete* each : {&expected, &got}) {
      EXPECT_TRUE(each->has_timing());
      EXPECT_TRUE(each->has_speculation());
      each->clear_timing();
      each->clear_speculation();
    }
    EXPECT_EQ(got.SerializeAsString(), expected.SerializeAsString()) << index;
    EXPECT_EQ(got.seed(), seed);
    EXPECT_EQ(got.text(), TextOf(seed));
    texts.insert(got.text());

    std::string streamed;
    for (const v1::Chunk& chunk : answer.chunks.at(index)) {
      EXPECT_EQ(chunk.first_index(), streamed.size());
      streamed += chunk.text();
    }
    EXPECT_EQ(streamed, got.text());
  }
  EXPECT_EQ(texts.size(), 4u);
}

TEST_F(InferenceChoicesTest, WithoutStreamingThereIsOneCompleteEach) {
  Attach();
  Script([this](const v1::OpenTarget& open) { SayAll(open); });
  request_.clear_output();
  const ChoicesAnswer answer = Generate(request_);
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.num_responses, 4u);
  EXPECT_EQ(answer.completes.size(), 4u);
}

TEST_F(InferenceChoicesTest, TheirNumberHasLimits) {
  Attach();
  Script([this](const v1::OpenTarget& open) { SayAll(open); });
  request_.set_n(16);
  EXPECT_EQ(Generate(request_).completes.size(), 16u);
  for (const uint32_t n : {0u, 17u, ~0u}) {
    request_.set_n(n);
    const ChoicesAnswer answer = Generate(request_);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(answer.status.error_message(),
              absl::StrCat("n is ", n, ", must be in [1, 16]"));
  }
  EXPECT_EQ(Sum("nacre_requests_total", "INVALID_ARGUMENT"), 3);
}

// Whether the others have started, are about to or have said something: where
// the client hears of it they are gone.
TEST_F(InferenceChoicesTest, AFailedOneEndsTheCallAndTheOthers) {
  Attach();
  constexpr uint64_t kRounds = 20;
  // By round, which the seed tells: what the last one opened may come late.
  using Opened = std::map<uint64_t, std::vector<v1::OpenTarget>>;
  Script(
      [this, rounds = std::make_shared<Opened>()](const v1::OpenTarget& open) {
        const uint64_t round = open.sampling().seed() / 100;
        std::vector<v1::OpenTarget>& opened = (*rounds)[round];
        opened.push_back(open);
        Say(open, 0, "a", false);
        const size_t failing = round % 4;
        // When it is opened, or when all are.
        if (opened.size() == (round < kRounds / 2 ? failing + 1 : 4)) {
          Refuse(opened[failing]);
        }
      });
  for (uint64_t round = 0; round < kRounds; ++round) {
    request_.mutable_sampling()->set_seed(round * 100);
    const ChoicesAnswer answer = Generate(request_);
    EXPECT_TRUE(IsQuiet());
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DATA_LOSS);
    EXPECT_EQ(answer.status.error_message(), "a broken block");
    EXPECT_TRUE(answer.completes.empty());
    // The request id is free again for the next round.
  }
  EXPECT_EQ(Sum("nacre_requests_total", "DATA_LOSS"), 20);
  EXPECT_EQ(Sum("nacre_requests_total"), 20);
  // Observers hear of an end after the dispatcher has forgotten it.
  EXPECT_TRUE(
      Eventually([&] { return Sum("nacre_num_requests_running") == 0; }));
}

TEST_F(InferenceChoicesTest, WhatWasCompleteBeforeAFailureStands) {
  Attach();
  Mailbox<v1::OpenTarget> opened;
  Script([&](const v1::OpenTarget& open) {
    opened.Put(open);
    if (opened.values().size() == 4) SayAll(opened.values()[2]);
  });
  grpc::ClientContext context;
  SetDeadline(&context);
  ChoicesAnswer answer;
  // Once the client has it: choices are written apart, and a failure may be
  // faster than another one's last words.
  Read(stub_->Generate(&context, request_).get(), &answer,
       [&] { Refuse(opened.values()[0]); });
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DATA_LOSS);
  ASSERT_EQ(answer.completes.size(), 1u);
  EXPECT_EQ(answer.completes.at(2).text(), TextOf(kSeed + 2));
  EXPECT_EQ(Sum("nacre_requests_total"), 1);
}

TEST_F(InferenceChoicesTest, ACancelEndsThemAll) {
  Attach();
  Script([this](const v1::OpenTarget& open) { Say(open, 0, "a", false); });
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  std::set<uint32_t> begun;
  while (begun.size() < 4) {
    ASSERT_TRUE(reader->Read(&response));
    begun.insert(response.index());
  }
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
  std::atomic<int> num_closed{0};
  EXPECT_TRUE(Eventually([&] {
    num_closed = 0;
    for (const v1::TargetControl& control : worker_.target.controls.values()) {
      num_closed += control.close_size();
    }
    return num_closed == 4;
  }));
  EXPECT_EQ(Sum("nacre_requests_total", "CANCELLED"), 1);
}

// At any moment: before the prompt is parsed, while choices start, while they
// are answered.
TEST_F(InferenceChoicesTest, AStormOfCancelsLeavesNothingBehind) {
  Attach();
  Script([this](const v1::OpenTarget& open) {
    if (open.sampling().seed() % 3 != 0) SayAll(open);
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; round < 40; ++round) {
        grpc::ClientContext context;
        SetDeadline(&context);
        v1::GenerateRequest request = request_;
        request.set_n(1 + (i + round) % 6);
        request.clear_request_id();
        const auto reader = stub_->Generate(&context, request);
        v1::GenerateResponse response;
        const int reads = (i * 7 + round) % 5;
        for (int read = 1; read < reads; ++read) reader->Read(&response);
        context.TryCancel();
        ChoicesAnswer rest;
        Read(reader.get(), &rest);
        EXPECT_TRUE(rest.status.ok() ||
                    rest.status.error_code() == grpc::StatusCode::CANCELLED)
            << rest.status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
  // Some never reached the server.
  EXPECT_LE(Sum("nacre_requests_total"), 6 * 40);
  // Observers hear of an end after the dispatcher has forgotten it.
  EXPECT_TRUE(
      Eventually([&] { return Sum("nacre_num_requests_running") == 0; }));
  // Observers hear of an end after the dispatcher has forgotten it.
  EXPECT_TRUE(
      Eventually([&] { return Sum("nacre_num_requests_waiting") == 0; }));
}

TEST_F(InferenceChoicesTest, TheDeadlineEndsThemAll) {
  Attach();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(100));
  ChoicesAnswer answer;
  Read(stub_->Generate(&context, request_).get(), &answer);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
}

// All fail at once, under one lock.
TEST_F(InferenceChoicesTest, ALostTargetIsOneAnswer) {
  Attach();
  int num_opened = 0;
  Script([&](const v1::OpenTarget&) {
    if (++num_opened == 4) {
      worker_.target.Finish(grpc::Status(grpc::StatusCode::INTERNAL, "dead"));
    }
  });
  const ChoicesAnswer answer = Generate(request_);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(IsQuiet());
  EXPECT_EQ(Sum("nacre_requests_total"), 1);
}

TEST_F(InferenceChoicesTest, TheRequestIdIsTheirsUntilTheLastHasEnded) {
  Attach();
  absl::Mutex mu;
  std::vector<v1::OpenTarget> late;
  Script([&](const v1::OpenTarget& open) {
    if (open.sampling().seed() != kSeed + 1) return SayAll(open);
    absl::MutexLock lock(&mu);
    late.push_back(open);
  });
  request_.set_n(2);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  do {
    ASSERT_TRUE(reader->Read(&response));
  } while (!response.has_complete());
  EXPECT_EQ(response.index(), 0u);
  v1::GenerateRequest other = request_;
  other.clear_n();
  EXPECT_EQ(Generate(other).status.error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  // No name of a client's is ever in use for a choice.
  other.set_request_id("mine/1");
  EXPECT_TRUE(Generate(other).status.ok());
  {
    absl::MutexLock lock(&mu);
    const auto is_there = [&late] { return !late.empty(); };
    mu.Await(absl::Condition(&is_there));
    SayAll(late[0]);
  }
  ChoicesAnswer rest;
  Read(reader.get(), &rest);
  EXPECT_TRUE(rest.status.ok());
  EXPECT_EQ(rest.completes.count(1), 1u);
  other.set_request_id("mine");
  EXPECT_TRUE(Generate(other).status.ok());
}

TEST_F(InferenceChoicesTest, EachCountsAsARequestAndTheCallAsOneAnswer) {
  Attach();
  Script([this](const v1::OpenTarget& open) { SayAll(open); });
  const ChoicesAnswer answer = Generate(request_);
  ASSERT_TRUE(answer.status.ok());
  double prompt = 0, completion = 0, rounds = 0;
  for (const auto& [index, complete] : answer.completes) {
    prompt += complete.usage().prompt_tokens();
    completion += complete.usage().completion_tokens();
    rounds += static_cast<double>(complete.speculation().rounds());
  }
  EXPECT_EQ(prompt, 4 * 3);
  EXPECT_EQ(Sum("nacre_prompt_tokens_total"), prompt);
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), completion);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total"), rounds);
  EXPECT_EQ(Sum("nacre_e2e_request_latency_seconds_count"), 4);
  EXPECT_EQ(Sum("nacre_time_to_first_token_seconds_count"), 4);
  EXPECT_EQ(Sum("nacre_requests_total"), 1);
  EXPECT_EQ(Sum("nacre_requests_total", "finish_reason=\"length\""), 1);
}

TEST_F(InferenceChoicesTest, TheCallEndsAsItsFirstChoiceDoes) {
  Attach();
  Script([this](const v1::OpenTarget& open) {
    v1::TargetEvent event;
    v1::Verdict* verdict = event.add_verdicts();
    verdict->set_session_id(open.session_id());
    verdict->set_base_length(open.token_ids_size());
    verdict->add_token_ids('a');
    verdict->set_finish(open.sampling().seed() == kSeed
                            ? v1::FINISH_REASON_LENGTH
                            : v1::FINISH_REASON_EOS);
    worker_.target.Send(std::move(event));
  });
  ASSERT_TRUE(Generate(request_).status.ok());
  EXPECT_EQ(Sum("nacre_requests_total", "finish_reason=\"length\""), 1);
}

class NarrowInferenceChoicesTest : public InferenceChoicesTest {
 protected:
  NarrowInferenceChoicesTest()
      : InferenceChoicesTest([](Dispatcher::Options* options) {
          options->max_running = 2;
          options->max_queue = 2;
        }) {}
};

TEST_F(NarrowInferenceChoicesTest, EachWaitsForRoomByItself) {
  Attach();
  Script([this](const v1::OpenTarget& open) { SayAll(open); });
  const ChoicesAnswer answer = Generate(request_);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.completes.size(), 4u);
}

TEST_F(NarrowInferenceChoicesTest, AFullQueueRefusesThemAll) {
  Attach();
  Script([this](const v1::OpenTarget& open) { Say(open, 0, "a", false); });
  // It keeps one place.
  v1::GenerateRequest other = request_;
  other.set_n(1);
  other.set_request_id("other");
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, other);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  for (int round = 0; round < 3; ++round) {
    const ChoicesAnswer answer = Generate(request_);
    EXPECT_EQ(dispatcher_.sessions().size(), 1u);
    EXPECT_TRUE(dispatcher_.queued().empty());
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(answer.status.error_message(),
              "the queue is full: 2 requests wait");
    EXPECT_TRUE(IsRefusedFor(rpc::FromGrpcStatus(answer.status), kQueueFull));
  }
  EXPECT_EQ(Sum("nacre_requests_total"), 3);
  // Observers hear of an end after the dispatcher has forgotten it.
  EXPECT_TRUE(
      Eventually([&] { return Sum("nacre_num_requests_waiting") == 0; }));
  context.TryCancel();
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(NarrowInferenceChoicesTest, MoreThanThereAreEverPlacesForNeverFit) {
  Attach();
  request_.set_n(5);
  const grpc::Status status = Generate(request_).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(IsRefusedFor(rpc::FromGrpcStatus(status), kNeverFits));
  EXPECT_THAT(status.error_message(), HasSubstr("5 choices come at once"));
}

// Every choice is held back by a client that does not read, and each goes on
// when it does.
TEST(InferenceChoicesPaceTest, AClientThatReadsLateGetsAllOfEach) {
  const ByteTokenizer tokenizer;
  Dispatcher dispatcher({.tokenizer = &tokenizer});
  RegistryService registry(&dispatcher, &tokenizer);
  InferenceService inference(&dispatcher, &tokenizer);
  const std::unique_ptr<rpc::RpcServer> server = *rpc::RpcServer::Start(
      {.listen = "127.0.0.1:0"}, {&registry, &inference});
  EndlessTarget target;
  ASSERT_TRUE(target.Attach(server->address()));

  // A small window: what is not read stays at the coordinator.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  const auto stub = v1::Inference::NewStub(grpc::CreateCustomChannel(
      server->address(), grpc::InsecureChannelCredentials(), arguments));
  constexpr int kTokens = 1000;
  v1::GenerateRequest request;
  request.set_text("hi");
  request.set_n(3);
  request.mutable_stop()->set_max_tokens(kTokens);
  request.mutable_output()->set_stream(true);
  // Every response repeats it: the window is soon full.
  request.set_request_id(std::string(250, 'a'));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  const auto reader = stub->Generate(&context, request);
  // Until nothing moves any more.
  int made = 0;
  int quiet_polls = 0;
  while (quiet_polls < 50) {
    absl::SleepFor(absl::Milliseconds(2));
    int sum = 0;
    for (const SessionStatus& session : dispatcher.sessions()) {
      sum += session.generated_tokens;
    }
    quiet_polls = sum > 0 && sum == made ? quiet_polls + 1 : 0;
    made = sum;
  }
  EXPECT_LT(made, 3 * kTokens);
  EXPECT_EQ(dispatcher.sessions().size(), 3u);

  std::map<uint32_t, int> tokens;
  int num_completes = 0;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    tokens[response.index()] += response.chunk().token_ids_size();
    num_completes += response.has_complete();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(num_completes, 3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(tokens[i], kTokens) << i;
  server->Shutdown(absl::ZeroDuration());
}

// --------------------------------------------------------------------- resume

class InferenceResumeTest : public InferenceChoicesTest {
 protected:
  // The choice i of a call says TextOf(kSeed + i), two tokens, then the rest:
  // where it is opened with some of them, what is left.
  void SayRest() {
    Script([this](const v1::OpenTarget& open) {
      const std::string text = TextOf(open.sampling().seed());
      const size_t done = open.token_ids_size() - open.prompt_length();
      Say(open, 0, text.substr(done), true);
    });
  }
  // A resume of a call of n choices.
  v1::GenerateRequest ResumeOf(const v1::Start& start, uint32_t n) {
    v1::GenerateRequest request = request_;
    request.set_n(n);
    request.set_request_id("again");
    *request.mutable_token_ids()->mutable_ids() = start.prompt_token_ids();
    request.mutable_sampling()->set_seed(start.seed());
    request.mutable_stop()->set_max_tokens(6);
    v1::Resume* resume = request.mutable_resume();
    resume->set_model_fingerprint(start.model_fingerprint());
    resume->set_numerics_id(start.numerics_id());
    for (uint32_t i = 0; i < n; ++i) resume->add_choices();
    return request;
  }
  static void Add(const std::string& text, v1::Resume::Choice* choice) {
    for (const int32_t id : Bytes(text)) choice->add_token_ids(id);
  }
  void ExpectStatus(const v1::GenerateRequest& request, grpc::StatusCode code,
                    const std::string& part) {
    const grpc::Status status = Generate(request).status;
    EXPECT_EQ(status.error_code(), code);
    EXPECT_THAT(status.error_message(), HasSubstr(part));
  }
};

TEST_F(InferenceResumeTest, TheFirstResponseHasWhatAResumeNeeds) {
  Attach();
  SayRest();
  for (const bool stream : {true, false}) {
    request_.mutable_output()->set_stream(stream);
    const ChoicesAnswer answer = Generate(request_);
    ASSERT_TRUE(answer.status.ok());
    EXPECT_TRUE(answer.starts_first);
    ASSERT_EQ(answer.starts.size(), 1u);
    const v1::Start& start = answer.starts[0];
    EXPECT_EQ(start.seed(), kSeed);
    EXPECT_EQ(start.numerics_id(), "fake");
    EXPECT_EQ(start.model_fingerprint(), dispatcher_.model()->fingerprint);
    EXPECT_EQ(std::vector<int32_t>(start.prompt_token_ids().begin(),
                                   start.prompt_token_ids().end()),
              *tokenizer_.Encode("hi", {}));
  }
}

// Choice 0 is done, 1 has ended but for its Complete, 2 goes on, 3 had not
// begun.
TEST_F(InferenceResumeTest, EachChoiceGoesOnFromWhereItWas) {
  Attach();
  SayRest();
  v1::GenerateRequest request = ResumeOf(Generate(request_).starts.at(0), 4);
  const double tokens = Sum("nacre_generation_tokens_total");
  v1::Resume* resume = request.mutable_resume();
  resume->mutable_choices(0)->set_done(true);
  Add(TextOf(kSeed + 1), resume->mutable_choices(1));
  Add(TextOf(kSeed + 2).substr(0, 3), resume->mutable_choices(2));
  const ChoicesAnswer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.starts_first);
  EXPECT_EQ(answer.completes.size(), 3u);
  EXPECT_EQ(answer.completes.count(0), 0u);
  for (uint32_t i = 1; i < 4; ++i) {
    const v1::Complete& complete = answer.completes.at(i);
    EXPECT_EQ(complete.text(), TextOf(kSeed + i));
    EXPECT_EQ(complete.seed(), kSeed + i);
    EXPECT_EQ(complete.finish_reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(complete.usage().completion_tokens(), 6u);
    EXPECT_EQ(complete.usage().prompt_tokens(), 3u);
    EXPECT_EQ(complete.numerics_id(), "fake");
  }
  EXPECT_EQ(answer.completes.at(1).first_index(), 6u);
  EXPECT_EQ(answer.completes.at(2).first_index(), 3u);
  EXPECT_EQ(answer.completes.at(3).first_index(), 0u);
  EXPECT_EQ(answer.chunks.count(1), 0u);
  EXPECT_EQ(answer.chunks.at(2).at(0).first_index(), 3u);
  EXPECT_EQ(answer.chunks.at(2).at(0).text(), TextOf(kSeed + 2).substr(3));
  EXPECT_EQ(answer.chunks.at(3).at(0).first_index(), 0u);
  // Only what is new counts.
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), tokens + 3 + 6);
  EXPECT_TRUE(Eventually([&] { return IsQuiet(); }));
}

// Its last Chunk came, its Complete did not: no worker is needed for it.
TEST_F(InferenceResumeTest, AnAnswerThatHasEndedIsCompletedAtOnce) {
  Attach();
  SayRest();
  v1::GenerateRequest request = ResumeOf(Generate(request_).starts.at(0), 1);
  Script([](const v1::OpenTarget&) { ADD_FAILURE() << "nothing is to run"; });
  Add(TextOf(kSeed), request.mutable_resume()->mutable_choices(0));
  const ChoicesAnswer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.num_responses, 1u);
  EXPECT_TRUE(answer.starts_first);
  EXPECT_EQ(answer.starts.at(0).numerics_id(), "fake");
  EXPECT_EQ(answer.completes.at(0).text(), TextOf(kSeed));
}

TEST_F(InferenceResumeTest, OnlyTheSameCheckpointAndKindGoOn) {
  Attach();
  SayRest();
  const v1::Start start = Generate(request_).starts.at(0);
  v1::GenerateRequest request = ResumeOf(start, 1);
  request.mutable_resume()->set_numerics_id("other");
  ExpectStatus(request, grpc::StatusCode::FAILED_PRECONDITION,
               "numerics_id \"other\"");
  request = ResumeOf(start, 1);
  request.mutable_resume()->set_model_fingerprint("other");
  ExpectStatus(request, grpc::StatusCode::FAILED_PRECONDITION,
               "fingerprint \"other\"");
  request = ResumeOf(start, 2);
  request.set_n(1);
  ExpectStatus(request, grpc::StatusCode::INVALID_ARGUMENT,
               "2 choices, must be n, 1");
}

// The old call may still run. It is the first choice that runs which must find
// the id free.
TEST_F(InferenceResumeTest, HasARequestIdOfItsOwn) {
  Attach();
  SayRest();
  const v1::Start start = Generate(request_).starts.at(0);
  std::atomic<int> opened = 0;
  Script([&](const v1::OpenTarget&) { ++opened; });
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto old = stub_->Generate(&context, request_);
  ASSERT_TRUE(Eventually([&] { return opened == 4; }));
  v1::GenerateRequest request = ResumeOf(start, 2);
  request.mutable_resume()->mutable_choices(0)->set_done(true);
  request.set_request_id("mine");
  ExpectStatus(request, grpc::StatusCode::ALREADY_EXISTS, "\"mine\"");
  context.TryCancel();
  EXPECT_FALSE(old->Finish().ok());
}

}  // namespace
}  // namespace nacre::coordinator
