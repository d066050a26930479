#include "coordinator/api/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/refusal.h"
#include "coordinator/api/request_convert.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;

// The fields as a front end without protobuf fills them. What each of them may
// hold is tested through protobuf (request_convert_test.cc).
class RequestParserTest : public ::testing::Test {
 protected:
  RequestParserTest() {
    model_.model_name = "pearl";
    model_.model_vocab_size = 300;
    model_.tokenizer_vocab_size = ByteTokenizer::kVocabSize;
    model_.context_length = 101;
    fields_.text = "abc";
  }

  absl::StatusOr<RequestSpec> Parse() {
    return ParseRequest(fields_, tokenizer_, model_);
  }

  ByteTokenizer tokenizer_;
  WorkerInfo model_;
  GenerateFields fields_;
};

TEST_F(RequestParserTest, FieldsNeedNoProtobuf) {
  const std::vector<uint32_t> stop_ids = {7, 8};
  fields_.model = "pearl";
  fields_.request_id = "mine";
  fields_.num_choices = 2;
  fields_.sampling.temperature = 0.5f;
  fields_.sampling.seed = 9;
  fields_.sampling.logit_bias = {{5, 1.5f}};
  fields_.stop.max_tokens = 20;
  fields_.stop.min_tokens = 3;
  fields_.stop.strings = {"END"};
  fields_.stop.token_ids = stop_ids;
  fields_.speculation_options.method = speculation::Method::kPearl;
  fields_.speculation_options.window = 4;
  fields_.output.stream = true;
  fields_.output.logprobs = 2;
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->request_id, "mine");
  EXPECT_EQ(spec->num_choices, 2);
  EXPECT_EQ(spec->sampling.temperature, 0.5f);
  EXPECT_EQ(spec->sampling.seed, 9u);
  EXPECT_EQ(spec->sampling.logit_bias.size(), 1u);
  EXPECT_EQ(spec->max_tokens, 20);
  EXPECT_EQ(spec->min_tokens, 3);
  EXPECT_THAT(spec->stop, ElementsAre("END"));
  EXPECT_THAT(spec->stop_token_ids, ElementsAre(7, 8));
  EXPECT_EQ(spec->method, speculation::Method::kPearl);
  EXPECT_EQ(spec->window, 4);
  EXPECT_TRUE(spec->stream);
  EXPECT_EQ(spec->logprobs, 2);
  EXPECT_THAT(spec->prompt_ids,
              ElementsAre(ByteTokenizer::kBos, 'a', 'b', 'c'));
}

TEST_F(RequestParserTest, TheDefaultsAreThoseOfAnEmptyMessage) {
  v1::GenerateRequest request;
  request.set_text("abc");
  const absl::StatusOr<RequestSpec> plain = Parse();
  const absl::StatusOr<RequestSpec> message =
      ParseRequest(FieldsOf(request), tokenizer_, model_);
  ASSERT_TRUE(plain.ok() && message.ok());
  EXPECT_EQ(plain->max_tokens, message->max_tokens);
  EXPECT_EQ(plain->num_choices, message->num_choices);
  EXPECT_EQ(plain->method, message->method);
  EXPECT_EQ(plain->verification, message->verification);
  EXPECT_EQ(plain->skip_special_tokens, message->skip_special_tokens);
  EXPECT_EQ(plain->stream, message->stream);
  EXPECT_EQ(plain->logprobs, message->logprobs);
  EXPECT_EQ(plain->prompt_ids, message->prompt_ids);
}

TEST_F(RequestParserTest, TokenIdsAreAPromptToo) {
  const std::vector<uint32_t> ids = {4, 299};
  fields_.text = absl::nullopt;
  EXPECT_EQ(Parse().status(),
            absl::InvalidArgumentError("no prompt: set text or token_ids"));
  fields_.token_ids = ids;
  EXPECT_THAT(Parse()->prompt_ids, ElementsAre(4, 299));
}

// A front end says in its own words what it does not know, and is heard after
// the errors of the fields before.
TEST_F(RequestParserTest, UnknownNamesAreRefusedInTheirTurn) {
  const absl::Status unknown =
      absl::InvalidArgumentError("method \"magic\" is none of: ar, sd");
  fields_.speculation_options.method = unknown;
  EXPECT_EQ(Parse().status(), unknown);
  fields_.num_choices = 17;
  EXPECT_EQ(Parse().status(),
            WithField(absl::InvalidArgumentError("n is 17, must be in [1, 16]"),
                      "n"));
  fields_.num_choices = 1;
  fields_.speculation_options.method = speculation::Method::kAr;
  fields_.speculation_options.verification = unknown;
  EXPECT_EQ(Parse().status(), unknown);
  fields_.speculation_options.verification = speculation::Verification::kRatio;
  fields_.output.detailed_stats = unknown;
  EXPECT_EQ(Parse().status(), unknown);
}

TEST_F(RequestParserTest, SuffixesAreOfAsyncWithExactUnlessTheyAreOff) {
  EXPECT_TRUE(Parse()->suffixes.has_value());
  fields_.sampling.temperature = 0.5f;
  fields_.speculation_options.verification = speculation::Verification::kRatio;
  EXPECT_FALSE(Parse()->suffixes.has_value());
  fields_.sampling.temperature = 0.0f;  // ratio is exact there
  EXPECT_TRUE(Parse()->suffixes.has_value());
  for (const auto method : {speculation::Method::kAr, speculation::Method::kSd,
                            speculation::Method::kPearl}) {
    fields_.speculation_options.method = method;
    EXPECT_FALSE(Parse()->suffixes.has_value());
  }
  fields_.speculation_options.method = speculation::Method::kAsync;
  fields_.speculation_options.suffixes = false;
  EXPECT_FALSE(Parse()->suffixes.has_value());
}

}  // namespace
}  // namespace nacre::coordinator
