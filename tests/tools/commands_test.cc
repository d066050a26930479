#include "tools/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/tools/fake_coordinator.h"
#include "tools/prompts_file.h"
#include "tools/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome Nacre(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunNacre(args, Terminal{out, err});
  return {code, out.str(), err.str()};
}

// Answers "one two" in two chunks, with token ids 5, 6, 7.
grpc::Status OneTwo(const v1::GenerateRequest& request, grpc::ServerContext*,
                    FakeCoordinator::Writer* writer) {
  v1::GenerateResponse response;
  if (request.output().stream()) {
    response.mutable_chunk()->set_text("one ");
    writer->Write(response);
    response.mutable_chunk()->set_text("two");
    writer->Write(response);
  }
  v1::Complete complete;
  complete.set_text("one two");
  for (const uint32_t id : {5, 6, 7}) complete.add_token_ids(id);
  complete.set_finish_reason(v1::FINISH_REASON_EOS);
  complete.mutable_usage()->set_completion_tokens(3);
  complete.mutable_speculation()->set_method(request.speculation().method());
  if (request.output().trace()) {
    v1::TraceLane* lane = complete.add_trace();
    lane->set_role(v1::WORKER_ROLE_TARGET);
    lane->add_spans()->set_kind(v1::Span::KIND_VERIFY);
    complete.mutable_speculation()->add_step_gap_ns(40000);
  }
  FakeCoordinator::SendComplete(writer, complete);
  return grpc::Status::OK;
}

TEST(RunNacreTest, ExplainsItself) {
  EXPECT_EQ(Nacre({}).code, kExitUsage);
  EXPECT_THAT(Nacre({}).err, HasSubstr("usage: nacre COMMAND"));
  EXPECT_EQ(Nacre({"--help"}).code, kExitOk);
  EXPECT_THAT(Nacre({"--help"}).out, HasSubstr("inflate"));
  EXPECT_EQ(Nacre({"frob"}).code, kExitUsage);
  EXPECT_THAT(Nacre({"frob"}).err, HasSubstr("unknown command \"frob\""));
}

TEST(RunNacreTest, HelpOfACommandListsItsFlagsOnly) {
  const Outcome up = Nacre({"up", "--help"});
  EXPECT_EQ(up.code, kExitOk);
  EXPECT_THAT(up.out, HasSubstr("--port"));
  EXPECT_THAT(up.out, Not(HasSubstr("--temperature")));
  EXPECT_THAT(Nacre({"generate", "--help"}).out, Not(HasSubstr("--drafts")));
  EXPECT_THAT(Nacre({"bench", "--help"}).out, HasSubstr("--prompts"));
  EXPECT_THAT(Nacre({"inflate", "--help"}).out, HasSubstr("--layers"));
}

TEST(RunNacreTest, RefusesFlagsOfOtherCommands) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"generate", "--streams", "2"},
                                             {"up", "--prompt", "a"},
                                             {"bench", "--html", "f"},
                                             {"inflate", "--json"}}) {
    const Outcome outcome = Nacre(args);
    EXPECT_EQ(outcome.code, kExitUsage) << args[0];
    EXPECT_THAT(outcome.err, HasSubstr("unknown flag " + args[1]));
  }
}

TEST(GenerateCommandTest, StreamsTheTextAndSumsUpOnStderr) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Nacre({"generate", "--address", server.address(), "--prompt", "zero",
             "--method=pearl", "--window", "6", "--max-tokens", "9", "--stop",
             "x", "--seed", "3", "--ignore-eos", "--top-p", "0.5"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "one two\n");
  EXPECT_THAT(outcome.err, HasSubstr("3 generated"));
  EXPECT_THAT(outcome.err, HasSubstr("finish reason eos"));
  ASSERT_EQ(server.requests().size(), 1);
  const v1::GenerateRequest request = server.requests()[0];
  EXPECT_EQ(request.text(), "zero");
  EXPECT_EQ(request.speculation().method(), v1::METHOD_PEARL);
  EXPECT_EQ(request.speculation().window(), 6);
  EXPECT_EQ(request.speculation().verification(), v1::VERIFICATION_EXACT);
  EXPECT_EQ(request.stop().max_tokens(), 9);
  EXPECT_EQ(request.stop().stop(0), "x");
  EXPECT_TRUE(request.stop().ignore_eos());
  EXPECT_EQ(request.sampling().seed(), 3);
  EXPECT_EQ(request.sampling().top_p(), 0.5F);
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.output().trace());
}

