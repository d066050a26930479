#include "tools/calibrate/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/tools/run_command.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

CalibrationPlan Plan() {
  CalibrationPlan plan;
  for (const char* text : {"a", "b", "c"}) {
    Prompt prompt;
    prompt.id = prompt.text = text;
    prompt.max_tokens = 5;
    plan.prompts.push_back(prompt);
  }
  plan.window = 11;
  plan.repeat = 2;
  plan.timeout = absl::Seconds(60);
  plan.request.mutable_sampling()->set_seed(3);
  return plan;
}

void Ignore(const std::string&) {}

TEST(RecordingRequestsTest, NameThePromptAndDraftAhead) {
  FakeCoordinator server([](const auto&, auto*, auto* writer) {
    v1::Complete complete;
    for (const uint32_t id : {5, 6}) complete.add_token_ids(id);
    FakeCoordinator::SendComplete(writer, complete);
    return grpc::Status::OK;
  });
  GenerationClient client(server.address());
  const auto answers =
      RunRecordingRequests(Plan(), {0, 2}, 11, &client, Ignore);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_THAT(*answers, ElementsAre(Pair(0, ElementsAre(5, 6)),
                                    Pair(2, ElementsAre(5, 6))));
  const std::vector<v1::GenerateRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const v1::GenerateRequest& request = requests[static_cast<size_t>(i)];
    EXPECT_EQ(request.request_id(), RecordingId(2 * i));
    EXPECT_EQ(request.speculation().method(), v1::METHOD_SD);
    EXPECT_EQ(request.speculation().window(), 11u);
    EXPECT_EQ(request.speculation().policy(), "constant");
    EXPECT_EQ(request.stop().max_tokens(), 5u);
    EXPECT_EQ(request.sampling().seed(), 3u);
  }
  EXPECT_EQ(requests[1].text(), "c");
}

TEST(RecordingRequestsTest, SayWhichFails) {
  FakeCoordinator server(
      [](const v1::GenerateRequest& request, auto* context, auto* writer) {
        if (request.text() == "b") {
          return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
        }
        return OneTwo(request, context, writer);
      });
  GenerationClient client(server.address());
  const absl::Status status =
      RunRecordingRequests(Plan(), {0, 1, 2}, 11, &client, Ignore).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("prompt \"b\""));
}

TEST(MeasurePoliciesTest, RunsEachOnThePromptsOnly) {
  FakeCoordinator server(OneTwo);
  GenerationClient client(server.address());
  const auto summaries = MeasurePolicies(
      Plan(), {0, 2}, {"svip:h=0.4", "constant"}, &client, Ignore);
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  ASSERT_EQ(summaries->size(), 3u);
  EXPECT_EQ((*summaries)[0].method.name, "ar");
  EXPECT_EQ((*summaries)[1].method.policy, "svip:h=0.4");
  EXPECT_EQ((*summaries)[2].method.policy, "constant");
  for (const MethodSummary& summary : *summaries) {
    EXPECT_GT(summary.tokens_per_second, 0.0);
    EXPECT_EQ(summary.tokens_per_second_repeats.size(), 2u);
  }
  // A warm-up of each, 2 prompts x 2 repetitions, nothing traced.
  const std::vector<v1::GenerateRequest> requests = server.requests();
  EXPECT_EQ(requests.size(), 3u + 3u * 2u * 2u);
  for (const v1::GenerateRequest& request : requests) {
    EXPECT_NE(request.text(), "b");
    EXPECT_FALSE(request.output().trace());
    EXPECT_EQ(request.speculation().method() == v1::METHOD_AR,
              request.speculation().policy().empty());
  }
}

// A policy that changed what is said must never be chosen.
TEST(MeasurePoliciesTest, OtherTokensAreAnError) {
  FakeCoordinator server(
      [](const v1::GenerateRequest& request, auto* context, auto* writer) {
        if (!absl::StartsWith(request.speculation().policy(), "svip")) {
          return OneTwo(request, context, writer);
        }
        v1::Complete complete;
        for (const uint32_t id : {5, 6, 8}) complete.add_token_ids(id);
        FakeCoordinator::SendComplete(writer, complete);
        return grpc::Status::OK;
      });
  GenerationClient client(server.address());
  EXPECT_EQ(
      MeasurePolicies(Plan(), {0}, {"svip"}, &client, Ignore).status().code(),
      absl::StatusCode::kDataLoss);
}

TEST(FastestPolicyTest, IsTheFastestButAr) {
  std::vector<MethodSummary> summaries(4);
  summaries[0].tokens_per_second = 100.0;  // ar
  summaries[1].tokens_per_second = 30.0;
  summaries[2].tokens_per_second = 50.0;
  summaries[3].tokens_per_second = 50.0;
  EXPECT_EQ(FastestPolicy(summaries), 1);
  summaries[1].tokens_per_second = 60.0;
  EXPECT_EQ(FastestPolicy(summaries), 0);
}

}  // namespace
}  // namespace nacre::tools
