#include "coordinator/api/request_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/refusal.h"
#include "tests/coordinator/api/parsed_request.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RequestConvertTest : public ParsedRequestTest {
 protected:
  RequestConvertTest() { request_.set_text("abc"); }
};

TEST_F(RequestConvertTest, UnsetFieldsTakeTheirDefaults) {
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->prompt_ids,
              ElementsAre(ByteTokenizer::kBos, 'a', 'b', 'c'));
  EXPECT_EQ(spec->request_id.size(), 16u);
  EXPECT_EQ(spec->max_tokens, 97);  // what the context leaves
  EXPECT_EQ(spec->sampling.temperature, 0.0f);
  EXPECT_EQ(spec->sampling.top_k, 0);
  EXPECT_EQ(spec->sampling.top_p, 1.0f);
  EXPECT_EQ(spec->sampling.min_p, 0.0f);
  EXPECT_EQ(spec->sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(spec->sampling.seed, 0u);
  EXPECT_TRUE(spec->stop.empty());
  EXPECT_FALSE(spec->ignore_eos);
  EXPECT_FALSE(spec->include_stop_string);
  EXPECT_FALSE(spec->stream);
  EXPECT_TRUE(spec->skip_special_tokens);
  EXPECT_FALSE(spec->trace);
  EXPECT_EQ(spec->method, speculation::Method::kAsync);
  EXPECT_FALSE(spec->window.has_value());

  model_.context_length = 4096;
  EXPECT_EQ(Parse()->max_tokens, 256);
}

