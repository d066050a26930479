#include "gateway/cut_answer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/refusal.h"

namespace nacre::gateway {
namespace {

v1::GenerateRequest Request(uint32_t n) {
  v1::GenerateRequest request;
  request.set_request_id("r");
  request.set_n(n);
  request.mutable_token_ids()->add_ids(7);
  request.mutable_sampling()->set_temperature(1.0f);
  request.mutable_output()->set_prompt_logprobs(1);
  request.mutable_output()->set_stream(true);
  return request;
}

v1::GenerateResponse Chunk(uint32_t index, const std::vector<uint32_t>& ids,
                           uint32_t first = 0) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.mutable_chunk()->set_first_index(first);
  response.mutable_chunk()->mutable_token_ids()->Assign(ids.begin(), ids.end());
  return response;
}

v1::GenerateResponse First(v1::GenerateResponse response) {
  v1::Start* const start = response.mutable_start();
  start->set_seed(99);
  start->set_model_fingerprint("f");
  start->set_numerics_id("n");
  start->add_prompt_token_ids(7);
  return response;
}

v1::GenerateResponse End(uint32_t index, uint32_t tokens = 0) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.mutable_complete()->mutable_usage()->set_completion_tokens(tokens);
  return response;
}

TEST(CutAnswerTest, WhereNothingCameTheRestIsTheRequestByAnotherName) {
  const v1::GenerateRequest request = Request(2);
  CutAnswer answer(&request);
  v1::GenerateRequest expected = request;
  for (const char* name : {"r-retry-1", "r-retry-2"}) {
    expected.set_request_id(name);
    EXPECT_EQ(answer.Rest().ShortDebugString(), expected.ShortDebugString());
  }
}

// Else the rests of two requests would refuse each other.
TEST(CutAnswerTest, WhatTellsLongNamesApartStays) {
  // The client's, what the gateway adds, the number of the prompt.
  const std::string same(128 + 17 + 1, 'x');
  v1::GenerateRequest request = Request(1);
  request.set_request_id(same + "0");
  const std::string first = CutAnswer(&request).Rest().request_id();
  request.set_request_id(same + "1");
  EXPECT_NE(CutAnswer(&request).Rest().request_id(), first);
}

TEST(CutAnswerTest, TheRestGoesOnBehindWhatCame) {
  const v1::GenerateRequest request = Request(3);
  CutAnswer answer(&request);
  EXPECT_FALSE(answer.has_begun());
  answer.Note(First(Chunk(1, {4, 5})));
  answer.Note(Chunk(1, {6}));
  answer.Note(Chunk(2, {8}));
  answer.Note(End(2));
  EXPECT_TRUE(answer.has_begun());
  EXPECT_FALSE(answer.is_whole());
  ASSERT_TRUE(answer.can_go_on());
  const v1::GenerateRequest rest = answer.Rest();
  v1::GenerateRequest expected = request;
  expected.set_request_id("r-resume-1");
  expected.mutable_sampling()->set_seed(99);
  expected.mutable_resume()->set_model_fingerprint("f");
  expected.mutable_resume()->set_numerics_id("n");
  expected.mutable_resume()->add_choices();
  for (const uint32_t id : {4u, 5u, 6u}) {
    if (id == 4) expected.mutable_resume()->add_choices();
    expected.mutable_resume()->mutable_choices(1)->add_token_ids(id);
  }
  expected.mutable_resume()->add_choices()->set_done(true);
  EXPECT_EQ(rest.ShortDebugString(), expected.ShortDebugString());
  // Choice 0 has said nothing, of the prompt neither. Then it does.
  answer.Note(Chunk(0, {1}));
  const v1::GenerateRequest later = answer.Rest();
  EXPECT_EQ(later.request_id(), "r-resume-2");
  EXPECT_FALSE(later.output().has_prompt_logprobs());
  answer.Note(End(0));
  answer.Note(End(1));
  EXPECT_TRUE(answer.is_whole());
  EXPECT_FALSE(answer.can_go_on());
}

// The client has lost its stream before, and has so much of it.
TEST(CutAnswerTest, AResumedAnswerGoesOnBehindAllOfIt) {
  v1::GenerateRequest request = Request(3);
  request.mutable_resume()->set_model_fingerprint("f");
  request.mutable_resume()->set_numerics_id("n");
  v1::Resume::Choice* const first = request.mutable_resume()->add_choices();
  for (const uint32_t id : {4u, 5u}) first->add_token_ids(id);
  v1::Resume::Choice* const second = request.mutable_resume()->add_choices();
  second->add_token_ids(9);
  second->set_done(true);
  request.mutable_resume()->add_choices();
  CutAnswer answer(&request);
  // Nothing came of this call: it is sent again as it was.
  v1::GenerateRequest expected = request;
  expected.set_request_id("r-retry-1");
  EXPECT_EQ(answer.Rest().ShortDebugString(), expected.ShortDebugString());
  EXPECT_FALSE(answer.Follows(Chunk(0, {6}, 0)));
  EXPECT_FALSE(answer.Follows(Chunk(1, {6}, 1)));
  EXPECT_FALSE(answer.Follows(End(1, 1)));
  EXPECT_TRUE(answer.Follows(First(Chunk(0, {6}, 2))));
  answer.Note(First(Chunk(0, {6}, 2)));
  ASSERT_TRUE(answer.can_go_on());
  const v1::GenerateRequest rest = answer.Rest();
  ASSERT_EQ(rest.resume().choices_size(), 3);
  EXPECT_EQ(rest.resume().choices(0).token_ids_size(), 3);
  EXPECT_TRUE(rest.resume().choices(1).done());
  EXPECT_EQ(rest.resume().choices(2).token_ids_size(), 0);
  EXPECT_TRUE(answer.Follows(End(0, 3)));
  answer.Note(End(0, 3));
  answer.Note(End(2));
  EXPECT_TRUE(answer.is_whole());
}

