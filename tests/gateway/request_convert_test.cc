#include "gateway/request_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nacre::gateway {
namespace {

// What is refused is in gateway_service_test.cc.
ApiRequest Convert(const std::string& text, bool is_chat = false) {
  OrderedJson body;
  auto error = ParseBody(text, &body);
  EXPECT_FALSE(error) << error->message;
  ApiRequest request;
  error = is_chat ? ConvertChat(body, {.temperature = 0.5}, &request)
                  : ConvertCompletion(body, {.temperature = 0.5}, &request);
  EXPECT_FALSE(error) << error->message;
  return request;
}

std::string ErrorOfBody(const std::string& text, bool is_chat = false) {
  OrderedJson body;
  if (const auto error = ParseBody(text, &body)) return error->message;
  ApiRequest request;
  const auto error = is_chat ? ConvertChat(body, {}, &request)
                             : ConvertCompletion(body, {}, &request);
  return error ? error->message : "";
}

// As answers show it: a number of 64 bits is not safe in JSON.
TEST(RequestConvertTest, ASeedMayBeWrittenInAString) {
  const ApiRequest request =
      Convert(R"({"prompt": "p", "seed": "18446744073709551615"})");
  EXPECT_EQ(request.generate.sampling().seed(), 18446744073709551615u);
  for (const char* bad : {"1e3", " 1", "1 ", "+1", "-1", "", "0x1"}) {
    EXPECT_EQ(
        ErrorOfBody(absl::StrCat(R"({"prompt": "p", "seed": ")", bad, R"("})")),
        absl::StrCat("seed is \"", bad,
                     "\", expected a whole number of 64 bits"));
  }
}

TEST(RequestConvertTest, EachFieldReachesTheService) {
  const ApiRequest request = Convert(R"({
    "prompt": "p", "model": "m", "max_tokens": 7, "temperature": 0.25,
    "top_p": 0.5, "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5,
    "frequency_penalty": -1, "presence_penalty": 2, "seed": 9,
    "logit_bias": {"5": -100, "6": 1.5}, "stop": ["a", "b"],
    "stop_token_ids": [3], "ignore_eos": true, "min_tokens": 2, "n": 3,
    "include_stop_str_in_output": true, "skip_special_tokens": false,
    "logprobs": 4, "stream": true, "request_id": "r",
    "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    "add_special_tokens": false, "return_token_ids": true,
    "nacre": {"method": "pearl", "window": 6, "policy": "svip:h=0.4",
              "tree": "static:[[0],[1]]",
              "verification": "ratio", "spec_stats": true, "suffixes": false,
              "numerics_id": "x", "trace": true}})");
  const v1::GenerateRequest& proto = request.generate;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(proto.n(), 3u);
  EXPECT_EQ(proto.request_id(), "r");
  EXPECT_EQ(proto.numerics_id(), "x");
  EXPECT_EQ(proto.sampling().temperature(), 0.25f);
  EXPECT_EQ(proto.sampling().top_p(), 0.5f);
  EXPECT_EQ(proto.sampling().top_k(), 4u);
  EXPECT_EQ(proto.sampling().min_p(), 0.125f);
  EXPECT_EQ(proto.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(proto.sampling().frequency_penalty(), -1.0f);
  EXPECT_EQ(proto.sampling().presence_penalty(), 2.0f);
  EXPECT_EQ(proto.sampling().seed(), 9u);
  EXPECT_EQ(proto.sampling().logit_bias().at(5), -100.0f);
  EXPECT_EQ(proto.sampling().logit_bias().at(6), 1.5f);
  EXPECT_EQ(proto.stop().stop(1), "b");
  EXPECT_EQ(proto.stop().stop_token_ids(0), 3u);
  EXPECT_TRUE(proto.stop().ignore_eos());
  EXPECT_EQ(proto.stop().min_tokens(), 2u);
  EXPECT_TRUE(proto.stop().include_stop_str_in_output());
  EXPECT_FALSE(proto.output().skip_special_tokens());
  EXPECT_EQ(proto.output().logprobs(), 4u);
  EXPECT_TRUE(proto.output().stream());
  EXPECT_EQ(proto.output().spec_stats(), v1::SPEC_STATS_LEVEL_DETAILED);
  EXPECT_TRUE(proto.output().trace_chunks());
  EXPECT_EQ(proto.speculation().method(), v1::METHOD_PEARL);
  EXPECT_EQ(proto.speculation().window(), 6u);
  EXPECT_EQ(proto.speculation().policy(), "svip:h=0.4");
  EXPECT_EQ(proto.speculation().tree(), "static:[[0],[1]]");
  EXPECT_EQ(proto.speculation().verification(), v1::VERIFICATION_RATIO);
  EXPECT_TRUE(proto.speculation().has_suffixes());
  EXPECT_FALSE(proto.speculation().suffixes());
  EXPECT_TRUE(request.answer.usage.included && request.answer.usage.continuous);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_TRUE(request.answer.return_token_ids);
  EXPECT_TRUE(request.ignored.empty());
}

TEST(RequestConvertTest, LogprobsOfThePromptAreAskedForWhereTheyAreShown) {
  const auto asked = [](const char* fields, bool is_chat = false) {
    const std::string prompt =
        is_chat ? R"("messages":[{"role":"user","content":"a"}])"
                : R"("prompt":"a")";
    const v1::OutputOptions output =
        Convert(absl::StrCat("{", prompt, ",", fields, "}").c_str(), is_chat)
            .generate.output();
    return output.has_prompt_logprobs()
               ? static_cast<int>(output.prompt_logprobs())
               : -1;
  };
  EXPECT_EQ(asked(R"("echo":true)"), -1);
  EXPECT_EQ(asked(R"("logprobs":3)"), -1);
  EXPECT_EQ(asked(R"("prompt_logprobs":null)"), -1);
  EXPECT_EQ(asked(R"("echo":true,"logprobs":0)"), 0);
  EXPECT_EQ(asked(R"("echo":true,"logprobs":3,"stream":true)"), 3);
  EXPECT_EQ(asked(R"("prompt_logprobs":2)"), 2);
  EXPECT_EQ(asked(R"("prompt_logprobs":2)", /*is_chat=*/true), 2);
  EXPECT_EQ(asked(R"("prompt_logprobs":2,"echo":true,"logprobs":3)"), 3);
  EXPECT_EQ(asked(R"("prompt_logprobs":4,"echo":true,"logprobs":3)"), 4);
}

TEST(RequestConvertTest, WhatIsNotSaidHasItsDefault) {
  const ApiRequest request = Convert(R"({"prompt": [1, 2], "x": 1})");
  EXPECT_EQ(request.generate.sampling().temperature(), 0.5f);
  EXPECT_FALSE(request.generate.sampling().has_seed());
  EXPECT_FALSE(request.generate.output().has_logprobs());
  EXPECT_FALSE(request.generate.output().trace_chunks());
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_EQ(std::get<1>(request.prompts[0]), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(request.ignored, std::vector<std::string>{"x"});
}

TEST(RequestConvertTest, ChatsAreNormalized) {
  const ApiRequest request = Convert(
      R"({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null}],
          "max_tokens": 3, "max_completion_tokens": 5, "logprobs": true,
          "chat_template_kwargs": {"enable_thinking": false}})",
      /*is_chat=*/true);
  EXPECT_EQ(request.messages[0]["content"], "a\nb");
  EXPECT_TRUE(request.messages[1]["content"].is_null());
  EXPECT_EQ(request.max_tokens, 5u);
  EXPECT_TRUE(request.answer.wants_logprobs);
  EXPECT_EQ(request.generate.output().logprobs(), 0u);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_EQ(request.template_values.named["enable_thinking"], false);
}

