#include "tools/generate/generation_json.h"

#include <gtest/gtest.h>

#include "proto/names.h"

namespace nacre::tools {
namespace {

v1::Complete CompleteAnswer() {
  v1::Complete complete;
  complete.set_text("a\"b");
  for (const uint32_t id : {9, 4}) complete.add_token_ids(id);
  complete.add_prompt_token_ids(1);
  complete.set_finish_reason(v1::FINISH_REASON_LENGTH);
  complete.set_seed(18446744073709551615U);
  complete.set_numerics_id("cpu-v1");
  complete.mutable_usage()->set_prompt_tokens(1);
  complete.mutable_usage()->set_completion_tokens(2);
  v1::SpeculationReport* report = complete.mutable_speculation();
  report->set_method(v1::METHOD_PEARL);
  report->set_window(5);
  report->set_policy("constant");
  report->set_rounds(4);
  report->set_drafted(20);
  report->set_verified(8);
  report->set_accepted(6);
  report->set_committed(10);
  report->set_degraded_rounds(1);
  for (const uint64_t rounds : {1, 0, 3}) {
    report->add_acceptance_histogram(rounds);
  }
  v1::Timing* timing = complete.mutable_timing();
  timing->mutable_total()->set_nanos(500000000);
  timing->mutable_queue()->set_nanos(125000000);
  timing->mutable_time_to_first_token()->set_nanos(250000000);
  timing->mutable_draft_busy()->set_seconds(1);
  timing->mutable_draft_wait()->set_seconds(2);
  timing->mutable_target_busy()->set_seconds(3);
  timing->mutable_target_wait()->set_seconds(4);
  timing->mutable_target_wait_after_miss()->set_seconds(1);
  return complete;
}

TEST(GenerationJsonTest, HasExactlyTheDocumentedFields) {
  EXPECT_EQ(JsonText(GenerationJson(CompleteAnswer()), -1),
            R"({"text":"a\"b","token_ids":[9,4],"prompt_token_ids":[1],)"
            R"("finish_reason":"length","seed":18446744073709551615,)"
            R"("numerics_id":"cpu-v1",)"
            R"("usage":{"prompt_tokens":1,"completion_tokens":2,)"
            R"("cached_tokens":0},)"
            R"("speculation":{"method":"pearl","window":5,"policy":"constant",)"
            R"("verification":"exact",)"
            R"("rounds":4,"drafted":20,"verified":8,"accepted":6,)"
            R"("acceptance_rate":0.75,"mean_accepted_length":2.5,)"
            R"("degraded_rounds":1,"suffix_proposed":0,"suffix_accepted":0,)"
            R"("acceptance_histogram":[1,0,3]},)"
            R"("timing":{"total_s":0.5,"queue_s":0.125,"ttft_s":0.25,)"
            R"("tokens_per_second":4.0,)"
            R"("draft_busy_s":1.0,"draft_wait_s":2.0,"target_busy_s":3.0,)"
            R"("target_wait_s":4.0,"target_wait_after_miss_s":1.0}})");
}

TEST(GenerationJsonTest, ShowsRanksWhereTheDraftReportsThem) {
  v1::Complete complete = CompleteAnswer();
  EXPECT_FALSE(GenerationJson(complete)["speculation"].contains("ranks"));
  for (const uint64_t count : {7, 2, 0, 0, 0, 0, 0, 0, 1}) {
    complete.mutable_speculation()->add_ranks(count);
  }
  complete.mutable_speculation()->set_prepared(2);
  EXPECT_EQ(GenerationJson(complete)["speculation"]["ranks"],
            nlohmann::ordered_json({7, 2, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(GenerationJson(complete)["speculation"]["prepared"], 2);
}

TEST(GenerationJsonTest, ShowsLogprobsAndRoundsWhereThereAreSome) {
  v1::Complete complete = CompleteAnswer();
  v1::TokenLogprobs* token = complete.add_logprobs();
  token->set_token_id(9);
  token->set_logprob(-0.5f);
  token->add_top_ids(4);
  token->add_top_logprobs(-0.25f);
  complete.mutable_speculation()->add_per_round_drafted(3);
  complete.mutable_speculation()->add_per_round_accepted(2);
  const auto json = GenerationJson(complete);
  EXPECT_EQ(JsonText(json["logprobs"], -1),
            R"([{"token_id":9,"logprob":-0.5,)"
            R"("top":[{"token_id":4,"logprob":-0.25}]}])");
  EXPECT_EQ(JsonText(json["speculation"]["per_round_drafted"], -1), "[3]");
  EXPECT_EQ(JsonText(json["speculation"]["per_round_accepted"], -1), "[2]");
}

TEST(ChoicesJsonTest, OneIsTheObjectAndSeveralAreAnArray) {
  v1::Complete second = CompleteAnswer();
  second.set_text("second");
  EXPECT_EQ(ChoicesJson({second}), GenerationJson(second));
  const auto json = ChoicesJson({CompleteAnswer(), second});
  ASSERT_EQ(json.size(), 1u);
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["index"], 0);
  auto choice = json["choices"][1];
  EXPECT_EQ(choice.front(), 1);  // its index
  choice.erase("index");
  EXPECT_EQ(choice, GenerationJson(second));
}

TEST(GenerationJsonTest, AnEmptyAnswerDividesByNothing) {
  const auto json = GenerationJson(v1::Complete());
  EXPECT_EQ(json["speculation"]["acceptance_rate"], 0.0);
  EXPECT_EQ(json["speculation"]["mean_accepted_length"], 0.0);
  EXPECT_EQ(json["timing"]["tokens_per_second"], 0.0);
  EXPECT_TRUE(json["token_ids"].is_array());
}

TEST(JsonTextTest, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonText("a\xff", -1), "\"a\xef\xbf\xbd\"");
}

TEST(MethodNamesTest, NamesAndParsingAgree) {
  for (const char* name : {"ar", "sd", "pearl", "async"}) {
    EXPECT_EQ(MethodName(*ParseMethod(name)), name);
  }
  EXPECT_EQ(ParseMethod("AR").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseVerification("").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ParseVerification("ratio"), v1::VERIFICATION_RATIO);
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_EOS), "eos");
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_STOP), "stop");
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_CANCELLED), "cancelled");
}

}  // namespace
}  // namespace nacre::tools
