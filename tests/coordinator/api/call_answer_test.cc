#include "coordinator/api/call_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A front end without any protocol: its client takes what a test lets it take.
class PlainWriter final : public AnswerWriter {
 public:
  void Write(const AnswerPart& part) override {
    absl::MutexLock lock(&mu_);
    const std::string name = absl::StrCat(part.request_id, "/", part.choice);
    parts_.push_back(
        part.chunk != nullptr
            ? absl::StrCat(name, " ", part.chunk->text)
            : absl::StrCat(name, " complete: ", part.completion->text));
  }
  void Finish(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    EXPECT_FALSE(end_.has_value());
    end_ = status;
  }
  void Abandon() override {
    absl::MutexLock lock(&mu_);
    abandoned_ = true;
  }
  void SetTimer(int64_t at_ns, std::function<void()> on_time) override {
    absl::MutexLock lock(&mu_);
    timer_ns_ = at_ns;
    on_time_ = std::move(on_time);
  }

  std::vector<std::string> parts() const {
    absl::MutexLock lock(&mu_);
    return parts_;
  }
  absl::optional<absl::Status> end() const {
    absl::MutexLock lock(&mu_);
    return end_;
  }
  bool abandoned() const {
    absl::MutexLock lock(&mu_);
    return abandoned_;
  }
  int64_t timer_ns() const {
    absl::MutexLock lock(&mu_);
    return timer_ns_;
  }
  void RunTimer() {
    std::function<void()> on_time;
    {
      absl::MutexLock lock(&mu_);
      on_time = std::move(on_time_);
    }
    on_time();
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<std::string> parts_;
  absl::optional<absl::Status> end_;
  bool abandoned_ = false;
  int64_t timer_ns_ = 0;
  std::function<void()> on_time_;
};

class AnsweredObserver : public Observer {
 public:
  void OnAnswered(absl::string_view request_id, const absl::Status& status,
                  absl::optional<Finish> finish) override {
    answered.push_back(absl::StrCat(request_id, " ",
                                    absl::StatusCodeToString(status.code()),
                                    finish.has_value() ? " finished" : ""));
  }
  std::vector<std::string> answered;
};

class CallAnswerTest : public DispatcherTest {
 protected:
  CallAnswerTest() : target_(AddTarget()) {}

