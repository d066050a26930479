#include "tools/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/files.h"
#include "common/json.h"
#include "kernels/backend_factory.h"
#include "model/families.h"
#include "tests/tools/fake_coordinator.h"
#include "tests/tools/run_command.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
                                             {"bench", "--layers", "2"},
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
             "x", "--seed", "3", "--ignore-eos", "--top-p", "0.5",
             "--numerics-id", "cpu-v1"});
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
  EXPECT_EQ(request.numerics_id(), "cpu-v1");
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
  EXPECT_THAT(error({"--prompt", "a", "--address", "a:1,b"}),
              HasSubstr("--address \"b\" is not host:port"));
  EXPECT_THAT(error({"--prompt", "a", "--address", ","}),
              HasSubstr("--address has no address"));
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

TEST(ModelsCommandTest, ListsEachFamilyAndTheBackendsOfTheBuild) {
  const Outcome outcome = Nacre({"models"});
  const std::string backends = absl::StrJoin(kernels::CompiledBackends(), ", ");
  EXPECT_EQ(outcome.code, kExitOk);
  for (const model::Family& family : model::AllFamilies()) {
    EXPECT_THAT(outcome.out, HasSubstr(family.architecture));
    EXPECT_THAT(outcome.out,
                HasSubstr(absl::StrCat(family.models, " (", backends, ")\n")));
  }
  EXPECT_THAT(outcome.out, HasSubstr("safetensors or pytorch_model.bin"));
  EXPECT_THAT(outcome.out, HasSubstr("AWQ (gemm), GPTQ (4 and 8 bits)"));
  EXPECT_EQ(Nacre({"models", "--layers", "2"}).code, kExitUsage);
}

TEST(PerplexityCommandTest, NeedsAModelAndTexts) {
  EXPECT_THAT(Nacre({"perplexity", "--help"}).out, HasSubstr("--texts"));
  EXPECT_EQ(Nacre({"perplexity", "--model", "a"}).code, kExitUsage);
  EXPECT_EQ(
      Nacre({"perplexity", "--model", "a", "--texts", "b", "--limit", "-1"})
          .code,
      kExitUsage);
  EXPECT_EQ(
      Nacre({"perplexity", "--model", "a", "--texts", "b", "--cpus", "x"}).code,
      kExitUsage);
  EXPECT_THAT(Nacre({"perplexity", "--model", "a", "--texts", "/none/b"}).err,
              HasSubstr("/none/b"));
}

TEST(PerplexityCommandTest, PrintsOneLineOrJson) {
  const std::vector<std::string> args = {"perplexity",
                                         "--model",
                                         NACRE_MODELS "/draft",
                                         "--texts",
                                         NACRE_TEST_DATA "/gsm8k_100.jsonl",
                                         "--limit",
                                         "2",
                                         "--weights",
                                         "int8",
                                         "--kv-type",
                                         "bf16"};
  const Outcome line = Nacre(args);
  EXPECT_EQ(line.code, kExitOk) << line.err;
  EXPECT_THAT(line.out,
              HasSubstr("of 2 texts, weights int8, keys and values bf16"));
  std::vector<std::string> with_json = args;
  with_json.push_back("--json");
  EXPECT_THAT(Nacre(with_json).out, HasSubstr("\"perplexity\":"));
  // What the type is that was chosen.
  with_json.back() = "--kv-type=auto";
  EXPECT_THAT(Nacre(with_json).out, HasSubstr("keys and values f32"));
}

TEST(PerplexityCommandTest, RefusesWhatWorkersRefuse) {
  const Outcome outcome =
      Nacre({"perplexity", "--model", "m", "--texts", "t", "--device", "-1"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("flag --device: \"-1\" is not a device "
                                     "number of 0 or more"));
  const Outcome list =
      Nacre({"perplexity", "--model", "m", "--texts", "t", "--device", "0,1"});
  EXPECT_EQ(list.code, kExitUsage);
  EXPECT_THAT(list.err, HasSubstr("flag --device: 2 devices, nacre perplexity "
                                  "computes on one"));
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
        "--otlp-endpoint H:P", "--log-format FORMAT",
        "--drain-timeout DURATION", "--tls-client-auth require|none"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

// All names that flags of workers and of the gateway have had here.
TEST(UpCommandTest, KnowsTheFlagsOfWorkersAndGateway) {
  const std::string help = Nacre({"up", "--help"}).out;
  for (const char* flag : {"backend",
                           "device",
                           "draft-backend",
                           "draft-device",
                           "target-step-time",
                           "draft-step-time",
                           "weights",
                           "draft-weights",
                           "kv-type",
                           "cpus",
                           "max-memory",
                           "prefix-cache",
                           "tensor-parallel",
                           "prefill",
                           "suffix-drafter",
                           "suffix-cache",
                           "medusa",
                           "medusa-tree",
                           "eagle",
                           "policy-file",
                           "hang-timeout",
                           "prefill-chunk",
                           "spin",
                           "chat-template",
                           "served-model-name",
                           "escape-special-tokens",
                           "trust-request-chat-template",
                           "no-ui"}) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("  --", flag, " "))) << flag;
  }
}

TEST(UpCommandTest, RefusesBadValuesOfWorkersFlagsItself) {
  for (const char* flag :
       {"--max-memory=0", "--prefix-cache=yes", "--suffix-cache=1",
        "--medusa-tree=static:/none", "--draft-step-time=x",
        "--policy-file=none=d", "--draft-device=-1", "--tensor-parallel=3",
        "--prefill=mkl", "--target-step-time=", "--tensor-transport=pigeon",
        "--least-vocabulary-share=2"}) {
    const Outcome outcome =
        Nacre({"up", "--target-model=t", "--draft-model=d", flag});
    EXPECT_EQ(outcome.code, kExitUsage) << flag;
    const std::string name =
        std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_THAT(outcome.err, HasSubstr("flag " + name + ": "));
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
       {"--targets=0", "--drafts=65", "--coordinators=0", "--coordinators=17",
        "--port=65536", "--cpus=1-0", "--targets=x", "--metrics-port=-1",
        "--metrics-port=x", "--drain-timeout=9", "--drain-timeout=-9s"}) {
    std::vector<std::string> args = models;
    args.push_back(flag);
    EXPECT_EQ(Nacre(args).code, kExitUsage) << flag;
  }
}

}  // namespace
}  // namespace nacre::tools
