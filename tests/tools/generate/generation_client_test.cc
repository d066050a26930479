// Answers over several coordinators: calls that one does not take, and answers
// that are cut off.

#include "tools/generate/generation_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
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
  std::atomic<int> calls{0};
  const auto refuse = [&](const auto&, auto*, auto*) {
    ++calls;
    return Gone();
  };
  const FakeCoordinator first(refuse);
  const FakeCoordinator second(refuse);
  GenerationClient client(absl::StrCat(first.address(), ",", second.address()));
  EXPECT_EQ(client.Generate(Request(), kTimeout, [](const auto&) {}).status(),
            absl::UnavailableError("gone"));
  EXPECT_EQ(calls, 5);
}

// A coordinator that takes nothing.
class Away final : public v1::Inference::Service {
 public:
  explicit Away(std::function<void()> on_get_model = [] {})
      : on_get_model_(std::move(on_get_model)) {}

  // Of several that are the same.
  std::string addresses() const {
    return absl::StrCat(server_->address(), ",", server_->address());
  }

 private:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest*,
                        FakeCoordinator::Writer*) override {
    return Gone();
  }
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                        v1::Model*) override {
    on_get_model_();
    return Gone();
  }

  const std::function<void()> on_get_model_;
  const std::unique_ptr<rpc::RpcServer> server_ =
      *rpc::RpcServer::Start({}, {this});
};

TEST(GenerationClientTest, AWaitForACoordinatorCanBeCancelled) {
  std::atomic<GenerationClient*> asking{nullptr};
  const Away away([&asking] { asking.load()->CancelAll(); });
  GenerationClient client(away.addresses());
  asking = &client;
  EXPECT_EQ(client.Generate(Request(), kTimeout, [](const auto&) {}).status(),
            absl::CancelledError("cancelled"));
}

TEST(GenerationClientTest, AWaitForACoordinatorEndsInTime) {
  const Away away;
  GenerationClient client(away.addresses());
  const auto answer =
      client.Generate(Request(), absl::Milliseconds(300), [](const auto&) {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
}

}  // namespace
}  // namespace nacre::tools