TEST(RequestConvertTest, AnEmptyPartOfAContentHasItsLine) {
  const ApiRequest request = Convert(
      R"({"messages": [{"role": "user", "content": [
            {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}]})",
      /*is_chat=*/true);
  EXPECT_EQ(request.messages[0]["content"], "\nb");
}

// A message of an assistant that called, with these arguments as JSON.
std::string ChatWithCall(const std::string& arguments) {
  return absl::StrCat(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls":
          [{"id": "1", "type": "function", "function": {"name": "f",
            "arguments": )",
      arguments, "}}]}]}");
}

TEST(RequestConvertTest, ArgumentsInAStringBecomeAnObject) {
  const auto arguments = [](const std::string& json) {
    const ApiRequest request = Convert(ChatWithCall(json), /*is_chat=*/true);
    return Dump(request.messages[0]["tool_calls"][0]["function"]["arguments"]);
  };
  EXPECT_EQ(arguments(R"("{\"b\": [1, \"x\"], \"a\": 2}")"),
            R"({"b":[1,"x"],"a":2})");
  EXPECT_EQ(arguments(R"({"a": "{}"})"), R"({"a":"{}"})");
  EXPECT_EQ(arguments(R"("")"), "{}");
}

TEST(RequestConvertTest, ArgumentsThatAreNoObjectAreTold) {
  const auto problem = [](const std::string& json) {
    OrderedJson body;
    EXPECT_FALSE(ParseBody(ChatWithCall(json), &body));
    ApiRequest request;
    const auto error = ConvertChat(body, {}, &request);
    EXPECT_EQ(error.value_or(ApiError()).param, "messages");
    return error.value_or(ApiError()).message;
  };
  const std::string where = "messages[0].tool_calls[0].function.arguments";
  EXPECT_EQ(problem(R"("{\"a\":")"),
            where + " is not valid JSON at byte 5 of 5");
  EXPECT_EQ(problem(R"("[1]")"), where + " is array, expected an object");
  EXPECT_EQ(problem(absl::StrCat("\"{\\\"a\\\":", std::string(64, '['),
                                 std::string(64, ']'), "}\"")),
            where + "'s JSON is nested deeper than 64");
}

// What keys of the whole body may cost, those in strings may.
TEST(RequestConvertTest, ArgumentsShareOneLimitOfComparisons) {
  std::string keys;
  for (int i = 0; i < 1024; ++i) {
    absl::StrAppend(&keys, i == 0 ? "" : ",", R"(\"k)", i, R"(\":0)");
  }
  const auto problem = [&](int calls) {
    std::string text = R"({"messages": [{"role": "assistant", "tool_calls": [)";
    for (int i = 0; i < calls; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",",
                      R"({"function": {"arguments": "{)", keys, R"(}"}})");
    }
    OrderedJson body;
    EXPECT_FALSE(ParseBody(text + "]}]}", &body));
    ApiRequest request;
    const auto error = ConvertChat(body, {}, &request);
    return error ? error->message : "";
  };
  EXPECT_EQ(problem(8), "");
  EXPECT_TRUE(absl::StartsWith(
      problem(9),
      "the objects of messages[0].tool_calls[8].function.arguments have too "
      "many keys"))
      << problem(9);
}

TEST(RequestConvertTest, CallsAreAListOfObjectsWithFunctions) {
  const auto error_of = [](const std::string& calls) {
    return ErrorOfBody(
        absl::StrCat(
            R"({"messages": [{"role": "assistant", "content": "", "tool_calls": )",
            calls, "}]}"),
        /*is_chat=*/true);
  };
  EXPECT_EQ(error_of("null"), "");
  EXPECT_EQ(error_of("[]"), "");
  EXPECT_EQ(error_of(R"([{"id": "a", "function": {"name": "f"}}])"), "");
  EXPECT_EQ(error_of("1"),
            "messages[0].tool_calls is 1, expected a list of calls");
  EXPECT_EQ(error_of(R"([{}, "f"])"),
            "messages[0].tool_calls[1] is \"f\", expected an object");
  EXPECT_EQ(
      error_of(R"([{"function": []}])"),
      "messages[0].tool_calls[0].function is array of 0, expected an object");
}

TEST(RequestConvertTest, DocumentsAreAListOfObjects) {
  const auto error_of = [](const std::string& documents) {
    return ErrorOfBody(
        absl::StrCat(
            R"({"messages": [{"role": "user", "content": "a"}], "documents": )",
            documents, "}"),
        /*is_chat=*/true);
  };
  EXPECT_EQ(error_of("null"), "");
  EXPECT_EQ(error_of(R"([{"title": "a", "text": "b"}])"), "");
  for (const char* bad : {"1", "{}", R"(["a"])", R"([{}, null])"}) {
    EXPECT_THAT(error_of(bad), ::testing::StartsWith("documents is "));
    EXPECT_THAT(error_of(bad),
                ::testing::EndsWith("expected a list of objects"));
  }
}

TEST(RequestConvertTest, APromptAloneMayBeEchoed) {
  const ApiRequest request = Convert(
      R"({"prompt": "a", "echo": true, "logprobs": 2, "max_tokens": 0})");
  EXPECT_TRUE(request.PromptOnly());
  EXPECT_EQ(request.generate.output().prompt_logprobs(), 2u);
  EXPECT_FALSE(Convert(R"({"prompt": "a", "max_tokens": 1})").PromptOnly());
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "max_tokens": 0})"),
            "max_tokens is 0 without echo, expected 1 at least");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "max_completion_tokens": 0})"),
            "max_completion_tokens is 0 without echo, expected 1 at least");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "max_tokens": 0, "echo": true,
                            "stream": true, "nacre": {"resumable": true}})"),
            "max_tokens is 0: there is nothing to resume");
}

