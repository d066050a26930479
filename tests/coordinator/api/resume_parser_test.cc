#include "coordinator/api/resume_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/api/parsed_request.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ResumeParserTest : public ParsedRequestTest {
 protected:
  ResumeParserTest() {
    model_.fingerprint = "f";
    model_.eos_token_ids = {ByteTokenizer::kEos};
    request_.mutable_token_ids()->add_ids('a');
    request_.mutable_sampling()->set_temperature(1.0f);
    request_.mutable_sampling()->set_seed(5);
    request_.mutable_stop()->set_max_tokens(8);
    request_.mutable_resume()->set_model_fingerprint("f");
    request_.mutable_resume()->set_numerics_id("n");
    Choose({"hey"});
  }

  // The choices, one token a byte.
  void Choose(const std::vector<std::string>& texts) {
    request_.set_n(static_cast<uint32_t>(texts.size()));
    request_.mutable_resume()->clear_choices();
    for (const std::string& text : texts) {
      v1::Resume::Choice* choice = request_.mutable_resume()->add_choices();
      for (const int32_t id : Bytes(text)) choice->add_token_ids(id);
    }
  }
  v1::Resume::Choice& choice(int index) {
    return *request_.mutable_resume()->mutable_choices(index);
  }
  // What its first choice ends with; null: it goes on, or it is an error.
  std::shared_ptr<const Completion> End() {
    const absl::StatusOr<RequestSpec> spec = Parse();
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? spec->resume->at(0).ended : nullptr;
  }
};

TEST_F(ResumeParserTest, GoesOnBehindTheTokens) {
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->numerics_id, "n");
  EXPECT_EQ(spec->max_tokens, 8);
  EXPECT_EQ(spec->first_choice, 0);
  EXPECT_THAT(spec->resumed_ids(), ElementsAre('h', 'e', 'y'));
  EXPECT_EQ(spec->resume->at(0).ended, nullptr);
}

TEST_F(ResumeParserTest, ANewAnswerResumesNothing) {
  request_.clear_resume();
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->resume, nullptr);
  EXPECT_THAT(spec->resumed_ids(), IsEmpty());
}

TEST_F(ResumeParserTest, EachChoiceHasItsOwnTokens) {
  Choose({"x", "12345678", "", "abc"});
  choice(0).set_done(true);
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->first_choice, 2);
  EXPECT_TRUE(spec->resume->at(0).done);
  ASSERT_NE(spec->resume->at(1).ended, nullptr);
  EXPECT_EQ(spec->resume->at(1).ended->finish, Finish::kLength);
  EXPECT_THAT(ChoiceOf(*spec, 2).resumed_ids(), IsEmpty());
  EXPECT_THAT(ChoiceOf(*spec, 3).resumed_ids(), ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(ChoiceOf(*spec, 3).sampling.seed, 8u);
}

TEST_F(ResumeParserTest, MaxTokensEndAChoice) {
  Choose({"12345678"});
  const auto end = End();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->finish, Finish::kLength);
  EXPECT_EQ(end->text, "12345678");
  EXPECT_EQ(end->token_ids, Bytes("12345678"));
  EXPECT_EQ(end->numerics_id, "n");
}

TEST_F(ResumeParserTest, EndTokensEndAChoice) {
  choice(0).add_token_ids(ByteTokenizer::kEos);
  auto end = End();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->finish, Finish::kEos);
  EXPECT_EQ(end->text, "hey");
  EXPECT_EQ(end->token_ids.size(), 4u);
  request_.mutable_stop()->set_ignore_eos(true);
  EXPECT_EQ(End(), nullptr);
  request_.mutable_stop()->add_stop_token_ids('y');
  Choose({"hey"});
  end = End();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->finish, Finish::kStop);
  EXPECT_EQ(end->text, "he");
}

