#include "gateway/inference_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "tests/gateway/fake_coordinator.h"

namespace nacre::gateway {
namespace {

InferenceClient::Options To(
    const std::vector<const FakeCoordinator*>& coordinators) {
  InferenceClient::Options options;
  for (const FakeCoordinator* coordinator : coordinators) {
    options.addresses.push_back(coordinator->address());
  }
  return options;
}

// The loop is busy while the responses come: each read has ended, and its end
// waits for the loop, when its call is cancelled.
TEST(InferenceClientTest, ACallCancelledAfterItsReadHasEndedEndsToo) {
  constexpr int kCalls = 8;
  absl::BlockingCounter written(kCalls);
  const FakeCoordinator coordinator([&](auto*, const auto&, auto* writer) {
    writer->Write(FakeCoordinator::Chunk("a", 0));
    written.DecrementCount();
    return grpc::Status::OK;
  });
  EventLoop loop;
  absl::BlockingCounter ended(kCalls);
  {
    InferenceClient client(To({&coordinator}), &loop);
    client.AwaitFirstAnswers(absl::Minutes(1));
    loop.Post([&] {
      std::vector<std::shared_ptr<GenerationCall>> calls;
      for (int i = 0; i < kCalls; ++i) {
        calls.push_back(client.Generate(
            {}, {},
            {nullptr, [&ended](const auto&) { ended.DecrementCount(); }}));
        calls.back()->Next();
      }
      written.Wait();
      // What has been written is read by the time another call is answered.
      const auto stub =
          v1::Inference::NewStub(rpc::CreateChannel(coordinator.address(), {}));
      for (int i = 0; i < 20; ++i) {
        grpc::ClientContext context;
        v1::Model model;
        EXPECT_TRUE(
            stub->GetModel(&context, v1::GetModelRequest(), &model).ok());
      }
      for (const auto& call : calls) call->Cancel();
    });
    ended.Wait();
  }
  loop.Stop();
}

TEST(InferenceClientTest, AClosedClientStartsNoCall) {
  const FakeCoordinator coordinator(
      [](auto*, const auto&, auto*) { return grpc::Status::OK; });
  EventLoop loop;
  InferenceClient client(To({&coordinator}), &loop);
  client.Close();
  client.Close();
  absl::Status status;
  absl::Notification done;
  loop.Post([&] {
    client
        .Generate({}, {},
                  {nullptr,
                   [&](const absl::Status& end) {
                     status = end;
                     done.Notify();
                   }})
        ->Next();
  });
  done.WaitForNotification();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

// Cuts off a call that never ends by itself.
TEST(InferenceClientTest, CloseEndsWhatRuns) {
  absl::Notification asked;
  const FakeCoordinator coordinator([&](auto* context, const auto&, auto*) {
    asked.Notify();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  });
  EventLoop loop;
  InferenceClient client(To({&coordinator}), &loop);
  absl::Status status;
  absl::Notification done;
  loop.Post([&] {
    client
        .Generate({}, {},
                  {nullptr,
                   [&](const absl::Status& end) {
                     status = end;
                     done.Notify();
                   }})
        ->Next();
  });
  asked.WaitForNotification();
  client.Close();
  done.WaitForNotification();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

// gRPC's word for a call that comes while its server closes.
TEST(InferenceClientTest, ACoordinatorThatClosesIsOneThatHasGone) {
  const auto closes = [](auto*, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED");
  };
  const auto answers = [](auto*, const auto&, auto* writer) {
    writer->Write(FakeCoordinator::Chunk("a", 0));
    return grpc::Status::OK;
  };
  const FakeCoordinator first(closes);
  for (const bool another : {true, false}) {
    const FakeCoordinator second(another ? FakeCoordinator::OnGenerate(answers)
                                         : FakeCoordinator::OnGenerate(closes));
    EventLoop loop;
    InferenceClient client(To({&first, &second}), &loop);
    client.AwaitFirstAnswers(absl::Minutes(1));
    for (int i = 0; i < 2; ++i) {  // in turn, so each is the first once
      absl::Status status;
      absl::Notification done;
      std::shared_ptr<GenerationCall> call;
      loop.Post([&] {
        call = client.Generate({}, {},
                               {[&](auto) { call->Next(); },
                                [&](const absl::Status& end) {
                                  status = end;
                                  done.Notify();
                                }});
        call->Next();
      });
      done.WaitForNotification();
      EXPECT_EQ(status.code(), another ? absl::StatusCode::kOk
                                       : absl::StatusCode::kUnavailable)
          << status;
    }
  }
}

// Without its start it cannot be resumed, and what has been said must not be
// said again.
TEST(InferenceClientTest, AnAnswerWithoutAStartEndsWithItsCoordinator) {
  std::atomic<int> asked{0};
  const auto breaks_off = [&](auto*, const auto&, auto* writer) {
    ++asked;
    writer->Write(FakeCoordinator::Chunk("a", 0));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  };
  const FakeCoordinator first(breaks_off);
  const FakeCoordinator second(breaks_off);
  EventLoop loop;
  InferenceClient client(To({&first, &second}), &loop);
  client.AwaitFirstAnswers(absl::Minutes(1));
  int responses = 0;
  absl::Status status;
  absl::Notification done;
  std::shared_ptr<GenerationCall> call;
  loop.Post([&] {
    call = client.Generate({}, {},
                           {[&](auto) {
                              ++responses;
                              call->Next();
                            },
                            [&](const absl::Status& end) {
                              status = end;
                              done.Notify();
                            }});
    call->Next();
  });
  done.WaitForNotification();
  EXPECT_EQ(status, absl::UnavailableError("gone"));
  EXPECT_EQ(responses, 1);
  EXPECT_EQ(asked, 1);
}

// Says a token of an answer, and that it is cut; with a resume what follows.
FakeCoordinator::OnGenerate CutsAfterEachToken(std::atomic<int>* asked,
                                               int last) {
  return [asked, last](auto*, const v1::GenerateRequest& request,
                       auto* writer) -> grpc::Status {
    const int have = request.resume().choices_size() == 0
                         ? 0
                         : request.resume().choices(0).token_ids_size();
    EXPECT_EQ(have, (*asked)++);
    v1::GenerateResponse response = FakeCoordinator::Chunk("a", 0);
    response.mutable_start()->set_seed(7);
    response.mutable_start()->set_model_fingerprint("f");
    response.mutable_start()->set_numerics_id("n");
    response.mutable_chunk()->set_first_index(static_cast<uint32_t>(have));
    writer->Write(response);
    if (have + 1 < last) return {grpc::StatusCode::UNAVAILABLE, "gone"};
    writer->Write(FakeCoordinator::Complete("", 0));
    return grpc::Status::OK;
  };
}

struct Collected {
  std::string text;
  int completes = 0;
  absl::Status status;
};

Collected Collect(InferenceClient* client, EventLoop* loop) {
  Collected collected;
  absl::Notification done;
  std::shared_ptr<GenerationCall> call;
  loop->Post([&] {
    call = client->Generate({}, {},
                            {[&](const v1::GenerateResponse& response) {
                               collected.text += response.chunk().text();
                               collected.completes += response.has_complete();
                               call->Next();
                             },
                             [&](const absl::Status& end) {
                               collected.status = end;
                               done.Notify();
                             }});
    call->Next();
  });
  done.WaitForNotification();
  return collected;
}

TEST(InferenceClientTest, ACutAnswerGoesOnElsewhere) {
  for (const bool alone : {false, true}) {
    std::atomic<int> asked{0};
    const FakeCoordinator first(CutsAfterEachToken(&asked, 6));
    const FakeCoordinator second(CutsAfterEachToken(&asked, 6));
    InferenceClient::Options options =
        alone ? To({&first}) : To({&first, &second});
    options.resume_delay = absl::Milliseconds(1);
    EventLoop loop;
    InferenceClient client(std::move(options), &loop);
    client.AwaitFirstAnswers(absl::Minutes(1));
    const Collected collected = Collect(&client, &loop);
    EXPECT_TRUE(collected.status.ok()) << collected.status;
    EXPECT_EQ(collected.text, "aaaaaa");
    EXPECT_EQ(collected.completes, 1);
    EXPECT_EQ(asked, 6);
  }
}

// It may be the request that kills them.
TEST(InferenceClientTest, AnAnswerThatGetsNoFurtherEnds) {
  std::atomic<int> asked{0};
  const FakeCoordinator coordinator([&](auto*,
                                        const v1::GenerateRequest& request,
                                        auto* writer) -> grpc::Status {
    ++asked;
    if (!request.has_resume()) {
      v1::GenerateResponse response = FakeCoordinator::Chunk("a", 0);
      response.mutable_start()->set_numerics_id("n");
      writer->Write(response);
    }
    return {grpc::StatusCode::UNAVAILABLE, "gone"};
  });
  InferenceClient::Options options = To({&coordinator});
  options.resume_delay = absl::Milliseconds(1);
  EventLoop loop;
  InferenceClient client(std::move(options), &loop);
  client.AwaitFirstAnswers(absl::Minutes(1));
  const Collected collected = Collect(&client, &loop);
  EXPECT_TRUE(absl::IsUnavailable(collected.status)) << collected.status;
  EXPECT_EQ(collected.text, "a");
  EXPECT_EQ(asked, 1 + InferenceClient::kMaxResumes);
}

// The first takes half a second of ten and refuses: the second has what is
// left.
TEST(InferenceClientTest, ADeadlineIsThatOfAllAttempts) {
  constexpr absl::Duration kTimeout = absl::Seconds(10);
  constexpr absl::Duration kLeft = absl::Milliseconds(9500);
  std::atomic<int> asked{0};
  absl::Duration left;
  const auto answer = [&](grpc::ServerContext* context, const auto&, auto*) {
    const absl::Time deadline = absl::FromChrono(context->deadline());
    if (asked++ == 0) {
      while (deadline - absl::Now() > kLeft) std::this_thread::yield();
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "full");
    }
    left = deadline - absl::Now();
    return grpc::Status::OK;
  };
  const FakeCoordinator first(answer);
  const FakeCoordinator second(answer);
  InferenceClient::Options options = To({&first, &second});
  options.request_timeout = kTimeout;
  EventLoop loop;
  InferenceClient client(std::move(options), &loop);
  absl::Status status;
  absl::Notification done;
  loop.Post([&] {
    client
        .Generate({}, {},
                  {nullptr,
                   [&](const absl::Status& end) {
                     status = end;
                     done.Notify();
                   }})
        ->Next();
  });
  done.WaitForNotification();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(asked, 2);
  // gRPC rounds what is left up, by less than this.
  EXPECT_LT(left, kLeft + absl::Milliseconds(200));
}

}  // namespace
}  // namespace nacre::gateway