TEST_F(RequestConvertTest, SetFieldsArriveUnchanged) {
  request_.set_request_id("mine");
  request_.set_model("pearl");
  request_.mutable_token_ids()->add_ids(299);
  v1::SamplingParams* sampling = request_.mutable_sampling();
  sampling->set_temperature(0.5f);
  sampling->set_top_k(4000000000u);
  sampling->set_top_p(0.25f);
  sampling->set_min_p(0.125f);
  sampling->set_repetition_penalty(1.5f);
  sampling->set_frequency_penalty(-2.0f);
  sampling->set_presence_penalty(2.0f);
  sampling->set_seed(~uint64_t{0});
  v1::StopParams* stop = request_.mutable_stop();
  stop->set_max_tokens(100);
  stop->add_stop("end");
  stop->add_stop_token_ids(299);
  stop->set_ignore_eos(true);
  stop->set_include_stop_str_in_output(true);
  request_.mutable_output()->set_stream(true);
  request_.mutable_output()->set_skip_special_tokens(false);
  request_.mutable_output()->set_trace(true);
  request_.mutable_speculation()->set_method(v1::METHOD_PEARL);
  request_.mutable_speculation()->set_window(64);
  request_.mutable_speculation()->set_policy("constant");
  request_.mutable_speculation()->set_verification(v1::VERIFICATION_EXACT);

  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->request_id, "mine");
  EXPECT_THAT(spec->prompt_ids, ElementsAre(299));  // no BOS is added
  EXPECT_EQ(spec->sampling.temperature, 0.5f);
  EXPECT_EQ(spec->sampling.top_k, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(spec->sampling.top_p, 0.25f);
  EXPECT_EQ(spec->sampling.min_p, 0.125f);
  EXPECT_EQ(spec->sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(spec->sampling.frequency_penalty, -2.0f);
  EXPECT_EQ(spec->sampling.presence_penalty, 2.0f);
  EXPECT_EQ(spec->sampling.seed, ~uint64_t{0});
  EXPECT_EQ(spec->max_tokens, 100);
  EXPECT_THAT(spec->stop, ElementsAre("end"));
  EXPECT_THAT(spec->stop_token_ids, ElementsAre(299));
  EXPECT_TRUE(spec->ignore_eos);
  EXPECT_TRUE(spec->include_stop_string);
  EXPECT_TRUE(spec->stream);
  EXPECT_FALSE(spec->skip_special_tokens);
  EXPECT_TRUE(spec->trace);
  EXPECT_EQ(spec->method, speculation::Method::kPearl);
  EXPECT_EQ(spec->window, 64);
}

TEST_F(RequestConvertTest, ASeedIsDrawnOnlyWhenSamplingWithoutOne) {
  request_.mutable_sampling()->set_temperature(1.0f);
  // Two equal draws of 64 bits would be a broken generator.
  EXPECT_NE(Parse()->sampling.seed, Parse()->sampling.seed);
  request_.mutable_sampling()->set_seed(0);
  EXPECT_EQ(Parse()->sampling.seed, 0u);
}

TEST_F(RequestConvertTest, RequestIdsAreDrawnApart) {
  EXPECT_NE(Parse()->request_id, Parse()->request_id);
}

TEST_F(RequestConvertTest, AMissingPromptIsInvalid) {
  request_.clear_prompt();
  ExpectInvalid("no prompt");
}

TEST_F(RequestConvertTest, AnEmptyPromptIsInvalidUnlessTheModelHasABos) {
  request_.set_text("");
  EXPECT_THAT(Parse()->prompt_ids, ElementsAre(ByteTokenizer::kBos));
  const ByteTokenizer no_bos(/*adds_bos=*/false);
  EXPECT_EQ(ParseRequest(FieldsOf(request_), no_bos, model_).status().code(),
            absl::StatusCode::kInvalidArgument);
  request_.mutable_token_ids();
  ExpectInvalid("empty");
}

TEST_F(RequestConvertTest, TheTokenizersErrorIsTheAnswer) {
  request_.set_text("a\x01");
  ExpectInvalid("byte 1 is not text");
}

TEST_F(RequestConvertTest, PromptIdsOutsideTheVocabularyAreInvalid) {
  request_.mutable_token_ids()->add_ids(0);
  request_.mutable_token_ids()->add_ids(300);
  ExpectInvalid("prompt token id 300 at index 1");
  ExpectInvalid("vocabulary of 300");
  request_.mutable_token_ids()->set_ids(1, 0xFFFFFFFFu);
  ExpectInvalid("4294967295");
}

TEST_F(RequestConvertTest, AnotherModelIsNotFound) {
  request_.set_model("ruby");
  ExpectError(absl::StatusCode::kNotFound, "\"ruby\"");
  ExpectError(absl::StatusCode::kNotFound, "\"pearl\"");
}

TEST_F(RequestConvertTest, ALongRequestIdIsInvalid) {
  request_.set_request_id(std::string(256, 'x'));
  EXPECT_TRUE(Parse().ok());
  request_.set_request_id(std::string(257, 'x'));
  ExpectInvalid("257 bytes");
}

TEST_F(RequestConvertTest, TheNumericsIdMayBeAskedFor) {
  EXPECT_EQ(Parse()->numerics_id, "");
  request_.set_numerics_id(std::string(1024, 'x'));
  EXPECT_EQ(Parse()->numerics_id, std::string(1024, 'x'));
  request_.set_numerics_id(std::string(1025, 'x'));
  ExpectInvalid("numerics_id has 1025 bytes, at most 1024");
}

TEST_F(RequestConvertTest, ThePromptsPrefixesAreThere) {
  for (uint32_t id = 1; id <= 40; ++id) {
    request_.mutable_token_ids()->add_ids(id);
  }
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->prefixes.size(), 2u);
  EXPECT_EQ(spec->prefixes[0].tokens, 32);
  EXPECT_EQ(spec->prefixes[0].hash, PrefixesOf(spec->prompt_ids)[0].hash);
}

