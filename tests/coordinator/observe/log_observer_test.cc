#include "coordinator/observe/log_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/json.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

class LogObserverTest : public ::testing::Test {
 protected:
  struct Line {
    spdlog::level::level_enum level;
    std::string message;
    Json fields;
  };

  static RequestSpec Request() {
    RequestSpec request;
    request.request_id = "mine";
    request.prompt_ids = {31337, 31338};
    request.stop = {"secret stop"};
    request.method = speculation::Method::kPearl;
    return request;
  }

  std::vector<Line> lines_;
  LogObserver observer_{[this](spdlog::level::level_enum level,
                               const std::string& message, const Json& fields) {
    lines_.push_back({level, message, fields});
  }};
};

TEST_F(LogObserverTest, ARequestsLifeWithoutWhatWasSaid) {
  observer_.OnQueued(Request(), 3);
  observer_.OnStarted(1, Request(), {"target:1", "draft:1"}, 250'000'000);
  observer_.OnMoved(1, {"target:1", ""});
  Completion completion;
  completion.finish = Finish::kStop;
  completion.text = "secret text";
  completion.stop_match = "secret stop";
  completion.token_ids = {41337, 41338, 41339};
  completion.cached_tokens = 1;
  completion.total_ns = 2'000'000'000;
  completion.time_to_first_token_ns = 500'000'000;
  completion.stats.rounds = 2;
  completion.stats.verified = 4;
  completion.stats.accepted = 1;
  observer_.OnFinished(1, Request(), absl::OkStatus(), &completion);
  observer_.OnAnswered("mine", absl::OkStatus(), Finish::kStop);

  ASSERT_EQ(lines_.size(), 4u);
  for (const Line& line : lines_) {
    EXPECT_EQ(line.fields["request_id"], "mine") << line.message;
    for (const char* secret : {"secret", "31337", "41337"}) {
      EXPECT_THAT(line.fields.dump(), Not(HasSubstr(secret))) << line.message;
    }
  }
  EXPECT_EQ(lines_[0].message, "request queued");
  EXPECT_EQ(lines_[0].fields["position"], 3);
  EXPECT_EQ(lines_[1].fields["draft"], "draft:1");
  EXPECT_EQ(lines_[2].level, spdlog::level::debug);
  const Line& finished = lines_[3];
  EXPECT_EQ(finished.level, spdlog::level::info);
  EXPECT_EQ(finished.message, "request finished");
  EXPECT_EQ(finished.fields["finish_reason"], "stop");
  EXPECT_EQ(finished.fields["method"], "pearl");
  EXPECT_EQ(finished.fields["prompt_tokens"], 2);
  EXPECT_EQ(finished.fields["cached_tokens"], 1);
  EXPECT_EQ(finished.fields["generation_tokens"], 3);
  EXPECT_EQ(finished.fields["accepted"], 1);
  EXPECT_EQ(finished.fields["queue_s"], 0.25);
  EXPECT_EQ(finished.fields["ttft_s"], 0.5);
  EXPECT_EQ(finished.fields["draft"], "");
}

TEST_F(LogObserverTest, AChoiceSaysWhichItIs) {
  RequestSpec request = Request();
  request.num_choices = 3;
  request.choice = 2;
  observer_.OnQueued(request, 0);
  observer_.OnStarted(1, request, {"target:1", ""}, 0);
  observer_.OnMoved(1, {"target:2", ""});
  const Completion completion;
  observer_.OnFinished(1, request, absl::OkStatus(), &completion);
  // The only one of a request is not numbered.
  observer_.OnQueued(Request(), 0);
  ASSERT_EQ(lines_.size(), 5u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(lines_[i].fields["request_id"], "mine") << lines_[i].message;
    EXPECT_EQ(lines_[i].fields["choice"], 2) << lines_[i].message;
  }
  EXPECT_FALSE(lines_[4].fields.contains("choice"));
}

TEST_F(LogObserverTest, AFailureIsOneLine) {
  observer_.OnStarted(1, Request(), {"target:1", ""}, 0);
  lines_.clear();
  const absl::Status lost = absl::UnavailableError("target:1 was lost");
  observer_.OnFinished(1, Request(), lost, nullptr);
  observer_.OnAnswered("mine", lost, absl::nullopt);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].level, spdlog::level::warn);
  EXPECT_EQ(lines_[0].message, "request failed");
  EXPECT_EQ(lines_[0].fields["request_id"], "mine");
  EXPECT_EQ(lines_[0].fields["status"], "UNAVAILABLE");
  EXPECT_EQ(lines_[0].fields["error"], "target:1 was lost");
}