TEST(RequestConvertTest, TheTemplateHearsOfTheEffort) {
  const auto effort = [](const std::string& fields) {
    const ApiRequest request =
        Convert(absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}],
                                 "reasoning_effort": "low")",
                             fields, "}"),
                /*is_chat=*/true);
    EXPECT_TRUE(request.ignored.empty());
    return Dump(request.template_values.named);
  };
  EXPECT_EQ(effort(""), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(effort(R"(, "chat_template_kwargs": {"reasoning_effort": "high"})"),
            R"({"reasoning_effort":"high"})");
}

TEST(RequestConvertTest, NoLogprobsOfACompletionMayBeSaidAsOfAChat) {
  const ApiRequest request = Convert(R"({"prompt": "a", "logprobs": false})");
  EXPECT_FALSE(request.answer.wants_logprobs);
  EXPECT_FALSE(request.generate.output().has_logprobs());
}

TEST(RequestConvertTest, StreamOptionsThatAskForNothingNeedNoStream) {
  for (const char* options :
       {"{}", "null", R"({"include_usage": null})",
        R"({"include_usage": false, "continuous_usage_stats": false})"}) {
    const std::string fields =
        absl::StrCat(R"({"prompt": "a", "stream_options": )", options);
    EXPECT_EQ(ErrorOfBody(fields + "}"), "");
    EXPECT_EQ(ErrorOfBody(fields + R"(, "stream": null})"), "");
  }
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "stream": false,
                            "stream_options": {"include_usage": true}})"),
            "stream_options is set without stream");
}