TEST_F(RequestConvertTest, SamplingParametersOutOfRangeAreInvalid) {
  struct Case {
    const char* field;
    void (v1::SamplingParams::*set)(float);
    float value;
  };
  for (const Case& bad : {
           Case{"temperature", &v1::SamplingParams::set_temperature, -0.5f},
           Case{"temperature", &v1::SamplingParams::set_temperature, kNan},
           Case{"temperature", &v1::SamplingParams::set_temperature, kInfinity},
           Case{"top_p", &v1::SamplingParams::set_top_p, 0.0f},
           Case{"top_p", &v1::SamplingParams::set_top_p, 1.5f},
           Case{"top_p", &v1::SamplingParams::set_top_p, kNan},
           Case{"min_p", &v1::SamplingParams::set_min_p, -0.5f},
           Case{"min_p", &v1::SamplingParams::set_min_p, 1.5f},
           Case{"min_p", &v1::SamplingParams::set_min_p, kNan},
           Case{"repetition_penalty",
                &v1::SamplingParams::set_repetition_penalty, 0.0f},
           Case{"repetition_penalty",
                &v1::SamplingParams::set_repetition_penalty, kInfinity},
           Case{"frequency_penalty", &v1::SamplingParams::set_frequency_penalty,
                -2.5f},
           Case{"frequency_penalty", &v1::SamplingParams::set_frequency_penalty,
                kNan},
           Case{"presence_penalty", &v1::SamplingParams::set_presence_penalty,
                2.5f},
           Case{"presence_penalty", &v1::SamplingParams::set_presence_penalty,
                -kInfinity},
       }) {
    request_.clear_sampling();
    (request_.mutable_sampling()->*bad.set)(bad.value);
    ExpectInvalid(bad.field);
  }
}

TEST_F(RequestConvertTest, AContextOverrunNamesTheNumbers) {
  request_.mutable_stop()->set_max_tokens(98);
  ExpectInvalid(
      "CONTEXT_LENGTH_EXCEEDED: prompt of 4 tokens + max_tokens 98 is over the "
      "context of 101");
  request_.mutable_stop()->set_max_tokens(0xFFFFFFFFu);
  ExpectInvalid("max_tokens 4294967295");
  request_.mutable_stop()->set_max_tokens(97);
  EXPECT_TRUE(Parse().ok());

  request_.clear_stop();
  request_.set_text(std::string(100, 'x'));  // and BOS
  ExpectInvalid("CONTEXT_LENGTH_EXCEEDED: the prompt has 101 tokens");
  request_.set_text(std::string(99, 'x'));
  EXPECT_EQ(Parse()->max_tokens, 1);
}

TEST_F(RequestConvertTest, MaxTokensOfZeroIsInvalid) {
  request_.mutable_stop()->set_max_tokens(0);
  ExpectInvalid("max_tokens is 0");
}

TEST_F(RequestConvertTest, StopStringsHaveLimits) {
  for (int i = 0; i < 16; ++i) {
    request_.mutable_stop()->add_stop(std::string(1024, 'x'));
  }
  EXPECT_TRUE(Parse().ok());
  request_.mutable_stop()->add_stop("x");
  ExpectInvalid("17 stop strings, at most 16");
  request_.clear_stop();
  request_.mutable_stop()->add_stop("");
  ExpectInvalid("0 bytes");
  request_.mutable_stop()->set_stop(0, std::string(1025, 'x'));
  ExpectInvalid("1025 bytes");
}

TEST_F(RequestConvertTest, StopTokenIdsHaveLimits) {
  for (int i = 0; i < 64; ++i) request_.mutable_stop()->add_stop_token_ids(i);
  EXPECT_TRUE(Parse().ok());
  request_.mutable_stop()->add_stop_token_ids(1);
  ExpectInvalid("65 stop token ids, at most 64");
  request_.clear_stop();
  request_.mutable_stop()->add_stop_token_ids(300);
  ExpectInvalid("stop token id 300");
}