  static RequestSpec Choices(int num_choices) {
    RequestSpec request = Request("r");
    request.num_choices = num_choices;
    return request;
  }
  // Says these bytes, after the prompt of two tokens.
  void Say(uint64_t session_id, const std::string& text,
           FinishReason finish = FinishReason::kNone) {
    Verdict(target_, session_id, 2 + said_[session_id], Bytes(text), finish);
    said_[session_id] += static_cast<int>(text.size());
  }
  bool AwaitEnd() {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (!writer_->end().has_value() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return writer_->end().has_value();
  }

  const Worker target_;
  std::map<uint64_t, int> said_;  // tokens, by session
  AnsweredObserver calls_;
  const std::shared_ptr<PlainWriter> writer_ = std::make_shared<PlainWriter>();
  WorkPool cancels_{WorkPool::Options{.threads = 1}};
  const std::shared_ptr<CallAnswer> answer_ =
      CallAnswer::Create({.dispatcher = &dispatcher_,
                          .observer = &calls_,
                          .cancels = &cancels_,
                          .now_ns = [this] { return now_ns_; },
                          .client_timeout_ns = 500},
                         writer_);
};

TEST_F(CallAnswerTest, EndsWhenAllChoicesHaveEndedAndAllIsTaken) {
  answer_->Start(Choices(2));
  Say(1, "a");
  Say(2, "b");
  Say(1, "c", FinishReason::kLength);
  answer_->OnTaken(0);
  answer_->OnTaken(1);
  answer_->OnTaken(0);
  answer_->OnTaken(0);
  EXPECT_THAT(calls_.answered, IsEmpty());
  EXPECT_FALSE(writer_->end().has_value());
  Say(2, "d", FinishReason::kLength);
  EXPECT_THAT(writer_->parts(),
              ElementsAre("r/0 a", "r/1 b", "r/0 c", "r/0 complete: ac",
                          "r/1 d", "r/1 complete: bd"));
  EXPECT_THAT(calls_.answered, ElementsAre("r OK finished"));
  answer_->OnTaken(1);
  EXPECT_FALSE(writer_->end().has_value());
  answer_->OnTaken(1);
  EXPECT_EQ(writer_->end(), absl::OkStatus());
}

TEST_F(CallAnswerTest, AResumedCallEndsAsTheFirstOfItsChoicesThatWereLeft) {
  RequestSpec request = Choices(2);
  request.first_choice = 1;
  std::vector<ResumedChoice> choices(2);
  choices[0].done = true;
  request.resume = std::make_shared<const std::vector<ResumedChoice>>(choices);
  answer_->Start(request);
  Say(1, "a", FinishReason::kLength);
  EXPECT_THAT(writer_->parts(), ElementsAre("r/1 a", "r/1 complete: a"));
  EXPECT_THAT(calls_.answered, ElementsAre("r OK finished"));
  answer_->OnTaken(1);
  EXPECT_FALSE(writer_->end().has_value());
  answer_->OnTaken(1);
  EXPECT_EQ(writer_->end(), absl::OkStatus());
}

TEST_F(CallAnswerTest, TheFirstFailureDecidesAndEndsTheOthers) {
  answer_->Start(Choices(3));
  Say(1, "a");
  answer_->OnTaken(0);
  Fail(target_, 2, static_cast<int>(absl::StatusCode::kDataLoss), "broken");
  ASSERT_TRUE(AwaitEnd());
  EXPECT_EQ(*writer_->end(), absl::DataLossError("broken"));
  EXPECT_THAT(writer_->parts(), ElementsAre("r/0 a"));
  EXPECT_THAT(calls_.answered, ElementsAre("r DATA_LOSS"));
  EXPECT_THAT(dispatcher_.sessions(), IsEmpty());
}

TEST_F(CallAnswerTest, ACancelEndsAllChoices) {
  answer_->Start(Choices(2));
  answer_->OnCancelled();
  EXPECT_EQ(writer_->end(), absl::CancelledError("cancelled by the client"));
  EXPECT_THAT(calls_.answered, ElementsAre("r CANCELLED"));
  EXPECT_THAT(dispatcher_.sessions(), IsEmpty());
}

TEST_F(CallAnswerTest, ACancelBeforeTheStartStartsNothing) {
  answer_->OnCancelled();
  answer_->Start(Choices(2));
  EXPECT_EQ(writer_->end(), absl::CancelledError("cancelled by the client"));
  EXPECT_THAT(writer_->parts(), IsEmpty());
  EXPECT_EQ(target_.client->Take(), std::vector<std::string>());
}

TEST_F(CallAnswerTest, ARefusedCallHasOneWord) {
  answer_->SetRequestId("mine");
  answer_->Refuse(absl::InvalidArgumentError("no prompt"));
  EXPECT_EQ(writer_->end(), absl::InvalidArgumentError("no prompt"));
  EXPECT_THAT(calls_.answered, ElementsAre("mine INVALID_ARGUMENT"));
}

// The target is acknowledged as far as the client of this choice keeps up.
TEST_F(CallAnswerTest, EachChoiceIsPacedByItsOwnParts) {
  answer_->Start(Choices(2));
  std::map<std::string, int> acknowledged;  // the last length, by session
  const auto look = [&] {
    for (const std::string& call : target_.client->Take()) {
      const std::vector<std::string> words = absl::StrSplit(call, ' ');
      if (words[0] == "acknowledge") acknowledged[words[1]] = stoi(words[3]);
    }
  };
  for (int i = 0; i < 60; ++i) {
    Say(1, "x");
    Say(2, "x");
    answer_->OnTaken(1);
  }
  look();
  EXPECT_EQ(acknowledged["1"], 34);  // 32 parts wait
  EXPECT_EQ(acknowledged["2"], 50);
  for (int i = 0; i < 60; ++i) answer_->OnTaken(0);
  look();
  EXPECT_EQ(acknowledged["1"], 62);
}

// A fast target may speak, and a fast client take it all, before the call knows
// the session's number.
TEST_F(CallAnswerTest, WhatIsTakenBeforeTheStartReturnsIsAcknowledged) {
  target_.client->on_next_flush = [this] {
    for (int i = 0; i < 60; ++i) Say(1, "x");
    for (int i = 0; i < 60; ++i) answer_->OnTaken(0);
  };
  answer_->Start(Choices(1));
  EXPECT_THAT(target_.client->Take(), Contains("acknowledge 1 length 62"));
}

TEST_F(CallAnswerTest, AFinishedAnswerWaitsWhileItsClientTakesSomething) {
  answer_->Start(Choices(1));
  Say(1, "a", FinishReason::kLength);
  EXPECT_EQ(writer_->timer_ns(), 1500);
  now_ns_ = 1500;
  answer_->OnTaken(0);
  writer_->RunTimer();
  EXPECT_FALSE(writer_->abandoned());
  EXPECT_EQ(writer_->timer_ns(), 2000);
  writer_->RunTimer();
  EXPECT_TRUE(writer_->abandoned());
  answer_->OnTaken(0);  // dropped
  EXPECT_EQ(writer_->end(), absl::OkStatus());
}

}  // namespace
}  // namespace nacre::coordinator