TEST_F(LogObserverTest, WhatAClientSentIsNotRepeated) {
  observer_.OnAnswered(std::string(300, 'i'),
                       absl::InvalidArgumentError("stop token id 31337"),
                       absl::nullopt);
  observer_.OnAnswered("b", absl::NotFoundError("model \"secret\""),
                       absl::nullopt);
  observer_.OnAnswered("c", absl::CancelledError("by the client"),
                       absl::nullopt);
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_EQ(lines_[0].fields["request_id"], std::string(256, 'i'));
  EXPECT_EQ(lines_[0].level, spdlog::level::info);
  EXPECT_FALSE(lines_[0].fields.contains("error"));
  EXPECT_FALSE(lines_[1].fields.contains("error"));
  EXPECT_EQ(lines_[2].fields["error"], "by the client");
}

TEST_F(LogObserverTest, EachNumberIsInItsField) {
  RequestSpec request = Request();
  request.max_tokens = 9;
  observer_.OnStarted(1, request, {"target:1", "draft:1"}, 0);
  Completion completion;
  completion.finish = Finish::kEos;
  completion.policy = "fixed";
  completion.total_ns = 2'500'000'000;
  completion.stats.rounds = 2;
  completion.stats.drafted = 7;
  completion.stats.verified = 4;
  completion.stats.accepted = 1;
  completion.stats.degraded_rounds = 3;
  observer_.OnFinished(1, request, absl::OkStatus(), &completion);
  observer_.OnFinished(1, request, absl::OkStatus(), &completion);  // again
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].level, spdlog::level::debug);
  EXPECT_EQ(lines_[0].message, "request started");
  EXPECT_EQ(lines_[0].fields["method"], "pearl");
  EXPECT_EQ(lines_[0].fields["prompt_tokens"], 2);
  EXPECT_EQ(lines_[0].fields["max_tokens"], 9);
  EXPECT_EQ(lines_[0].fields["target"], "target:1");
  const Json& finished = lines_[1].fields;
  EXPECT_EQ(finished["finish_reason"], "eos");
  EXPECT_EQ(finished["policy"], "fixed");
  EXPECT_EQ(finished["rounds"], 2);
  EXPECT_EQ(finished["drafted"], 7);
  EXPECT_EQ(finished["verified"], 4);
  EXPECT_EQ(finished["degraded_rounds"], 3);
  EXPECT_EQ(finished["total_s"], 2.5);
  EXPECT_EQ(finished["target"], "target:1");
  EXPECT_EQ(finished["draft"], "draft:1");
}

TEST_F(LogObserverTest, WhatIsTheServersFaultIsAWarning) {
  using Code = absl::StatusCode;
  const auto logged = [this](Code code) {
    observer_.OnAnswered("r", absl::Status(code, "why"), absl::nullopt);
    return lines_.back();
  };
  for (const Code code :
       {Code::kUnavailable, Code::kResourceExhausted, Code::kAborted,
        Code::kInternal, Code::kDataLoss, Code::kUnknown}) {
    EXPECT_EQ(logged(code).level, spdlog::level::warn)
        << absl::StatusCodeToString(code);
    EXPECT_EQ(logged(code).fields["error"], "why")
        << absl::StatusCodeToString(code);
  }
  for (const Code code : {Code::kCancelled, Code::kDeadlineExceeded}) {
    EXPECT_EQ(logged(code).level, spdlog::level::info)
        << absl::StatusCodeToString(code);
    EXPECT_EQ(logged(code).fields["error"], "why")
        << absl::StatusCodeToString(code);
  }
  for (const Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kAlreadyExists,
        Code::kFailedPrecondition, Code::kUnauthenticated,
        Code::kPermissionDenied, Code::kOutOfRange, Code::kUnimplemented}) {
    EXPECT_EQ(logged(code).level, spdlog::level::info)
        << absl::StatusCodeToString(code);
    EXPECT_FALSE(logged(code).fields.contains("error"))
        << absl::StatusCodeToString(code);
  }
}

}  // namespace
}  // namespace nacre::coordinator
