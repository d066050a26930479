// Answers over several coordinators: calls that one does not take, and answers
// that are cut off.

#include "tools/generate/generation_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "tests/tools/fake_coordinator.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(10);

grpc::Status Gone() { return {grpc::StatusCode::UNAVAILABLE, "gone"}; }

// The next token of an answer of 'a', 'b', 'c', each with its number as its id.
v1::GenerateResponse Token(uint32_t number) {
  v1::GenerateResponse response;
  response.mutable_chunk()->set_first_index(number);
  response.mutable_chunk()->add_token_ids(number);
  response.mutable_chunk()->set_text(
      std::string(1, static_cast<char>('a' + number)));
  v1::Start* const start = response.mutable_start();
  start->set_seed(5);
  start->set_model_fingerprint("f");
  start->set_numerics_id("n");
  start->add_prompt_token_ids(7);
  return response;
}

// Coordinators that say a token a call. Every second call is lost before it
// says anything.
class Coordinators {
 public:
  Coordinators() {
    for (int i = 0; i < 2; ++i) {
      servers_.push_back(std::make_unique<FakeCoordinator>(
          [this](const v1::GenerateRequest& request, grpc::ServerContext*,
                 FakeCoordinator::Writer* writer) {
            return Answer(request, writer);
          }));
    }
  }

  std::string addresses() const {
    return absl::StrJoin(servers_, ",",
                         [](std::string* out, const auto& server) {
                           absl::StrAppend(out, server->address());
                         });
  }
  const std::string& first() const { return servers_[0]->address(); }
  int calls() const { return calls_; }
  void set_skips(bool skips) { skips_ = skips; }

 private:
  grpc::Status Answer(const v1::GenerateRequest& request,
                      FakeCoordinator::Writer* writer) {
    if (calls_++ % 2 == 1) return Gone();
    const bool is_rest = request.has_resume();
    EXPECT_EQ(is_rest, calls_ > 1);
    EXPECT_EQ(request.has_text(), !is_rest);
    if (is_rest) {
      EXPECT_EQ(request.token_ids().ids_size(), 1);
      EXPECT_EQ(request.sampling().seed(), 5u);
    }
    const auto came = static_cast<uint32_t>(
        is_rest ? request.resume().choices(0).token_ids_size() : 0);
    if (came == 3) {
      v1::GenerateResponse end;
      end.mutable_complete()->set_text("abc");
      writer->Write(end);
      return Gone();  // it is whole
    }
    writer->Write(Token(skips_ && is_rest ? came + 1 : came));
    return Gone();
  }

  std::atomic<int> calls_{0};
  std::atomic<bool> skips_{false};
  std::vector<std::unique_ptr<FakeCoordinator>> servers_;
};

v1::GenerateRequest Request() {
  v1::GenerateRequest request;
  request.set_text("prompt");
  request.mutable_sampling()->set_temperature(1.0f);
  return request;
}

TEST(GenerationClientTest, ACutAnswerGoesOnAtTheNextOfSeveral) {
  const Coordinators coordinators;
  GenerationClient client(coordinators.addresses());
  std::string streamed;
  const auto complete = client.Generate(
      Request(), kTimeout,
      [&](const v1::Chunk& chunk) { streamed += chunk.text(); });
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->text(), "abc");
  EXPECT_EQ(streamed, "abc");
  EXPECT_EQ(coordinators.calls(), 7);
}

TEST(GenerationClientTest, OneAloneIsNotAskedAgain) {
  const Coordinators coordinators;
  GenerationClient client(coordinators.first());
  EXPECT_EQ(client.Generate(Request(), kTimeout, [](const auto&) {}).status(),
            absl::UnavailableError("gone"));
  EXPECT_EQ(coordinators.calls(), 1);
}

// As where its connection has got too old meanwhile.
TEST(GenerationClientTest, OneThatSaidAllMayBeGone) {
  const FakeCoordinator coordinator([](const v1::GenerateRequest&,
                                       grpc::ServerContext*,
                                       FakeCoordinator::Writer* writer) {
    v1::Complete complete;
    complete.set_text("abc");
    FakeCoordinator::SendComplete(writer, complete);
    return Gone();
  });
  GenerationClient client(coordinator.address());
  const auto complete =
      client.Generate(Request(), kTimeout, [](const auto&) {});
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->text(), "abc");
}

TEST(GenerationClientTest, CommasAloneAreNoCoordinators) {
  const Coordinators coordinators;
  GenerationClient client(absl::StrCat(",", coordinators.first(), ", ,"));
  EXPECT_EQ(client.Generate(Request(), kTimeout, [](const auto&) {}).status(),
            absl::UnavailableError("gone"));
  EXPECT_EQ(coordinators.calls(), 1);
  GenerationClient none(",");
  EXPECT_FALSE(none.GetModel(kTimeout).ok());
}