TEST_F(RequestConvertTest, EveryMethodIsKnownAndOthersAreInvalid) {
  using speculation::Method;
  for (const auto& [proto, method] :
       {std::pair{v1::METHOD_UNSPECIFIED, Method::kAsync},
        std::pair{v1::METHOD_AR, Method::kAr},
        std::pair{v1::METHOD_SD, Method::kSd},
        std::pair{v1::METHOD_PEARL, Method::kPearl},
        std::pair{v1::METHOD_ASYNC, Method::kAsync}}) {
    request_.mutable_speculation()->set_method(proto);
    EXPECT_EQ(Parse()->method, method);
  }
  request_.mutable_speculation()->set_method(static_cast<v1::Method>(77));
  ExpectInvalid("unknown speculation method 77");
}

TEST_F(RequestConvertTest, AMessageAboutALongNameIsShort) {
  request_.set_model(std::string(20480, 'm'));
  ExpectError(absl::StatusCode::kNotFound,
              "mmm...\" of 20480 bytes is not served; \"pearl\" is");
  EXPECT_LT(Parse().status().message().size(), 200u);
  request_.clear_model();
  v1::SpeculationOptions* options = request_.mutable_speculation();
  for (std::string* name : {options->mutable_policy(), options->mutable_tree(),
                            options->mutable_ablation()}) {
    *name = std::string(20480, 'm');
    ExpectInvalid("20480 bytes");
    EXPECT_LT(Parse().status().message().size(), 400u);
    name->clear();
  }
}

// Counts what is asked of it, and has no token.
class CountingTokenizer final : public tokenizer::Tokenizer {
 public:
  // One piece of so many bytes.
  explicit CountingTokenizer(size_t longest) {
    vocabulary_ = tokenizer::Vocabulary({"a", std::string(longest, 'b'), "cc"});
  }
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view, tokenizer::EncodeOptions options) const override {
    ++num_encoded;
    max_ids = options.max_ids;
    return std::vector<int32_t>{0};
  }
  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool) const override {
    return nullptr;
  }

  mutable int num_encoded = 0;
  mutable size_t max_ids = 0;
};

TEST_F(RequestConvertTest, TokenizingAPromptEndsWhereTheContextDoes) {
  const CountingTokenizer tokenizer(/*longest=*/1000);
  request_.set_text(std::string(1000, 'x'));
  EXPECT_TRUE(ParseRequest(FieldsOf(request_), tokenizer, model_).ok());
  EXPECT_EQ(tokenizer.num_encoded, 1);
  EXPECT_EQ(tokenizer.max_ids, 101u);
}

TEST_F(RequestConvertTest, WhatIsWrongElsewhereSparesTheTokenizer) {
  const CountingTokenizer tokenizer(/*longest=*/10);
  request_.mutable_sampling()->set_temperature(-1.0f);
  EXPECT_FALSE(ParseRequest(FieldsOf(request_), tokenizer, model_).ok());
  request_.clear_sampling();
  request_.mutable_speculation()->set_policy("svpi");
  EXPECT_FALSE(ParseRequest(FieldsOf(request_), tokenizer, model_).ok());
  EXPECT_EQ(tokenizer.num_encoded, 0);
}

// Whether a path names a field of GenerateRequest.
bool IsField(absl::string_view path) {
  const google::protobuf::Descriptor* message =
      v1::GenerateRequest::descriptor();
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    const google::protobuf::FieldDescriptor* const field =
        message == nullptr ? nullptr
                           : message->FindFieldByName(std::string(name));
    if (field == nullptr) return false;
    message = field->message_type();
  }
  return true;
}

