#include "gateway/cut_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nacre::gateway {
namespace {

using ::testing::ElementsAre;

v1::GenerateRequest CutRequest(uint32_t n) {
  v1::GenerateRequest request;
  request.set_request_id("r");
  request.set_n(n);
  request.mutable_token_ids()->add_ids(1);
  request.mutable_sampling()->set_temperature(0.8f);
  return request;
}

v1::GenerateResponse CutChunk(uint32_t index, uint32_t first,
                              const std::vector<uint32_t>& ids) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.mutable_chunk()->set_first_index(first);
  response.mutable_chunk()->mutable_token_ids()->Add(ids.begin(), ids.end());
  return response;
}

v1::GenerateResponse CutComplete(uint32_t index) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.mutable_complete();
  return response;
}

v1::GenerateResponse WithStart(v1::GenerateResponse response) {
  v1::Start* const start = response.mutable_start();
  start->set_seed(77);
  start->set_model_fingerprint("f");
  start->set_numerics_id("n");
  start->add_prompt_token_ids(1);
  start->add_prompt_token_ids(2);
  return response;
}

TEST(CutAnswerTest, GoesOnWithWhatHasCome) {
  CutAnswer answer(CutRequest(3));
  EXPECT_TRUE(answer.Add(WithStart(CutChunk(1, 0, {5, 6}))).ok());
  EXPECT_TRUE(answer.Add(CutChunk(0, 0, {9})).ok());
  EXPECT_TRUE(answer.Add(CutComplete(0)).ok());
  EXPECT_TRUE(answer.Add(CutChunk(1, 2, {7})).ok());
  EXPECT_EQ(answer.progress(), 5u);
  ASSERT_TRUE(answer.CanResume());
  const v1::GenerateRequest resumed = answer.Resume();
  EXPECT_EQ(resumed.request_id(), "");
  EXPECT_THAT(resumed.token_ids().ids(), ElementsAre(1, 2));
  EXPECT_EQ(resumed.sampling().seed(), 77u);
  EXPECT_EQ(resumed.sampling().temperature(), 0.8f);
  EXPECT_EQ(resumed.resume().model_fingerprint(), "f");
  EXPECT_EQ(resumed.resume().numerics_id(), "n");
  ASSERT_EQ(resumed.resume().choices_size(), 3);
  EXPECT_TRUE(resumed.resume().choices(0).done());
  EXPECT_EQ(resumed.resume().choices(0).token_ids_size(), 0);
  EXPECT_THAT(resumed.resume().choices(1).token_ids(), ElementsAre(5, 6, 7));
  EXPECT_FALSE(resumed.resume().choices(2).done());
  // The resumed call is cut, too.
  EXPECT_TRUE(answer.Add(WithStart(CutChunk(1, 3, {8}))).ok());
  EXPECT_THAT(answer.Resume().resume().choices(1).token_ids(),
              ElementsAre(5, 6, 7, 8));
}

TEST(CutAnswerTest, NothingGoesOnWithAWholeAnswer) {
  CutAnswer answer(CutRequest(1));
  EXPECT_TRUE(answer.Add(WithStart(CutComplete(0))).ok());
  EXPECT_TRUE(answer.is_complete());
  EXPECT_FALSE(answer.CanResume());
}

TEST(CutAnswerTest, NothingGoesOnWithoutAStart) {
  CutAnswer answer(CutRequest(1));
  EXPECT_TRUE(answer.Add(CutChunk(0, 0, {5})).ok());
  EXPECT_FALSE(answer.CanResume());
}

TEST(CutAnswerTest, NothingGoesOnWhereDraftsDecide) {
  v1::GenerateRequest ratio = CutRequest(1);
  ratio.mutable_speculation()->set_verification(v1::VERIFICATION_RATIO);
  v1::GenerateRequest greedy_ratio = ratio;
  greedy_ratio.mutable_sampling()->set_temperature(0.0f);
  v1::GenerateRequest oracle = CutRequest(1);
  oracle.mutable_speculation()->set_policy("oracle:x=1");
  const auto resumes = [](const v1::GenerateRequest& request) {
    CutAnswer answer(request);
    EXPECT_TRUE(answer.Add(WithStart(CutChunk(0, 0, {5}))).ok());
    return answer.CanResume();
  };
  EXPECT_FALSE(resumes(ratio));
  EXPECT_TRUE(resumes(greedy_ratio));
  EXPECT_FALSE(resumes(oracle));
}

TEST(CutAnswerTest, WhatDoesNotFollowIsAnError) {
  for (const v1::GenerateResponse& wrong :
       {CutChunk(0, 0, {5}), CutChunk(0, 3, {5}), CutChunk(1, 0, {5})}) {
    CutAnswer answer(CutRequest(1));
    EXPECT_TRUE(answer.Add(WithStart(CutChunk(0, 0, {5, 6}))).ok());
    EXPECT_TRUE(absl::IsInternal(answer.Add(wrong)));
    EXPECT_FALSE(answer.CanResume());
  }
  CutAnswer answer(CutRequest(2));
  EXPECT_TRUE(answer.Add(WithStart(CutComplete(0))).ok());
  EXPECT_TRUE(absl::IsInternal(answer.Add(CutChunk(0, 0, {5}))));
}

}  // namespace
}  // namespace nacre::gateway