TEST(GenerationClientTest, AnAnswerThatGoesOnAtAnotherTokenEnds) {
  Coordinators coordinators;
  coordinators.set_skips(true);
  GenerationClient client(coordinators.addresses());
  EXPECT_EQ(client.Generate(Request(), kTimeout, [](const auto&) {}).status(),
            absl::InternalError("the answer goes on at another token"));
}

TEST(GenerationClientTest, ARequestThatNoneTakesIsMadeThreeTimesMore) {
  absl::Mutex mu;
  std::vector<std::string> names;
  const auto refuse = [&](const v1::GenerateRequest& request, auto*, auto*) {
    absl::MutexLock lock(&mu);
    names.push_back(request.request_id());
    return Gone();
  };
  const FakeCoordinator first(refuse);
  const FakeCoordinator second(refuse);
  GenerationClient client(absl::StrCat(first.address(), ",", second.address()));
  v1::GenerateRequest request = Request();
  request.set_request_id("r");
  EXPECT_EQ(client.Generate(request, kTimeout, [](const auto&) {}).status(),
            absl::UnavailableError("gone"));
  // Each could still be known where the one before was asked.
  absl::MutexLock lock(&mu);
  EXPECT_EQ(names, std::vector<std::string>(
                       {"r", "r", "r-retry-1", "r-retry-2", "r-retry-3"}));
}

// The queue may be full for longer than a few tries.
TEST(GenerationClientTest, ACutAnswerWaitsForRoomInTheQueue) {
  std::atomic<int> calls{0};
  const auto is_full = [&](const v1::GenerateRequest&, auto*,
                           FakeCoordinator::Writer* writer) -> grpc::Status {
    const int call = calls++;
    if (call > 0 && call < 8) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    }
    writer->Write(Token(call == 0 ? 0 : 1));
    if (call == 0) return Gone();
    v1::GenerateResponse end;
    end.mutable_complete()->set_text("ab");
    writer->Write(end);
    return grpc::Status::OK;
  };
  const FakeCoordinator first(is_full);
  const FakeCoordinator second(is_full);
  GenerationClient client(absl::StrCat(first.address(), ",", second.address()));
  const auto complete =
      client.Generate(Request(), kTimeout, [](const v1::Chunk&) {});
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(calls, 9);
}

// A coordinator that has come back has yet to hear of some of its targets.
TEST(GenerationClientTest, ACutAnswerWaitsForATargetOfItsKind) {
  std::atomic<int> calls{0};
  const auto has_just_started =
      [&](const v1::GenerateRequest&, auto*,
          FakeCoordinator::Writer* writer) -> grpc::Status {
    const int call = calls++;
    if (call > 0 && call < 8) {
      return rpc::ToGrpcStatus(
          WithField(absl::FailedPreconditionError("another is there"),
                    "resume.numerics_id"));
    }
    writer->Write(Token(call == 0 ? 0 : 1));
    if (call == 0) return Gone();
    v1::GenerateResponse end;
    end.mutable_complete()->set_text("ab");
    writer->Write(end);
    return grpc::Status::OK;
  };
  const FakeCoordinator first(has_just_started);
  const FakeCoordinator second(has_just_started);
  GenerationClient client(absl::StrCat(first.address(), ",", second.address()));
  const auto complete =
      client.Generate(Request(), kTimeout, [](const v1::Chunk&) {});
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(calls, 9);
}

// No server listens on these ports.
constexpr char kNobody[] = "127.0.0.1:1,127.0.0.1:2";

TEST(GenerationClientTest, TheTimeoutEndsAWaitForACoordinator) {
  GenerationClient client(kNobody);
  const absl::Status status =
      client
          .Generate(Request(), absl::Milliseconds(500), [](const v1::Chunk&) {})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST(GenerationClientTest, AWaitForACoordinatorCanBeCancelled) {
  const auto refuse = [](const auto&, auto*, auto*) { return Gone(); };
  FakeCoordinator first(refuse);
  FakeCoordinator second(refuse);
  GenerationClient client(absl::StrCat(first.address(), ",", second.address()));
  for (FakeCoordinator* const each : {&first, &second}) {
    each->OnGetModel([&](grpc::ServerContext* context) {
      client.CancelAll();
      const absl::Time until = absl::Now() + absl::Minutes(1);
      while (!context->IsCancelled() && absl::Now() < until) {
        std::this_thread::yield();
      }
    });
  }
  const absl::Status status =
      client.Generate(Request(), kTimeout, [](const v1::Chunk&) {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace nacre::tools