TEST_F(RequestConvertTest, EachErrorNamesTheFieldAtFault) {
  using Change = void (*)(v1::GenerateRequest*);
  const std::pair<const char*, Change> cases[] = {
      {"model", [](auto* r) { r->set_model("other"); }},
      {"n", [](auto* r) { r->set_n(17); }},
      {"request_id", [](auto* r) { r->set_request_id(std::string(257, 'i')); }},
      {"numerics_id",
       [](auto* r) { r->set_numerics_id(std::string(1025, 'i')); }},
      {"text", [](auto* r) { r->set_text(std::string(5000, 'a')); }},
      {"token_ids", [](auto* r) { r->mutable_token_ids()->add_ids(300); }},
      {"token_ids", [](auto* r) { r->mutable_token_ids(); }},
      {"sampling.temperature",
       [](auto* r) { r->mutable_sampling()->set_temperature(-1); }},
      {"sampling.top_p", [](auto* r) { r->mutable_sampling()->set_top_p(2); }},
      {"sampling.logit_bias",
       [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[300]; }},
      {"sampling.logit_bias",
       [](auto* r) {
         (*r->mutable_sampling()->mutable_logit_bias())[3] = 101;
       }},
      {"stop.stop", [](auto* r) { r->mutable_stop()->add_stop(""); }},
      {"stop.stop_token_ids",
       [](auto* r) { r->mutable_stop()->add_stop_token_ids(300); }},
      {"stop.max_tokens",
       [](auto* r) { r->mutable_stop()->set_max_tokens(0); }},
      {"stop.max_tokens",
       [](auto* r) { r->mutable_stop()->set_max_tokens(1 << 20); }},
      {"stop.min_tokens",
       [](auto* r) {
         r->mutable_stop()->set_max_tokens(1);
         r->mutable_stop()->set_min_tokens(2);
       }},
      {"speculation.method",
       [](auto* r) {
         r->mutable_speculation()->set_method(static_cast<v1::Method>(99));
       }},
      {"speculation.window",
       [](auto* r) { r->mutable_speculation()->set_window(0); }},
      {"speculation.policy",
       [](auto* r) { r->mutable_speculation()->set_policy("none-such"); }},
      {"speculation.tree",
       [](auto* r) { r->mutable_speculation()->set_tree("oak"); }},
      {"speculation.tree",
       [](auto* r) {
         r->mutable_speculation()->set_policy("svip");
         r->mutable_speculation()->set_tree("best");
       }},
      {"speculation.ablation",
       [](auto* r) { r->mutable_speculation()->set_ablation("x"); }},
      {"speculation.oracle_token_ids",
       [](auto* r) { r->mutable_speculation()->add_oracle_token_ids(1); }},
      {"output.logprobs",
       [](auto* r) { r->mutable_output()->set_logprobs(21); }},
      {"output.prompt_logprobs",
       [](auto* r) { r->mutable_output()->set_prompt_logprobs(21); }},
      {"output.omit_streamed",
       [](auto* r) { r->mutable_output()->set_omit_streamed(true); }},
      {"resume", [](auto* r) { r->mutable_resume(); }}};
  for (const auto& [field, change] : cases) {
    request_.Clear();
    request_.set_text("abc");
    change(&request_);
    const absl::Status status = Parse().status();
    EXPECT_FALSE(status.ok()) << field;
    EXPECT_EQ(FieldOf(status), field) << status;
    EXPECT_TRUE(IsField(FieldOf(status))) << field;
  }
}

TEST_F(RequestConvertTest, TooManyPromptIdsAreRefusedByTheirNumber) {
  for (int i = 0; i < 101; ++i) request_.mutable_token_ids()->add_ids(999);
  ExpectInvalid("CONTEXT_LENGTH_EXCEEDED: the prompt has 101 tokens");
}

TEST_F(RequestConvertTest, OnlyAStreamMayOmitWhatWasStreamed) {
  request_.mutable_output()->set_omit_streamed(true);
  ExpectInvalid("omit_streamed is set without stream");
  request_.mutable_output()->set_stream(true);
  EXPECT_TRUE(Parse()->omit_streamed);
}

TEST_F(RequestConvertTest, OnlyAStreamHasChunksToTrace) {
  request_.mutable_output()->set_trace_chunks(true);
  ExpectInvalid("trace_chunks is set without stream");
  request_.mutable_output()->set_stream(true);
  EXPECT_TRUE(Parse()->trace_chunks);
}

TEST_F(RequestConvertTest, TheWindowHasLimits) {
  for (uint32_t window : {0u, 65u, 0xFFFFFFFFu}) {
    request_.mutable_speculation()->set_window(window);
    ExpectInvalid(absl::StrCat("window is ", window, ", must be in [1, 64]"));
  }
}