TEST(GenerateCommandTest, PrintsOneJsonObject) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome = Nacre({"generate", "--address", server.address(),
                                 "--token-ids", "1,22,3", "--json"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_EQ(json["text"], "one two");
  EXPECT_EQ(json["token_ids"], (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(json["speculation"]["method"], "async");
  EXPECT_THAT(server.requests()[0].token_ids().ids(),
              ::testing::ElementsAre(1, 22, 3));
  EXPECT_FALSE(server.requests()[0].output().stream());
}

TEST(GenerateCommandTest, ReadsThePromptFromAFileAndWritesTheTrace) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/prompt") << "from\nfile";
  FakeCoordinator server(OneTwo);
  const std::string trace = folder.path() + "/trace.json";
  const Outcome outcome =
      Nacre({"generate", "--address", server.address(), "--prompt-file",
             folder.path() + "/prompt", "--trace", trace});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(server.requests()[0].text(), "from\nfile");
  EXPECT_TRUE(server.requests()[0].output().trace());
  EXPECT_THAT(*ReadFile(trace), HasSubstr("\"verify\""));
}

TEST(GenerateCommandTest, LeavesAnEmptyPromptToTheServer) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Nacre({"generate", "--address", server.address(), "--prompt="});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(server.requests()[0].prompt_case(), v1::GenerateRequest::kText);
}

TEST(GenerateCommandTest, RefusesBadFlags) {
  const auto error = [](std::vector<std::string> args) {
    args.insert(args.begin(), "generate");
    const Outcome outcome = Nacre(args);
    EXPECT_EQ(outcome.code, kExitUsage);
    return outcome.err;
  };
  EXPECT_THAT(error({}), HasSubstr("none of --prompt"));
  EXPECT_THAT(error({"--prompt", "a", "--token-ids", "1"}),
              HasSubstr("more than one of --prompt"));
  EXPECT_THAT(error({"--token-ids", "1,x"}),
              HasSubstr("\"x\" is not a token id"));
  EXPECT_THAT(error({"--token-ids", "-1"}),
              HasSubstr("\"-1\" is not a token id"));
  EXPECT_THAT(error({"--prompt-file", "/no/such/file"}),
              HasSubstr("cannot read /no/such/file"));
  EXPECT_THAT(error({"--prompt", "\xff"}), HasSubstr("not UTF-8"));
  EXPECT_THAT(error({"--prompt", "a", "--stop", "\xc3"}),
              HasSubstr("not UTF-8"));
  EXPECT_THAT(error({"--prompt", "a", "--method", "magic"}),
              HasSubstr("method \"magic\""));
  EXPECT_THAT(error({"--prompt", "a", "--verification", "hope"}),
              HasSubstr("verification \"hope\""));
  EXPECT_THAT(error({"--prompt", "a", "--n", "-1"}), HasSubstr("--n"));
  EXPECT_THAT(error({"--prompt", "a", "--timeout", "nan"}),
              HasSubstr("--timeout"));
  EXPECT_THAT(error({"--prompt", "a", "--logit-bias", "7"}),
              HasSubstr("--logit-bias: \"7\" is not ID:BIAS"));
  EXPECT_THAT(error({"--prompt", "a", "--logit-bias", "x:1"}),
              HasSubstr("is not ID:BIAS"));
  EXPECT_THAT(error({"--prompt", "a", "--stop-token-id", "-4"}),
              HasSubstr("\"-4\" is not a token id"));
  EXPECT_THAT(error({"--prompt", "a", "--logprobs", "3"}),
              HasSubstr("need --json"));
}

TEST(GenerateCommandTest, SendsBiasLeastTokensAndWhatToReport) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome = Nacre(
      {"generate", "--address", server.address(), "--prompt", "a", "--json",
       "--logit-bias", "7:-1.5", "--logit-bias", "9:2", "--min-tokens", "3",
       "--stop-token-id", "5", "--logprobs", "2", "--round-stats"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  const v1::GenerateRequest request = server.requests()[0];
  EXPECT_EQ(request.sampling().logit_bias().at(7), -1.5f);
  EXPECT_EQ(request.sampling().logit_bias().at(9), 2.0f);
  EXPECT_EQ(request.stop().min_tokens(), 3);
  EXPECT_EQ(request.stop().stop_token_ids(0), 5);
  EXPECT_EQ(request.output().logprobs(), 2);
  EXPECT_EQ(request.output().spec_stats(), v1::SPEC_STATS_LEVEL_DETAILED);
}

TEST(GenerateCommandTest, PrintsTheServersError) {
  FakeCoordinator server([](const auto&, auto*, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        "temperature is nan, not in [0, 100]");
  });
  const Outcome outcome = Nacre({"generate", "--address", server.address(),
                                 "--prompt", "a", "--temperature", "nan"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err,
            "error: INVALID_ARGUMENT: temperature is nan, not in [0, 100]\n");
}

TEST(GenerateCommandTest, ReportsAnAnswerWithoutItsEnd) {
  FakeCoordinator server(
      [](const auto&, auto*, auto*) { return grpc::Status::OK; });
  const Outcome outcome =
      Nacre({"generate", "--address", server.address(), "--prompt", "a"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("INTERNAL"));
}

TEST(GenerateCommandTest, GivesUpAtTheDeadline) {
  FakeCoordinator server([](const auto&, grpc::ServerContext* context, auto*) {
    while (!context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return grpc::Status::CANCELLED;
  });
  const Outcome outcome = Nacre({"generate", "--address", server.address(),
                                 "--prompt", "a", "--timeout", "0.05"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("DEADLINE_EXCEEDED"));
}

class BenchCommandTest : public ::testing::Test {
 protected:
  BenchCommandTest() : prompts_(folder_.path() + "/prompts.jsonl") {
    std::ofstream(prompts_) << "{\"prompt\": \"a\", \"max_tokens\": 7}\n"
                               "{\"prompt\": \"b\", \"id\": \"bee\"}\n";
  }

  Outcome Bench(const FakeCoordinator& server,
                const std::vector<std::string>& more) {
    std::vector<std::string> args = {"bench", "--address", server.address(),
                                     "--prompts", prompts_};
    args.insert(args.end(), more.begin(), more.end());
    return Nacre(args);
  }

  const TemporaryFolder folder_;
  const std::string prompts_;
};

TEST_F(BenchCommandTest, ComparesMethodsAndWritesJson) {
  FakeCoordinator server(OneTwo);
  const std::string file = folder_.path() + "/bench.json";
  const Outcome outcome =
      Bench(server, {"--methods", "ar,sd:3,async", "--repeat", "2", "--json",
                     file, "--window", "5"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("identical tokens: yes (2 prompts x 3 methods)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nsd:3 "));
  const auto json = nlohmann::json::parse(*ReadFile(file), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["identical_tokens"], true);
  EXPECT_EQ(json["numerics_id"], "fake-numerics");
  ASSERT_EQ(json["methods"].size(), 3);
  EXPECT_EQ(json["methods"][0]["speedup"], 1.0);
  EXPECT_EQ(json["methods"][1]["requested_window"], 3);
  EXPECT_EQ(json["methods"][2]["requested_window"], 5);
  EXPECT_EQ(json["methods"][2]["step_gap_us"], 40.0);
  EXPECT_EQ(json["requests"].size(), 2 * 3 * 2);

  // Warm-up, then repetitions with rotating methods, then traced ones.
  const std::vector<v1::GenerateRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 3 + 2 * 3 * 2 + 2 * 3);
  EXPECT_FALSE(requests[3].speculation().has_window());
  EXPECT_EQ(requests[3].speculation().method(), v1::METHOD_AR);
  EXPECT_EQ(requests[4].speculation().method(), v1::METHOD_SD);
  EXPECT_EQ(requests[4].speculation().window(), 3);
  EXPECT_EQ(requests[4].stop().max_tokens(), 7);
  EXPECT_EQ(requests[4].sampling().seed(), 1);
  EXPECT_FALSE(requests[4].output().trace());
  EXPECT_EQ(requests[6].text(), "b");
  EXPECT_FALSE(requests[6].stop().has_max_tokens());
  EXPECT_EQ(requests[9].speculation().method(), v1::METHOD_SD);
  EXPECT_TRUE(requests.back().output().trace());
}

TEST_F(BenchCommandTest, FlagsOverrideThePromptsFile) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Bench(server, {"--limit", "1", "--repeat", "1", "--max-tokens", "3",
                     "--seed", "9", "--methods", "ar", "--streams", "4"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  const std::vector<v1::GenerateRequest> requests = server.requests();
  // A warm-up, then the one prompt for each stream.
  ASSERT_EQ(requests.size(), 1 + 4);
  EXPECT_EQ(requests[1].stop().max_tokens(), 3);
  EXPECT_EQ(requests[1].sampling().seed(), 9);
}

TEST_F(BenchCommandTest, RunsSeveralStreamsAtOnce) {
  // The warm-up comes first. The two measured requests wait for each other:
  // were they not at once, the first one would fail.
  absl::Mutex mu;
  int arrived = 0;
  FakeCoordinator server([&](const v1::GenerateRequest& request,
                             grpc::ServerContext* context,
                             FakeCoordinator::Writer* writer) {
    absl::MutexLock lock(&mu);
    const auto both = [&arrived] { return arrived >= 3; };
    if (++arrived > 1 &&
        !mu.AwaitWithTimeout(absl::Condition(&both), absl::Seconds(60))) {
      return grpc::Status(grpc::StatusCode::ABORTED, "alone");
    }
    return OneTwo(request, context, writer);
  });
  const Outcome outcome =
      Bench(server, {"--repeat", "1", "--methods", "ar", "--streams", "2"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
}

TEST_F(BenchCommandTest, ComparesLoads) {
  FakeCoordinator server(OneTwo);
  const std::string file = folder_.path() + "/loads.json";
  const Outcome outcome = Bench(server, {"--repeat", "1", "--methods", "ar,sd",
                                         "--streams", "1,4", "--json", file});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 at once\n"));
  EXPECT_THAT(outcome.out, HasSubstr("4 at once\n"));
  EXPECT_THAT(outcome.out, HasSubstr("between tokens, ms"));
  const auto json = nlohmann::json::parse(*ReadFile(file), nullptr, false);
  ASSERT_EQ(json["runs"].size(), 2);
  EXPECT_EQ(json["runs"][0]["requests"].size(), 2 * 2);
  EXPECT_EQ(json["runs"][1]["streams"], 4);
  EXPECT_EQ(json["runs"][1]["requests"].size(), 2 * 4);
  EXPECT_TRUE(json["runs"][1]["methods"][0]["ttft_s"]["p99"].is_number());
}

TEST_F(BenchCommandTest, FailsWhereTheMethodsDisagree) {
  FakeCoordinator server([](const v1::GenerateRequest& request,
                            grpc::ServerContext*,
                            FakeCoordinator::Writer* writer) {
    v1::Complete complete;
    complete.add_token_ids(1);
    complete.add_token_ids(
        request.text() == "b" && request.speculation().method() == v1::METHOD_SD
            ? 3
            : 2);
    FakeCoordinator::SendComplete(writer, complete);
    return grpc::Status::OK;
  });
  const Outcome outcome =
      Bench(server, {"--methods", "ar,sd", "--repeat", "1"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.out, HasSubstr("identical tokens: no"));
  EXPECT_THAT(outcome.err,
              HasSubstr("prompt \"bee\": the answers differ at token 1"));
}

TEST_F(BenchCommandTest, NamesTheRequestThatFails) {
  FakeCoordinator server([](const v1::GenerateRequest& request,
                            grpc::ServerContext* context,
                            FakeCoordinator::Writer* writer) {
    if (request.text() == "b") {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no target");
    }
    return OneTwo(request, context, writer);
  });
  const Outcome outcome = Bench(server, {"--methods", "ar"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err,
              HasSubstr("UNAVAILABLE: prompt \"bee\", method ar: no target"));
}

TEST_F(BenchCommandTest, RefusesBadFlags) {
  const auto error = [](std::vector<std::string> args) {
    args.insert(args.begin(), "bench");
    const Outcome outcome = Nacre(args);
    EXPECT_EQ(outcome.code, kExitUsage);
    return outcome.err;
  };
  const std::string address = "--address=127.0.0.1:1";
  const std::string prompts = "--prompts=" + prompts_;
  EXPECT_THAT(error({address}), HasSubstr("--prompts is needed"));
  EXPECT_THAT(error({prompts}), HasSubstr("--target-model is needed"));
  EXPECT_THAT(error({prompts, "--target-model", "x"}),
              HasSubstr("--draft-model is needed"));
  EXPECT_THAT(error({address, "--prompts=/no/file"}),
              HasSubstr("cannot read /no/file"));
  EXPECT_THAT(error({address, prompts, "--repeat=0"}),
              HasSubstr("--repeat: 0 is not > 0"));
  EXPECT_THAT(error({address, prompts, "--streams=-1"}),
              HasSubstr("--streams: \"-1\""));
  EXPECT_THAT(error({address, prompts, "--streams=4,x"}),
              HasSubstr("--streams: \"x\" in \"4,x\""));
  EXPECT_THAT(error({address, prompts, "--streams=4,4"}),
              HasSubstr("or there twice"));
  EXPECT_THAT(error({address, prompts, "--limit=0"}),
              HasSubstr("--limit: 0 is not > 0"));
  EXPECT_THAT(error({address, prompts, "--methods=sd:99"}),
              HasSubstr("not in 1..64"));
}

TEST(InflateCommandTest, RefusesMissingFlagsAndReportsErrors) {
  EXPECT_EQ(Nacre({"inflate", "--in", "a", "--out", "b"}).code, kExitUsage);
  const TemporaryFolder folder;
  const Outcome outcome = Nacre({"inflate", "--in", folder.path() + "/none",
                                 "--out", folder.path(), "--layers", "2"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("error: "));
}

TEST(UpCommandTest, ExplainsWhatItPassesOn) {
  const std::string help = Nacre({"up", "--help"}).out;
  for (const char* flag :
       {"--metrics-port P", "--admin-tokens-file FILE", "--max-running N",
        "--otlp-endpoint H:P", "--log-format text|json",
        "--drain-timeout DURATION", "--tls-client-auth require|none"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(UpCommandTest, RefusesTokensThatCannotBeRead) {
  const Outcome outcome = Nacre({"up", "--target-model=t", "--drafts=0",
                                 "--admin-tokens-file=/no/such/tokens"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err,
              HasSubstr("error: NOT_FOUND: cannot read the tokens of "
                        "/no/such/tokens: No such file or directory\n"));
}

TEST(UpCommandTest, RefusesBadFlags) {
  EXPECT_EQ(Nacre({"up"}).code, kExitUsage);
  const std::vector<std::string> models = {"up", "--target-model=t",
                                           "--draft-model=d"};
  for (const char* flag :
       {"--targets=0", "--drafts=65", "--port=65536", "--cpus=1-0",
        "--targets=x", "--metrics-port=-1", "--metrics-port=x",
        "--drain-timeout=9", "--drain-timeout=-9s"}) {
    std::vector<std::string> args = models;
    args.push_back(flag);
    EXPECT_EQ(Nacre(args).code, kExitUsage) << flag;
  }
}

}  // namespace
}  // namespace nacre::tools