TEST(RequestConvertTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "temperature": 3})"),
            "temperature is 3, expected a number in [0, 2]");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "n": 1.5})"),
            "n is 1.5, expected a whole number in [1, 16]");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "nacre": {"window": 65}})"),
            "nacre.window is 65, expected a whole number in [1, 64]");
  EXPECT_EQ(
      ErrorOfBody(R"({"prompt": "a", "nacre": {"tree": [[0]]}})"),
      "nacre.tree is array of 1, expected a string of at most 16384 bytes");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "nacre": {"x": 1}})"),
            "nacre.\"x\" is not known");
  EXPECT_EQ(ErrorOfBody(R"({"prompt": "a", "logit_bias": {"x": 1}})"),
            "logit_bias \"x\": 1 is not a token id with a number in [-100, "
            "100]");
}

TEST(RequestConvertTest, DefaultsAreTheModels) {
  const auto defaults = ReadSamplingDefaults(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1,
          "repetition_penalty": 1.1, "eos_token_id": [1, 2]})");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(ReadSamplingDefaults("{}")->temperature, 1.0);
  // As published files say that all tokens are kept.
  const auto all = ReadSamplingDefaults(R"({"top_k": -1})");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(all->top_k.has_value());
  EXPECT_FALSE(ReadSamplingDefaults(R"({"top_k": -2})").ok());
  const auto greedy =
      ReadSamplingDefaults(R"({"do_sample": false, "temperature": 0.6})");
  EXPECT_EQ(greedy->temperature, 0.0);
  EXPECT_FALSE(ReadSamplingDefaults(R"({"top_p": "x"})").ok());
  EXPECT_FALSE(ReadSamplingDefaults("[]").ok());
}

}  // namespace
}  // namespace nacre::gateway