TEST(CutAnswerTest, NoTokenIsMissingOrComesTwice) {
  const v1::GenerateRequest request = Request(2);
  CutAnswer answer(&request);
  EXPECT_FALSE(answer.Follows(Chunk(0, {4}, 1)));
  EXPECT_TRUE(answer.Follows(First(Chunk(0, {4, 5}))));
  answer.Note(First(Chunk(0, {4, 5})));
  EXPECT_TRUE(answer.Follows(Chunk(0, {6}, 2)));
  for (const uint32_t first : {0u, 1u, 3u}) {
    EXPECT_FALSE(answer.Follows(Chunk(0, {6}, first))) << first;
  }
  EXPECT_TRUE(answer.Follows(Chunk(1, {6}, 0)));
  EXPECT_FALSE(answer.Follows(Chunk(1, {6}, 2)));
  // Text alone.
  EXPECT_TRUE(answer.Follows(Chunk(0, {})));
  EXPECT_FALSE(answer.Follows(Chunk(2, {6}, 0)));
  EXPECT_FALSE(answer.Follows(End(2)));
  // Its end says how many there were.
  for (const uint32_t tokens : {0u, 1u, 3u}) {
    EXPECT_FALSE(answer.Follows(End(0, tokens))) << tokens;
  }
  EXPECT_TRUE(answer.Follows(End(0, 2)));
  answer.Note(End(0, 2));
  EXPECT_FALSE(answer.Follows(End(0)));
  EXPECT_FALSE(answer.Follows(Chunk(0, {6}, 2)));
  EXPECT_FALSE(answer.Follows(Chunk(0, {6}, 0)));
  EXPECT_TRUE(answer.Follows(End(1)));
}

TEST(CutAnswerTest, AnAnswerThatIsNoStreamHasItsTokensInItsEnd) {
  v1::GenerateRequest request = Request(1);
  request.mutable_output()->set_stream(false);
  const CutAnswer answer(&request);
  v1::GenerateResponse end = End(0, 2);
  EXPECT_FALSE(answer.Follows(end));
  for (const uint32_t id : {4u, 5u}) end.mutable_complete()->add_token_ids(id);
  EXPECT_TRUE(answer.Follows(end));
}

// Another checkpoint than the answer's is no target that is yet to come.
TEST(CutAnswerTest, OnlySomeRefusalsAreOfTargetsThatMayCome) {
  const auto of_field = [](const char* field) {
    return WithField(absl::FailedPreconditionError("x"), field);
  };
  EXPECT_TRUE(MayMissTargets(of_field("resume.numerics_id")));
  EXPECT_TRUE(MayMissTargets(of_field("numerics_id")));
  EXPECT_TRUE(MayMissTargets(
      WithRefusal(absl::ResourceExhaustedError("x"), {kNeverFits})));
  for (const absl::Status& status :
       {of_field("resume.model_fingerprint"), of_field("speculation.policy"),
        absl::FailedPreconditionError("x"), absl::UnavailableError("x"),
        WithField(absl::InvalidArgumentError("x"), "numerics_id"),
        WithRefusal(absl::ResourceExhaustedError("x"), {kQueueFull}),
        absl::OkStatus()}) {
    EXPECT_FALSE(MayMissTargets(status)) << status;
  }
}

TEST(CutAnswerTest, WhatMayNotBeTheSameIsNotGoneOnWith) {
  v1::GenerateRequest request = Request(1);
  CutAnswer unknown(&request);
  unknown.Note(Chunk(0, {4}));  // without a Start
  EXPECT_FALSE(unknown.can_go_on());
  request.mutable_speculation()->set_verification(v1::VERIFICATION_RATIO);
  CutAnswer answer(&request);
  answer.Note(First(Chunk(0, {4})));
  EXPECT_FALSE(answer.can_go_on());
  request.mutable_sampling()->set_temperature(0.0f);
  EXPECT_TRUE(answer.can_go_on());
  request.mutable_speculation()->set_policy("oracle:x=1");
  EXPECT_FALSE(answer.can_go_on());
}

TEST(CutAnswerTest, LongNamesStayWithinTheServicesLimit) {
  v1::GenerateRequest request = Request(1);
  request.set_request_id(std::string(256, 'x'));
  CutAnswer answer(&request);
  answer.Note(First(Chunk(0, {4})));
  EXPECT_LE(answer.Rest().request_id().size(), 256u);
  request.clear_request_id();
  EXPECT_EQ(answer.Rest().request_id(), "");
}

}  // namespace
}  // namespace nacre::gateway