TEST_F(ResumeParserTest, AStopStringEndsAChoice) {
  request_.mutable_stop()->add_stop("ey");
  const auto end = End();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->finish, Finish::kStop);
  EXPECT_EQ(end->stop_match, "ey");
  EXPECT_EQ(end->text, "h");
  // Before min_tokens it does not.
  request_.mutable_stop()->set_min_tokens(3);
  EXPECT_EQ(End(), nullptr);
  // Its beginning does not either.
  request_.mutable_stop()->set_min_tokens(0);
  request_.mutable_stop()->set_stop(0, "ey!");
  EXPECT_EQ(End(), nullptr);
}

TEST_F(ResumeParserTest, NothingFollowsAnEnd) {
  choice(0).add_token_ids(ByteTokenizer::kEos);
  choice(0).add_token_ids('x');
  ExpectInvalid("choice 0 has 5 token ids, but ends with its id at index 3");
  Choose({"a", "heyo"});
  request_.mutable_stop()->add_stop("hey");
  ExpectInvalid("choice 1 has 4 token ids, but ends with its id at index 2");
  request_.mutable_stop()->clear_stop();
  request_.mutable_stop()->add_stop_token_ids('h');
  ExpectInvalid("choice 1 has 4 token ids, but ends with its id at index 0");
  Choose({"123456789"});
  ExpectInvalid("choice 0 has 9 token ids, at most max_tokens, 8");
}

TEST_F(ResumeParserTest, NamesWhatItIsOf) {
  request_.mutable_resume()->clear_model_fingerprint();
  ExpectInvalid("model_fingerprint is empty");
  request_.mutable_resume()->set_model_fingerprint("g");
  ExpectError(absl::StatusCode::kFailedPrecondition,
              "fingerprint \"g\", the served one has \"f\"");
  request_.mutable_resume()->set_model_fingerprint("f");
  request_.set_numerics_id("m");
  ExpectInvalid("numerics_id is \"n\", the request's is \"m\"");
  request_.set_numerics_id("n");
  EXPECT_TRUE(Parse().ok());
  request_.clear_numerics_id();
  request_.mutable_resume()->set_numerics_id(std::string(1025, 'x'));
  ExpectInvalid("numerics_id has 1025 bytes, at most 1024");
  request_.mutable_resume()->clear_numerics_id();
  ExpectInvalid("numerics_id is empty");
}

TEST_F(ResumeParserTest, RepeatsTheRequest) {
  request_.mutable_sampling()->clear_seed();
  ExpectInvalid("no seed, must be the answer's at temperature 1");
  request_.mutable_sampling()->set_temperature(0.0f);
  EXPECT_TRUE(Parse().ok());
  request_.set_text("a");
  ExpectInvalid("the prompt is text, must be the token_ids");
}

TEST_F(ResumeParserTest, WhatDependsOnDraftsCannotGoOn) {
  v1::SpeculationOptions* options = request_.mutable_speculation();
  options->set_verification(v1::VERIFICATION_RATIO);
  ExpectInvalid("verification is ratio, must be exact at temperature 1");
  // It is exact there.
  request_.mutable_sampling()->set_temperature(0.0f);
  EXPECT_TRUE(Parse().ok());
  options->clear_verification();
  options->set_policy("oracle");
  options->add_oracle_token_ids('h');
  ExpectInvalid("policy oracle cannot be resumed");
}

TEST_F(ResumeParserTest, HasTheChoicesOfTheRequest) {
  request_.set_n(3);
  ExpectInvalid("1 choices, must be n, 3");
  Choose({"a", "b"});
  choice(0).set_done(true);
  EXPECT_TRUE(Parse().ok());
  choice(1).set_done(true);
  ExpectInvalid("all 2 choices are done");
}

TEST_F(ResumeParserTest, TokensAreOfTheVocabulary) {
  choice(0).add_token_ids(300);
  ExpectInvalid(
      "token id 300 at index 3 of choice 0 is outside the vocabulary of 300");
  // Those of a done choice are not looked at.
  Choose({"a", "b"});
  choice(0).add_token_ids(300);
  choice(0).set_done(true);
  EXPECT_TRUE(Parse().ok());
}

}  // namespace
}  // namespace nacre::coordinator