TEST_F(RequestConvertTest, PoliciesAreParsedWithTheirParameters) {
  request_.mutable_speculation()->set_policy("svip:h=0.4,max=12");
  EXPECT_EQ(Parse()->policy.text(), "svip:h=0.4,max=12");
  request_.mutable_speculation()->set_policy("svpi");
  ExpectInvalid("unknown length policy \"svpi\"");
  request_.mutable_speculation()->set_policy("svip:depth=3");
  ExpectInvalid("policy svip has no parameter \"depth\"; it has: h c max");
  for (const char* value : {"nan", "-1", "101", "much"}) {
    request_.mutable_speculation()->set_policy(absl::StrCat("svip:h=", value));
    ExpectInvalid(
        absl::StrCat("h is \"", value, "\", must be a number in [0, 100]"));
  }
  request_.mutable_speculation()->set_policy("disco:file=/etc/passwd");
  ExpectInvalid("policy disco has no parameter \"file\"");
}

TEST_F(RequestConvertTest, ARequestWithoutAPolicyHasTheServers) {
  const auto policy = [this](const std::string& server) {
    return ParseRequest(FieldsOf(request_), tokenizer_, model_,
                        *speculation::ParsePolicySpec(server))
        ->policy.text();
  };
  EXPECT_EQ(policy("svip"), "svip");
  request_.mutable_speculation()->set_policy("constant");
  EXPECT_EQ(policy("svip"), "constant");
}

TEST_F(RequestConvertTest, TheOracleNeedsARecordingAndTemperatureZero) {
  v1::SpeculationOptions* options = request_.mutable_speculation();
  options->set_policy("oracle");
  ExpectInvalid("oracle_token_ids has 0 ids, must have 1 to 1048576");
  options->add_oracle_token_ids(7);
  options->add_oracle_token_ids(299);
  EXPECT_THAT(Parse()->oracle_ids, ::testing::ElementsAre(7, 299));
  // Nothing of it that the answer cannot reach.
  request_.mutable_stop()->set_max_tokens(1);
  EXPECT_THAT(Parse()->oracle_ids, ::testing::ElementsAre(7));
  request_.clear_stop();
  request_.mutable_sampling()->set_temperature(0.5f);
  ExpectInvalid("policy oracle needs temperature 0, it is 0.5");
  request_.clear_sampling();
  options->add_oracle_token_ids(300);
  ExpectInvalid("oracle_token_ids: 300 is outside the vocabulary of 300");
  options->clear_oracle_token_ids();
  for (int i = 0; i <= 1 << 20; ++i) options->add_oracle_token_ids(1);
  ExpectInvalid("oracle_token_ids has 1048577 ids");
  options->set_policy("svip");
  ExpectInvalid("has 1048577 ids, but the policy is svip, not oracle");
}

TEST_F(RequestConvertTest, TheRatioTestIsOfSampledAnswersOnly) {
  using speculation::Verification;
  request_.mutable_speculation()->set_verification(v1::VERIFICATION_RATIO);
  request_.mutable_speculation()->set_policy("svip");
  EXPECT_EQ(Parse()->verification, Verification::kExact) << "greedy";
  request_.mutable_sampling()->set_temperature(0.5f);
  EXPECT_EQ(Parse()->verification, Verification::kRatio);
  // Whatever decides by the token drawn would bias it.
  request_.mutable_speculation()->set_policy("confidence");
  ExpectInvalid("policy confidence looks at the tokens drawn");
  request_.mutable_speculation()->set_method(v1::METHOD_AR);
  EXPECT_TRUE(Parse().ok());
  request_.mutable_speculation()->set_method(v1::METHOD_SD);
  request_.mutable_sampling()->set_temperature(0.0f);
  EXPECT_TRUE(Parse().ok());
}

