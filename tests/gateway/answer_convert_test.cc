#include "gateway/answer_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/token_text.h"

namespace nacre::gateway {
namespace {

class AnswerConvertTest : public ::testing::Test {
 protected:
  AnswerFormat Format() {
    return AnswerFormat(&request_, tokenizer_.get(), {"id", "m", "f", 5},
                        {{1, 503}});
  }
  static v1::Complete Complete() {
    v1::Complete complete;
    complete.set_text("hi");
    complete.set_finish_reason(v1::FINISH_REASON_STOP);
    complete.set_stop_match("x");
    complete.set_numerics_id("n");
    complete.mutable_usage()->set_prompt_tokens(2);
    complete.mutable_usage()->set_cached_tokens(1);
    complete.mutable_usage()->set_completion_tokens(3);
    v1::TokenLogprobs* const token = complete.add_logprobs();
    token->set_token_id(2593);
    token->set_logprob(-0.5f);
    token->add_top_ids(503);
    token->add_top_logprobs(-0.25f);
    return complete;
  }

  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      *tokenizer::LoadTokenizer(NACRE_MODELS "/target");
  ApiRequest request_;
};

TEST_F(AnswerConvertTest, AChatHasAMessageAndLogprobsOfItsKind) {
  request_.is_chat = request_.answer.wants_logprobs = true;
  const OrderedJson body = OrderedJson::parse(Format().Whole({{Complete()}}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 5);
  const OrderedJson& choice = body["choices"][0];
  EXPECT_EQ(Dump(choice["message"]),
            R"({"role":"assistant","content":"hi","refusal":null})");
  EXPECT_EQ(choice["stop_reason"], "x");
  EXPECT_EQ(Dump(choice["logprobs"]["content"][0]),
            R"({"token":" main","logprob":-0.5,"bytes":[32,109,97,105,110],)"
            R"("top_logprobs":[{"token":" def","logprob":-0.25,)"
            R"("bytes":[32,100,101,102]}]})");
  EXPECT_EQ(Dump(body["usage"]),
            R"({"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,)"
            R"("prompt_tokens_details":{"cached_tokens":1},)"
            R"("completion_tokens_details":{"reasoning_tokens":0}})");
}

// lm-eval looks for the drawn token among the likeliest.
TEST_F(AnswerConvertTest, ACompletionsLogprobsHoldTheDrawnToken) {
  request_.answer.wants_logprobs = true;
  const OrderedJson body = OrderedJson::parse(Format().Whole({{Complete()}}));
  EXPECT_EQ(Dump(body["choices"][0]["logprobs"]),
            R"({"tokens":[" main"],"token_logprobs":[-0.5],)"
            R"("top_logprobs":[{" def":-0.25," main":-0.5}],)"
            R"("text_offset":[0]})");
  request_.answer.tokens_as_ids = true;
  const OrderedJson ids = OrderedJson::parse(Format().Whole({{Complete()}}));
  EXPECT_EQ(ids["choices"][0]["logprobs"]["tokens"][0], "token_id:2593");
}

// What lm-eval adds up: all tokens of the prompt, of which the first has none.
TEST_F(AnswerConvertTest, AnEchoedPromptHasItsLogprobsToo) {
  request_.answer.wants_logprobs = request_.answer.echo = true;
  request_.prompts = {std::vector<uint32_t>{1, 503}};
  request_.generate.mutable_output()->set_logprobs(1);
  v1::Complete complete = Complete();
  v1::TokenLogprobs* const token = complete.add_prompt_logprobs();
  token->set_token_id(503);
  token->set_logprob(-2.0f);
  token->add_top_ids(2593);
  token->add_top_logprobs(-1.0f);
  token->add_top_ids(7);  // more than logprobs: prompt_logprobs asked for it
  token->add_top_logprobs(-1.5f);
  const OrderedJson whole = OrderedJson::parse(Format().Whole({{complete}}));
  const std::string expected =
      R"({"tokens":["<s>"," def"," main"],)"
      R"("token_logprobs":[null,-2.0,-0.5],)"
      R"("top_logprobs":[null,{" main":-1.0," def":-2.0},)"
      R"({" def":-0.25," main":-0.5}],"text_offset":[0,3,7]})";
  EXPECT_EQ(Dump(whole["choices"][0]["logprobs"]), expected);
  EXPECT_FALSE(whole["choices"][0].contains("prompt_logprobs"));

  // A stream's come with the first piece.
  AnswerFormat format = Format();
  EXPECT_EQ(format.First(0), "");
  v1::Chunk chunk;
  *chunk.mutable_prompt_logprobs() = complete.prompt_logprobs();
  *chunk.mutable_logprobs() = complete.logprobs();
  chunk.set_text(" main");
  const OrderedJson first =
      OrderedJson::parse(format.Piece(0, chunk))["choices"][0];
  EXPECT_EQ(Dump(first["logprobs"]), expected);
  EXPECT_EQ(
      first["text"],
      whole["choices"][0]["text"].get<std::string>().substr(0, 3) + " main");
  const OrderedJson second =
      OrderedJson::parse(format.Piece(0, chunk))["choices"][0];
  EXPECT_EQ(second["text"], " main");
  EXPECT_EQ(Dump(second["logprobs"]["tokens"]), R"([" main"])");
}

TEST_F(AnswerConvertTest, VllmsPromptLogprobsHaveIdsAndRanks) {
  request_.answer.prompt_logprobs = 1;
  v1::Complete complete = Complete();
  v1::TokenLogprobs* const token = complete.add_prompt_logprobs();
  token->set_token_id(503);
  token->set_logprob(-2.0f);
  for (const uint32_t id : {2593u, 503u}) {
    token->add_top_ids(id);
    token->add_top_logprobs(-1.0f);
  }
  const std::string expected =
      R"([null,{"503":{"logprob":-2.0,"rank":null,"decoded_token":" def"},)"
      R"("2593":{"logprob":-1.0,"rank":1,"decoded_token":" main"}}])";
  EXPECT_EQ(Dump(OrderedJson::parse(
                Format().Whole({{complete}}))["choices"][0]["prompt_logprobs"]),
            expected);
  request_.answer.prompt_logprobs = 2;
  EXPECT_EQ(
      OrderedJson::parse(Format().Whole(
          {{complete}}))["choices"][0]["prompt_logprobs"][1]["503"]["rank"],
      2);
  request_.is_chat = true;
  EXPECT_EQ(OrderedJson::parse(Format().Whole({{complete}}))["prompt_logprobs"]
                .size(),
            2u);
}

TEST_F(AnswerConvertTest, TheStopReasonIsTheStringOrTheTokenThatEndedIt) {
  v1::Complete complete = Complete();
  complete.add_token_ids(2593);
  complete.add_token_ids(7);
  const auto whole = [&] {
    return OrderedJson::parse(
        Format().Whole({{complete}}))["choices"][0]["stop_reason"];
  };
  const auto streamed = [&] {
    AnswerFormat format = Format();
    v1::Chunk chunk;
    *chunk.mutable_token_ids() = complete.token_ids();
    format.Piece(0, chunk);
    v1::Complete last = complete;
    last.clear_token_ids();
    return OrderedJson::parse(
        format.Last(0, last))["choices"][0]["stop_reason"];
  };
  EXPECT_EQ(whole(), "x");
  EXPECT_EQ(streamed(), "x");
  complete.clear_stop_match();
  EXPECT_EQ(whole(), 7);
  EXPECT_EQ(streamed(), 7);
  for (const auto finish : {v1::FINISH_REASON_EOS, v1::FINISH_REASON_LENGTH}) {
    complete.set_finish_reason(finish);
    EXPECT_TRUE(whole().is_null());
    EXPECT_TRUE(streamed().is_null());
  }
}

TEST_F(AnswerConvertTest, OffsetsGoOnOverTheEventsOfAStream) {
  request_.answer.wants_logprobs = true;
  AnswerFormat format = Format();
  v1::Chunk chunk;
  *chunk.mutable_logprobs() = Complete().logprobs();
  chunk.add_token_ids(2593);
  for (const int offset : {0, 5, 10}) {
    const OrderedJson event = OrderedJson::parse(format.Piece(0, chunk));
    EXPECT_EQ(event["choices"][0]["logprobs"]["text_offset"][0], offset);
  }
}

TEST_F(AnswerConvertTest, EventsSayOnlyWhatWasAskedFor) {
  AnswerFormat format = Format();
  v1::Chunk chunk;
  chunk.add_token_ids(5);
  EXPECT_EQ(format.First(0), "");
  EXPECT_EQ(format.Piece(0, chunk), "");  // holds back half a character
  request_.answer.return_token_ids = true;
  EXPECT_EQ(
      OrderedJson::parse(format.Piece(0, chunk))["choices"][0]["token_ids"][0],
      5);
  EXPECT_EQ(
      OrderedJson::parse(format.First(0))["choices"][0]["prompt_token_ids"][1],
      503);
  request_.answer.usage.continuous = true;
  EXPECT_EQ(
      OrderedJson::parse(format.Piece(0, chunk))["usage"]["completion_tokens"],
      3);
  request_.is_chat = true;
  EXPECT_EQ(Dump(OrderedJson::parse(format.First(0))["choices"][0]["delta"]),
            R"({"role":"assistant","content":""})");
}

// Events are made as text: it is what the library makes of what they say.
TEST_F(AnswerConvertTest, EventsAreOneLineOfJsonInTheOrderOfTheApi) {
  for (const bool is_chat : {false, true}) {
    request_.is_chat = is_chat;
    request_.answer.usage.included = true;
    AnswerFormat format = Format();
    v1::Chunk chunk;
    chunk.add_token_ids(5);
    chunk.set_text("\"\n\xC3\xA4\x7F\xFF");
    const std::string event = format.Piece(0, chunk);
    const std::string fingerprint =
        OrderedJson::parse(event)["system_fingerprint"];
    const std::string text = R"("\"\n)"
                             "\xC3\xA4\x7F\xEF\xBF\xBD\"";
    EXPECT_EQ(event,
              absl::StrCat(
                  R"({"id":"id","object":")",
                  is_chat ? "chat.completion.chunk" : "text_completion",
                  R"(","created":5,"model":"m","system_fingerprint":")",
                  fingerprint, R"(","choices":[{"index":0,)",
                  is_chat ? R"("delta":{"content":)" : R"("text":)", text,
                  is_chat ? "}" : "",
                  R"(,"logprobs":null,"finish_reason":null}],"usage":null})"));
  }
}

TEST_F(AnswerConvertTest, EventsWithAllThatMayBeAskedForAreOneLineToo) {
  request_.answer.wants_logprobs = request_.answer.return_token_ids = true;
  request_.answer.usage.continuous = request_.resumption.offered = true;
  for (const bool is_chat : {false, true}) {
    request_.is_chat = is_chat;
    AnswerFormat format = Format();
    v1::Start start;
    start.set_model_fingerprint("f");
    start.set_seed(3);
    format.SetStart(start);
    v1::Chunk chunk;
    chunk.add_token_ids(2593);
    chunk.set_text(" main");
    *chunk.mutable_logprobs() = Complete().logprobs();
    chunk.mutable_trace()->set_window(2);
    for (const bool has_start : {true, false}) {
      const std::string event = format.Piece(0, chunk);
      const OrderedJson json = OrderedJson::parse(event);
      EXPECT_EQ(Dump(json), event);
      EXPECT_EQ(json["choices"][0]["token_ids"][0], 2593);
      EXPECT_EQ(json["choices"][0]["nacre"]["window"], 2);
      EXPECT_TRUE(json["usage"].is_object());
      EXPECT_EQ(json.contains("nacre"), has_start);
    }
  }
}

// The head of events is kept: not over a change of what it says.
TEST_F(AnswerConvertTest, LaterEventsHaveTheFingerprintThatCame) {
  AnswerFormat format = Format();
  v1::Chunk chunk;
  chunk.set_text("a");
  const auto fingerprint = [&] {
    return OrderedJson::parse(format.Piece(0, chunk))["system_fingerprint"]
        .get<std::string>();
  };
  const std::string before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  format.SetNumericsId("n");
  EXPECT_NE(fingerprint(), before);
}

TEST_F(AnswerConvertTest, TheFingerprintNamesModelAndNumerics) {
  const auto of = [this](const std::string& numerics) {
    AnswerFormat format = Format();
    format.SetNumericsId(numerics);
    request_.is_chat = true;
    return OrderedJson::parse(format.First(0))["system_fingerprint"]
        .get<std::string>();
  };
  EXPECT_THAT(of("a"), ::testing::MatchesRegex("nacre-[0-9.]+-[0-9a-f]{8}"));
  EXPECT_EQ(of("a"), of("a"));
  EXPECT_NE(of("a"), of("b"));
}

// The model may have changed since a coordinator said what it serves.
TEST_F(AnswerConvertTest, TheFingerprintIsThatOfTheAnswer) {
  const auto of = [this](const std::string& model) {
    AnswerFormat format = Format();
    format.SetNumericsId("a");
    if (!model.empty()) {
      v1::Start start;
      start.set_model_fingerprint(model);
      start.set_numerics_id("a");
      format.SetStart(start);
      // Of a resume of the gateway's own, or of another prompt.
      start.set_model_fingerprint("later");
      format.SetStart(start);
    }
    request_.is_chat = true;
    return OrderedJson::parse(format.First(0))["system_fingerprint"]
        .get<std::string>();
  };
  EXPECT_EQ(of("x"), of("x"));
  EXPECT_NE(of("x"), of("y"));
  EXPECT_NE(of("x"), of(""));
}

// What aiperf checks before it believes a record.
TEST_F(AnswerConvertTest, MetricsFitTogether) {
  v1::Complete complete = Complete();
  v1::SpeculationReport* const report = complete.mutable_speculation();
  report->set_method(v1::METHOD_ASYNC);
  report->set_window(4);
  report->set_verified(3);
  for (const int rounds : {5, 2, 1}) report->add_acceptance_histogram(rounds);
  const OrderedJson metrics = MetricsOf({{complete, complete}}, false);
  const OrderedJson& found = metrics["speculative_decoding"];
  const auto histogram =
      found["acceptance_histogram"].get<std::vector<int64_t>>();
  EXPECT_EQ(histogram, (std::vector<int64_t>{10, 4, 2, 0, 0}));
  EXPECT_EQ(found["num_spec_tokens"], 4);
  EXPECT_EQ(found["num_spec_steps"], 16);
  EXPECT_EQ(found["num_accepted_draft_tokens"], 8);
  EXPECT_EQ(found["num_draft_tokens"], 8);  // never below the accepted
  EXPECT_EQ(found["mean_acceptance_length"], 1.5);
  EXPECT_FALSE(
      UsageOf({{complete}}, false)["completion_tokens_details"].contains(
          "accepted_prediction_tokens"));
  report->set_verified(6);
  EXPECT_EQ(Dump(UsageOf({{complete, complete}}, true)),
            R"({"prompt_tokens":2,"completion_tokens":6,"total_tokens":8,)"
            R"("prompt_tokens_details":{"cached_tokens":1},)"
            R"("completion_tokens_details":{"reasoning_tokens":0,)"
            R"("accepted_prediction_tokens":8,)"
            R"("rejected_prediction_tokens":4}})");
  complete.mutable_speculation()->set_method(v1::METHOD_AR);
  EXPECT_FALSE(MetricsOf({{complete}}, false).contains("speculative_decoding"));
  EXPECT_EQ(
      UsageOf({{complete}},
              true)["completion_tokens_details"]["rejected_prediction_tokens"],
      0);
}

// Those are in no number of vLLM's.
TEST_F(AnswerConvertTest, MetricsTellOfTheTargetsOwnDrafts) {
  v1::Complete complete = Complete();
  v1::SpeculationReport* const report = complete.mutable_speculation();
  report->set_suffix_proposed(49);
  report->set_suffix_accepted(40);
  report->set_prepared(3);
  report->add_ranks(7);
  report->add_ranks(5);
  OrderedJson found = MetricsOf({{complete}}, false)["nacre"];
  EXPECT_EQ(found["suffix_proposed"], 49);
  EXPECT_EQ(found["suffix_accepted"], 40);
  EXPECT_FALSE(found.contains("ranks"));
  found = MetricsOf({{complete}}, true)["nacre"];
  EXPECT_EQ(found["ranks"], (std::vector<int>{7, 5}));
  EXPECT_EQ(found["prepared"], 3);
}

// As in the start of a stream: numbers of JavaScript have 53 bits.
TEST_F(AnswerConvertTest, TheSeedOfMetricsIsAString) {
  v1::Complete complete = Complete();
  complete.set_seed(~uint64_t{0});
  EXPECT_EQ(MetricsOf({{complete}}, false)["nacre"]["seed"],
            "18446744073709551615");
}

TEST_F(AnswerConvertTest, HalvesOfCharactersAreBytes) {
  const auto id = tokenizer_->PieceToId("<0xE2>");
  ASSERT_TRUE(id.has_value());
  const TokenText half = TextOf(*tokenizer_, static_cast<uint32_t>(*id));
  EXPECT_EQ(half.text, "\xEF\xBF\xBD");
  EXPECT_EQ(half.bytes, "\xE2");
  EXPECT_EQ(TextOf(*tokenizer_, 2).text, "</s>");
  EXPECT_EQ(TextOf(*tokenizer_, 4000000).text, "");
}

}  // namespace
}  // namespace nacre::gateway
