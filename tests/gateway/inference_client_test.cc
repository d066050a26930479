#include "gateway/inference_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
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
    InferenceClient::Options options = To({&first, &second});
    options.resume_timeout = absl::ZeroDuration();
    InferenceClient client(std::move(options), &loop);
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

// Coordinators that say "a" or what `rest` has, and are gone then.
FakeCoordinator::OnGenerate Cuts(std::atomic<int>* calls, int cuts) {
  return [calls, cuts](auto*, const v1::GenerateRequest& request,
                       auto* writer) -> grpc::Status {
    const int call = (*calls)++;
    const v1::Resume& resume = request.resume();
    EXPECT_EQ(resume.choices_size(), call == 0 ? 0 : 1);
    const int came = call == 0 ? 0 : resume.choices(0).token_ids_size();
    v1::GenerateResponse response =
        FakeCoordinator::Chunk(std::string(1, static_cast<char>('a' + came)), 0,
                               static_cast<uint32_t>(came));
    response.mutable_start()->set_seed(5);
    response.mutable_start()->set_model_fingerprint("f");
    response.mutable_start()->set_numerics_id("n");
    // Every second one has gone before it says anything.
    if (call % 2 == 0) writer->Write(response);
    if (call < cuts) return {grpc::StatusCode::UNAVAILABLE, "gone"};
    writer->Write(FakeCoordinator::Complete(
        "", 0, static_cast<uint32_t>(came + (call % 2 == 0 ? 1 : 0))));
    return grpc::Status::OK;
  };
}

struct Said {
  std::string text;
  absl::Status status;
};

Said Ask(InferenceClient* client, EventLoop* loop,
         const std::string& request_id = "") {
  Said said;
  absl::Notification done;
  std::shared_ptr<GenerationCall> call;
  loop->Post([&] {
    v1::GenerateRequest request;
    request.set_request_id(request_id);
    request.mutable_sampling()->set_temperature(1.0f);
    request.mutable_output()->set_stream(true);
    call = client->Generate(request, {},
                            {[&](const v1::GenerateResponse& response) {
                               said.text += response.chunk().text();
                               call->Next();
                             },
                             [&](const absl::Status& status) {
                               said.status = status;
                               done.Notify();
                             }});
    call->Next();
  });
  done.WaitForNotification();
  return said;
}

// On another one, or on the same once it is there again.
TEST(InferenceClientTest, ACutAnswerGoesOn) {
  for (const int coordinators : {1, 2}) {
    std::atomic<int> calls{0};
    const FakeCoordinator first(Cuts(&calls, 6));
    const FakeCoordinator second(Cuts(&calls, 6));
    EventLoop loop;
    InferenceClient::Options options =
        coordinators == 1 ? To({&first}) : To({&first, &second});
    options.poll_period = options.resume_period = absl::Milliseconds(1);
    std::atomic<int> resumes{0};
    options.on_further_call = [&](InferenceClient::FurtherCall kind) {
      EXPECT_EQ(kind, InferenceClient::FurtherCall::kResume);
      ++resumes;
    };
    InferenceClient client(std::move(options), &loop);
    client.AwaitFirstAnswers(absl::Minutes(1));
    const Said said = Ask(&client, &loop);
    EXPECT_TRUE(said.status.ok()) << said.status;
    EXPECT_EQ(said.text, "abcd");
    EXPECT_EQ(calls, 7);
    EXPECT_EQ(resumes, 6);
  }
}