TEST_F(RequestConvertTest, ATreeIsWithExactMatchAlone) {
  using speculation::TreeShape;
  EXPECT_EQ(Parse()->tree, TreeShape::kBest);
  v1::SpeculationOptions* options = request_.mutable_speculation();
  options->set_tree("chain");
  EXPECT_EQ(Parse()->tree, TreeShape::kChain);
  options->set_tree("best");
  EXPECT_EQ(Parse()->tree, TreeShape::kBest);
  options->set_tree("cape");
  EXPECT_EQ(Parse()->tree, TreeShape::kCape);
  options->set_tree("static:[[0],[0,1]]");
  EXPECT_EQ(Parse()->tree.nodes.size(), 2u);
  options->set_tree("static:[[0,1]]");
  ExpectInvalid("path [0,1] goes on from one that the list does not have");
  options->set_tree("comb");
  ExpectInvalid("tree \"comb\" is unknown; there are chain, best, cape");
  options->set_tree("best");
  options->set_policy("svip");
  ExpectInvalid("tree best cannot be with a length policy");
  options->set_tree("cape");
  EXPECT_EQ(Parse()->tree, TreeShape::kCape) << "its depth may be ended";
  options->clear_tree();
  EXPECT_EQ(Parse()->tree, TreeShape::kChain);
  options->clear_policy();
  options->set_tree("best");
  options->set_method(v1::METHOD_PEARL);
  EXPECT_EQ(Parse()->tree, TreeShape::kBest);
  options->clear_tree();
  EXPECT_EQ(Parse()->tree, TreeShape::kChain) << "unless it names one";
  options->set_tree("best");
  options->set_method(v1::METHOD_ASYNC);
  options->set_verification(v1::VERIFICATION_RATIO);
  EXPECT_EQ(Parse()->tree, TreeShape::kBest) << "greedy: exact";
  request_.mutable_sampling()->set_temperature(0.5f);
  ExpectInvalid("tree best cannot be with verification ratio");
}

TEST_F(RequestConvertTest, AnAblationIsOfPearlWithExactMatchAlone) {
  using speculation::Ablation;
  EXPECT_EQ(Parse()->ablation, Ablation::kNone);
  v1::SpeculationOptions* options = request_.mutable_speculation();
  options->set_ablation("no-pre-verify");
  ExpectInvalid("no-pre-verify is of method pearl, the request's is async");
  options->set_method(v1::METHOD_PEARL);
  EXPECT_EQ(Parse()->ablation, Ablation::kNoPreVerify);
  options->set_ablation("no-post-verify");
  EXPECT_EQ(Parse()->ablation, Ablation::kNoPostVerify);
  options->set_ablation("post-verify");
  ExpectInvalid(
      "ablation \"post-verify\" is not one of no-pre-verify, "
      "no-post-verify");
  options->set_ablation("no-post-verify");
  options->set_verification(v1::VERIFICATION_RATIO);
  EXPECT_EQ(Parse()->ablation, Ablation::kNoPostVerify) << "greedy: exact";
  request_.mutable_sampling()->set_temperature(0.5f);
  ExpectInvalid("no-post-verify cannot be with verification ratio");
}

TEST_F(RequestConvertTest, VerificationIsOneOfTwo) {
  request_.mutable_speculation()->set_verification(
      static_cast<v1::Verification>(9));
  ExpectInvalid("unknown verification 9");
}

TEST_F(RequestConvertTest, LogitBiasHasIdsOfTheVocabularyAndARange) {
  auto& bias = *request_.mutable_sampling()->mutable_logit_bias();
  bias[7] = -100.0f;
  bias[299] = 100.0f;
  EXPECT_THAT(Parse()->sampling.logit_bias,
              ::testing::UnorderedElementsAre(::testing::Pair(7, -100.0f),
                                              ::testing::Pair(299, 100.0f)));
  for (const float value : {100.5f, -100.5f, kNan, kInfinity}) {
    bias[7] = value;
    ExpectInvalid("logit_bias of token 7 is ");
  }
  bias[7] = 0.0f;
  bias[300] = 1.0f;
  ExpectInvalid("logit_bias token id 300 is outside the vocabulary of 300");
  model_.model_vocab_size = 5000;
  for (uint32_t id = 0; id < 1025; ++id) bias[id] = 1.0f;
  ExpectInvalid("logit_bias has 1025 entries, at most 1024");
}

