#include "coordinator/dispatch/openings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<RequestSpec> FullRequest() {
  auto request = std::make_shared<RequestSpec>();
  request->request_id = "r";
  request->prompt_ids = {1, 2, 3};
  request->max_tokens = 10;
  request->min_tokens = 4;
  request->sampling.temperature = 0.5f;
  request->sampling.logit_bias = {{7, 1.0f}};
  request->stop_token_ids = {8};
  request->ignore_eos = true;
  request->logprobs = 5;
  request->prompt_logprobs = 4;
  request->verification = speculation::Verification::kRatio;
  request->oracle_ids = {4, 5};
  request->fingerprint = "big";
  return request;
}

TEST(OpeningsTest, ATargetIsToldAllOfTheRequest) {
  const auto request = FullRequest();
  TargetOpening opening;
  opening.session_id = 9;
  opening.request = request;
  opening.generated = {6};
  opening.plan = {1, 2, 3, 4, true};
  opening.epoch = 2;
  opening.has_draft = true;
  opening.channels = {77, 78};
  opening.prompt_logprobs = 1;
  opening.num_slots = 64;
  wire::OpenTarget open = opening.Message();
  EXPECT_THAT(open.token_ids, ElementsAre(1, 2, 3, 6));
  wire::OpenTarget expected;
  expected.session_id = 9;
  expected.request_id = "r";
  expected.token_ids = {1, 2, 3, 6};
  expected.prompt_length = 3;
  expected.max_tokens = 10;
  expected.sampling = request->sampling;
  expected.stop_token_ids = {8};
  expected.ignore_eos = true;
  expected.min_tokens = 4;
  expected.logprobs = 5;
  expected.plan = opening.plan;
  expected.epoch = 2;
  expected.has_draft = true;
  expected.verification = speculation::Verification::kRatio;
  expected.hidden_channel = 77;
  expected.kv_channel = 78;
  expected.num_slots = 64;
  expected.prompt_logprobs = 4;
  expected.first_prompt_logprob = 2;
  EXPECT_EQ(open, expected);
  request->suffixes = {5, 6};
  expected.suffixes = {5, 6};
  EXPECT_EQ(opening.Message(), expected);
}

TEST(OpeningsTest, ADraftIsToldWhatItNeeds) {
  const auto request = FullRequest();
  DraftOpening opening;
  opening.session_id = 9;
  opening.request = request;
  opening.generated = {6, 7};
  opening.end_ids = {8, 2};
  opening.vocab_limit = 290;
  opening.plan = {5, 6, true};
  opening.epoch = 3;
  opening.hidden_address = "target:5";
  opening.channels = {77, 78};
  wire::OpenDraft expected;
  expected.session_id = 9;
  expected.request_id = "r";
  expected.epoch = 3;
  expected.token_ids = {1, 2, 3, 6, 7};
  expected.prompt_length = 3;
  expected.max_length = 12;  // the last token is the target's alone
  expected.sampling = request->sampling;
  expected.end_token_ids = {8, 2};
  expected.min_tokens = 4;
  expected.vocab_limit = 290;
  expected.plan = opening.plan;
  expected.oracle_token_ids = {4, 5};
  expected.target_fingerprint = "big";
  expected.verification = speculation::Verification::kRatio;
  expected.hidden_address = "target:5";
  expected.hidden_channel = 77;
  expected.kv_channel = 78;
  EXPECT_EQ(opening.Message(), expected);
  request->trace = true;
  expected.tells_candidates = true;
  EXPECT_EQ(opening.Message(), expected);
}

// 3 + 10 - 1 tokens are all that a draft ever reads.
TEST(OpeningsTest, ADraftIsToldHowFarItHasRoom) {
  DraftOpening opening;
  opening.request = FullRequest();
  EXPECT_EQ(opening.Message().max_length, 12);
  opening.kv_length = 16;
  EXPECT_EQ(opening.Message().max_length, 12);
  opening.kv_length = 8;
  EXPECT_EQ(opening.Message().max_length, 8);
}

}  // namespace
}  // namespace nacre::coordinator