// One that no coordinator takes, until one does.
TEST(InferenceClientTest, ARequestOfWhichNothingCameIsTriedAgain) {
  for (const int coordinators : {1, 2}) {
    for (const bool is_taken : {true, false}) {
      // Once at each and three times more.
      const int most_calls = coordinators + 3;
      absl::Mutex mu;
      std::vector<std::string> names;
      const auto refuses_at_first = [&](auto*, const auto& request,
                                        auto* writer) {
        absl::MutexLock lock(&mu);
        names.push_back(request.request_id());
        EXPECT_FALSE(request.has_resume());
        if (!is_taken || static_cast<int>(names.size()) < most_calls) {
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
        }
        writer->Write(FakeCoordinator::Chunk("a", 0));
        writer->Write(FakeCoordinator::Complete("", 0));
        return grpc::Status::OK;
      };
      const FakeCoordinator first(refuses_at_first);
      const FakeCoordinator second(refuses_at_first);
      std::atomic<int> retries{0};
      EventLoop loop;
      InferenceClient::Options options =
          coordinators == 1 ? To({&first}) : To({&first, &second});
      options.poll_period = options.resume_period = absl::Milliseconds(1);
      options.resume_timeout = absl::Minutes(10);
      options.on_further_call = [&](InferenceClient::FurtherCall kind) {
        EXPECT_EQ(kind, InferenceClient::FurtherCall::kRetry);
        ++retries;
      };
      InferenceClient client(std::move(options), &loop);
      client.AwaitFirstAnswers(absl::Minutes(1));
      const Said said = Ask(&client, &loop, "r");
      EXPECT_EQ(said.status,
                is_taken ? absl::OkStatus() : absl::UnavailableError("gone"));
      EXPECT_EQ(said.text, is_taken ? "a" : "");
      EXPECT_EQ(retries, most_calls - 1);
      std::vector<std::string> expected(coordinators, "r");
      // Each could still be known where the one before was asked.
      for (int i = 1; i <= 3; ++i) {
        expected.push_back(absl::StrCat("r-retry-", i));
      }
      absl::MutexLock lock(&mu);
      EXPECT_EQ(names, expected);
    }
  }
}

// One that drains is not asked in vain until there is another.
TEST(InferenceClientTest, ARequestWaitsForTheEndOfADrain) {
  std::unique_ptr<FakeCoordinator> only;
  std::atomic<int> calls{0};
  only =
      std::make_unique<FakeCoordinator>([&](auto*, const auto&, auto* writer) {
        if (calls++ == 0) only->Drain(20);
        if (only->is_draining()) {
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
        }
        writer->Write(FakeCoordinator::Chunk("a", 0));
        writer->Write(FakeCoordinator::Complete("", 0));
        return grpc::Status::OK;
      });
  EventLoop loop;
  InferenceClient::Options options = To({only.get()});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  options.resume_timeout = absl::Minutes(10);
  InferenceClient client(std::move(options), &loop);
  client.AwaitFirstAnswers(absl::Minutes(1));
  const Said said = Ask(&client, &loop);
  EXPECT_TRUE(said.status.ok()) << said.status;
  EXPECT_EQ(said.text, "a");
  // One more where the answer to an earlier question came late.
  EXPECT_LE(calls, 3);
}