TEST_F(RequestConvertTest, MinTokensIsAtMostMaxTokens) {
  request_.mutable_stop()->set_max_tokens(9);
  request_.mutable_stop()->set_min_tokens(9);
  EXPECT_EQ(Parse()->min_tokens, 9);
  request_.mutable_stop()->set_min_tokens(10);
  ExpectInvalid("min_tokens is 10, over max_tokens of 9");
  request_.mutable_stop()->clear_max_tokens();
  request_.mutable_stop()->set_min_tokens(98);
  ExpectInvalid("min_tokens is 98, over max_tokens of 97");
  model_.context_length = 5000;
  request_.mutable_stop()->set_min_tokens(300);
  EXPECT_EQ(Parse()->max_tokens, 300);
}

TEST_F(RequestConvertTest, ChoicesAreCountedAndHaveSeedsOfTheirOwn) {
  EXPECT_EQ(Parse()->num_choices, 1);
  request_.set_n(16);
  request_.mutable_sampling()->set_temperature(0.5f);
  request_.mutable_sampling()->set_seed(~uint64_t{0} - 1);
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_choices, 16);
  EXPECT_EQ(ChoiceOf(*spec, 0).sampling.seed, ~uint64_t{0} - 1);
  EXPECT_EQ(ChoiceOf(*spec, 1).sampling.seed, ~uint64_t{0});
  EXPECT_EQ(ChoiceOf(*spec, 2).sampling.seed, 0u);
  EXPECT_EQ(ChoiceOf(*spec, 15).sampling.seed, 13u);
  EXPECT_EQ(ChoiceOf(*spec, 15).choice, 15);
  EXPECT_EQ(ChoiceOf(*spec, 15).request_id, spec->request_id);
  EXPECT_NE(spec->call, nullptr);
  EXPECT_EQ(ChoiceOf(*spec, 15).call, ChoiceOf(*spec, 0).call);
  EXPECT_EQ(ChoiceOf(*spec, 15).prompt_ids, spec->prompt_ids);
  request_.set_n(0);
  ExpectInvalid("n is 0, must be in [1, 16]");
  request_.set_n(17);
  ExpectInvalid("n is 17, must be in [1, 16]");
}

// Where the first of them runs, the others run.
TEST_F(RequestConvertTest, TwoChoicesAreOneCallAlready) {
  EXPECT_EQ(Parse()->call, nullptr);
  request_.set_n(2);
  const absl::StatusOr<RequestSpec> spec = Parse();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_NE(spec->call, nullptr);
  EXPECT_EQ(ChoiceOf(*spec, 1).call, ChoiceOf(*spec, 0).call);
}

TEST_F(RequestConvertTest, LogprobsAndStatisticsAreAskedFor) {
  EXPECT_FALSE(Parse()->logprobs.has_value());
  EXPECT_FALSE(Parse()->detailed_stats);
  request_.mutable_output()->set_logprobs(0);
  EXPECT_EQ(Parse()->logprobs, 0);
  request_.mutable_output()->set_logprobs(20);
  EXPECT_EQ(Parse()->logprobs, 20);
  request_.mutable_output()->set_logprobs(21);
  ExpectInvalid("logprobs is 21, at most 20");
  request_.mutable_output()->clear_logprobs();
  request_.mutable_output()->set_spec_stats(v1::SPEC_STATS_LEVEL_DETAILED);
  EXPECT_TRUE(Parse()->detailed_stats);
  request_.mutable_output()->set_spec_stats(
      static_cast<v1::SpecStatsLevel>(12));
  ExpectInvalid("unknown spec_stats 12");
}

}  // namespace
}  // namespace nacre::coordinator