// The deadline of a request also ends its wait for a coordinator.
TEST(InferenceClientTest, ADeadlineEndsTheWaitForACoordinator) {
  const FakeCoordinator gone([](auto*, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  EventLoop loop;
  InferenceClient::Options options = To({&gone});
  options.request_timeout = absl::Milliseconds(100);
  options.resume_timeout = options.poll_period = absl::Minutes(1);
  InferenceClient client(std::move(options), &loop);
  const absl::Status status = Ask(&client, &loop).status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// What may be gone on with.
v1::GenerateResponse FirstChunk() {
  v1::GenerateResponse response = FakeCoordinator::Chunk("a", 0);
  response.mutable_start()->set_seed(5);
  return response;
}

// The queue may be full for longer than a few tries.
TEST(InferenceClientTest, ACutAnswerWaitsForRoomInTheQueue) {
  std::atomic<int> calls{0};
  const FakeCoordinator full([&](auto*, const auto& request, auto* writer) {
    const int call = calls++;
    if (call == 0) {
      writer->Write(FirstChunk());
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    }
    EXPECT_EQ(request.resume().choices_size(), 1);
    if (call < 8) {
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
    }
    writer->Write(FakeCoordinator::Chunk("b", 0, 1));
    writer->Write(FakeCoordinator::Complete("", 0, 2));
    return grpc::Status::OK;
  });
  const FakeCoordinator always_full(
      [](auto*, const auto& request, auto* writer) {
        if (!request.has_resume()) writer->Write(FirstChunk());
        return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
      });
  EventLoop loop;
  InferenceClient::Options options = To({&full});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  {
    InferenceClient client(options, &loop);
    const Said said = Ask(&client, &loop);
    EXPECT_TRUE(said.status.ok()) << said.status;
    EXPECT_EQ(said.text, "ab");
    EXPECT_EQ(calls, 9);
  }
  options.addresses = {always_full.address()};
  options.resume_timeout = absl::Milliseconds(20);
  InferenceClient client(options, &loop);
  EXPECT_EQ(Ask(&client, &loop).status, absl::ResourceExhaustedError("full"));
}

TEST(InferenceClientTest, AnAnswerThatGoesOnAtAnotherTokenEnds) {
  std::atomic<int> calls{0};
  const FakeCoordinator forgets(
      [&](grpc::ServerContext* context, const auto&, auto* writer) {
        const int call = calls++;
        writer->Write(FirstChunk());
        if (call == 0) {
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
        }
        const absl::Time until = absl::Now() + absl::Minutes(1);
        while (!context->IsCancelled() && absl::Now() < until) {
          std::this_thread::yield();
        }
        EXPECT_TRUE(context->IsCancelled());
        return grpc::Status::CANCELLED;
      });
  EventLoop loop;
  InferenceClient::Options options = To({&forgets});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  {
    InferenceClient client(options, &loop);
    const Said said = Ask(&client, &loop);
    EXPECT_EQ(said.status,
              absl::InternalError(
                  "the answer leaves out tokens, or says some twice"));
    EXPECT_EQ(said.text, "a");
  }
  EXPECT_EQ(calls, 2);
}

TEST(InferenceClientTest, AnAnswerThatLacksTokensEnds) {
  const FakeCoordinator leaves_out([](auto*, const auto&, auto* writer) {
    writer->Write(FakeCoordinator::Chunk("a", 0));
    writer->Write(FakeCoordinator::Complete("", 0, /*tokens=*/2));
    return grpc::Status::OK;
  });
  EventLoop loop;
  InferenceClient client(To({&leaves_out}), &loop);
  const Said said = Ask(&client, &loop);
  EXPECT_EQ(
      said.status,
      absl::InternalError("the answer leaves out tokens, or says some twice"));
  EXPECT_EQ(said.text, "a");
}

// Of a resume that finds no target of this kind: `field` is at fault.
grpc::Status NoSuchTarget(const char* field) {
  return rpc::ToGrpcStatus(
      WithField(absl::FailedPreconditionError("another is there"), field));
}

// A coordinator that has come back has yet to hear of some of its targets.
TEST(InferenceClientTest, ACutAnswerWaitsForATargetOfItsKind) {
  std::atomic<int> calls{0};
  const FakeCoordinator returns([&](auto*, const auto&, auto* writer) {
    const int call = calls++;
    if (call == 0) {
      writer->Write(FirstChunk());
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    }
    if (call < 8) return NoSuchTarget("resume.numerics_id");
    writer->Write(FakeCoordinator::Chunk("b", 0, 1));
    writer->Write(FakeCoordinator::Complete("", 0, 2));
    return grpc::Status::OK;
  });
  EventLoop loop;
  InferenceClient::Options options = To({&returns});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  options.resume_timeout = absl::Minutes(10);
  InferenceClient client(options, &loop);
  const Said said = Ask(&client, &loop);
  EXPECT_TRUE(said.status.ok()) << said.status;
  EXPECT_EQ(said.text, "ab");
  EXPECT_EQ(calls, 9);
}

// One that serves another checkpoint does not come to serve this one.
TEST(InferenceClientTest, ACutAnswerDoesNotWaitForItsCheckpointOrInVain) {
  for (const char* field : {"resume.model_fingerprint", "resume.numerics_id"}) {
    const bool waits = field == std::string("resume.numerics_id");
    absl::Duration timeout =
        waits ? absl::Milliseconds(20) : absl::InfiniteDuration();
    std::atomic<int> calls{0};
    Said said;
    do {
      calls = 0;
      const FakeCoordinator changed([&](auto*, const auto&, auto* writer) {
        if (calls++ > 0) return NoSuchTarget(field);
        writer->Write(FirstChunk());
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
      });
      EventLoop loop;
      InferenceClient::Options options = To({&changed});
      options.poll_period = options.resume_period = absl::Milliseconds(1);
      options.resume_timeout = timeout;
      InferenceClient client(options, &loop);
      said = Ask(&client, &loop);
      // On a busy machine the time may end before the second call.
      timeout *= 2;
    } while (waits && calls == 1 && timeout < absl::Minutes(1));
    EXPECT_EQ(said.status, rpc::FromGrpcStatus(NoSuchTarget(field)));
    EXPECT_EQ(said.text, "a");
    if (!waits) {
      EXPECT_EQ(calls, 2);
    }
  }
}

grpc::Status NeverFits() {
  return rpc::ToGrpcStatus(WithRefusal(
      absl::ResourceExhaustedError("more than any target has"), {kNeverFits}));
}

// It may have waited in the queue of the one that has gone. One that has just
// started does not know all its targets.
TEST(InferenceClientTest, ARequestThatLostItsCoordinatorWaitsForAPlace) {
  std::atomic<int> calls{0};
  const FakeCoordinator returns([&](auto*, const auto&, auto* writer) {
    const int call = calls++;
    if (call == 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    if (call < 8) {
      return call % 2 == 0 ? FakeCoordinator::QueueFull() : NeverFits();
    }
    writer->Write(FakeCoordinator::Chunk("a", 0));
    writer->Write(FakeCoordinator::Complete("", 0));
    return grpc::Status::OK;
  });
  EventLoop loop;
  InferenceClient::Options options = To({&returns});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  options.resume_timeout = absl::Minutes(10);
  InferenceClient client(options, &loop);
  const Said said = Ask(&client, &loop);
  EXPECT_TRUE(said.status.ok()) << said.status;
  EXPECT_EQ(said.text, "a");
  EXPECT_EQ(calls, 9);
}

TEST(InferenceClientTest, ARefusalEndsARequestThatLostNoCoordinator) {
  for (const grpc::Status& refusal :
       {FakeCoordinator::QueueFull(), NeverFits()}) {
    std::atomic<int> calls{0};
    const FakeCoordinator refuses([&](auto*, const auto&, auto*) {
      ++calls;
      return refusal;
    });
    EventLoop loop;
    InferenceClient::Options options = To({&refuses});
    options.resume_timeout = absl::Minutes(10);
    InferenceClient client(options, &loop);
    EXPECT_EQ(Ask(&client, &loop).status, rpc::FromGrpcStatus(refusal));
    EXPECT_EQ(calls, 1);
  }
}

// Nor does one wait for ever, whatever the reason.
TEST(InferenceClientTest, ARequestThatLostItsCoordinatorDoesNotWaitInVain) {
  for (const grpc::Status& refusal :
       {FakeCoordinator::QueueFull(), NeverFits()}) {
    std::atomic<int> calls{0};
    const auto refuses = [&](auto*, const auto&, auto*) {
      if (calls++ == 0) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
      }
      return refusal;
    };
    const FakeCoordinator first(refuses);
    const FakeCoordinator second(refuses);
    EventLoop loop;
    InferenceClient::Options options = To({&first, &second});
    options.poll_period = options.resume_period = absl::Milliseconds(1);
    options.resume_timeout = absl::Milliseconds(20);
    InferenceClient client(options, &loop);
    EXPECT_EQ(Ask(&client, &loop).status, rpc::FromGrpcStatus(refusal));
  }
}

TEST(InferenceClientTest, ACutAnswerEndsWhereNobodyGoesOnWithIt) {
  std::atomic<int> calls{0};
  const FakeCoordinator refuses([&](auto*, const auto&, auto* writer) {
    v1::GenerateResponse response = FakeCoordinator::Chunk("a", 0);
    response.mutable_start()->set_seed(5);
    if (calls++ == 0) writer->Write(response);
    return calls == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")
                      : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no");
  });
  std::atomic<int> gone_calls{0};
  const FakeCoordinator gone([&](auto*, const auto&, auto* writer) {
    v1::GenerateResponse response = FakeCoordinator::Chunk("a", 0);
    response.mutable_start()->set_seed(5);
    if (gone_calls++ == 0) writer->Write(response);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  EventLoop loop;
  InferenceClient::Options to_refusing = To({&refuses});
  to_refusing.poll_period = to_refusing.resume_period = absl::Milliseconds(1);
  {
    InferenceClient client(to_refusing, &loop);
    const Said said = Ask(&client, &loop);
    EXPECT_EQ(said.status, absl::InvalidArgumentError("no"));
    EXPECT_EQ(said.text, "a");
    EXPECT_EQ(calls, 2);
  }
  InferenceClient::Options options = To({&gone});
  options.poll_period = options.resume_period = absl::Milliseconds(1);
  {
    // Its coordinators do not all have to end of it.
    InferenceClient client(options, &loop);
    EXPECT_EQ(Ask(&client, &loop).status, absl::UnavailableError("gone"));
    EXPECT_EQ(gone_calls, 4);
  }
  gone_calls = 0;
  options.resume_timeout = absl::ZeroDuration();
  InferenceClient client(options, &loop);
  EXPECT_EQ(Ask(&client, &loop).status, absl::UnavailableError("gone"));
  EXPECT_EQ(gone_calls, 1);
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
