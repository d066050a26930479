#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tests/tools/fake_coordinator.h"
#include "tests/tools/run_command.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
  const std::string page = folder_.path() + "/bench.html";
  const Outcome outcome =
      Bench(server, {"--methods", "ar,sd:3,async", "--repeat", "2", "--json",
                     file, "--html", page, "--window", "5"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("identical tokens: yes (2 prompts x 3 methods)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nsd:3 "));
  const auto json = nlohmann::json::parse(*ReadFile(file), nullptr, false);
  EXPECT_THAT(*ReadFile(page), HasSubstr("<td>sd:3</td>"));
  EXPECT_THAT(*ReadFile(page), HasSubstr("--methods ar,sd:3,async"));
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

TEST_F(BenchCommandTest, SaysWhatATargetDraftedByItself) {
  FakeCoordinator server([](const v1::GenerateRequest& request,
                            grpc::ServerContext*,
                            FakeCoordinator::Writer* writer) {
    v1::Complete complete;
    complete.add_token_ids(5);
    if (request.speculation().method() == v1::METHOD_ASYNC) {
      complete.mutable_speculation()->set_suffix_proposed(35);
      complete.mutable_speculation()->set_suffix_accepted(9);
    }
    FakeCoordinator::SendComplete(writer, complete);
    return grpc::Status::OK;
  });
  const Outcome outcome =
      Bench(server, {"--methods", "ar,async", "--repeat", "1"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("\nasync: of the target's own drafts 18 of 70 verified "
                        "accepted (25.7%)\nidentical tokens: yes"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("ar: of")));
}

TEST_F(BenchCommandTest, CrossesMethodsWithPolicies) {
  FakeCoordinator server(OneTwo);
  const std::string file = folder_.path() + "/policies.json";
  const Outcome outcome = Bench(
      server, {"--methods", "ar,sd:3", "--policies", "svip:h=0.4,max=9,oracle",
               "--repeat", "1", "--json", file});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nsd:3/svip:h=0.4,max=9 "));
  const auto json = nlohmann::json::parse(*ReadFile(file), nullptr, false);
  ASSERT_EQ(json["methods"].size(), 3);
  EXPECT_EQ(json["methods"][0]["policy"], "");
  EXPECT_EQ(json["methods"][1]["policy"], "svip:h=0.4,max=9");
  // No closed law knows how long a policy's chunks are.
  EXPECT_TRUE(json["methods"][1]["law_speedup"].is_null());
  // First ar answers each prompt for the oracle.
  const std::vector<v1::GenerateRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 2 + 3 + 2 * 3 + 2 * 3);
  EXPECT_EQ(requests[0].speculation().method(), v1::METHOD_AR);
  EXPECT_EQ(requests[1].text(), "b");
  int num_oracle = 0;
  for (const v1::GenerateRequest& request : requests) {
    const v1::SpeculationOptions& options = request.speculation();
    EXPECT_EQ(options.policy().empty(), options.method() == v1::METHOD_AR);
    const bool is_oracle = options.policy() == "oracle";
    num_oracle += is_oracle ? 1 : 0;
    const std::vector<uint32_t> ids(options.oracle_token_ids().begin(),
                                    options.oracle_token_ids().end());
    EXPECT_EQ(ids, is_oracle ? std::vector<uint32_t>({5, 6, 7})
                             : std::vector<uint32_t>());
  }
  EXPECT_EQ(num_oracle, 1 + 2 + 2);
}

TEST_F(BenchCommandTest, OnePolicyIsForAllMethods) {
  FakeCoordinator server(OneTwo);
  EXPECT_EQ(Bench(server, {"--methods", "sd", "--policy", "svip", "--repeat",
                           "1", "--limit", "1"})
                .code,
            kExitOk);
  for (const v1::GenerateRequest& request : server.requests()) {
    EXPECT_EQ(request.speculation().policy(), "svip");
  }
}

TEST_F(BenchCommandTest, BadPoliciesAreRefused) {
  FakeCoordinator server(OneTwo);
  const auto error = [&](const std::vector<std::string>& more) {
    const Outcome outcome = Bench(server, more);
    EXPECT_EQ(outcome.code, kExitUsage);
    return outcome.err;
  };
  EXPECT_THAT(error({"--policies", "svip,sivp"}),
              HasSubstr("unknown length policy \"sivp\""));
  EXPECT_THAT(error({"--policy", "svip:h=-1"}), HasSubstr("h is \"-1\""));
  EXPECT_THAT(error({"--policies", "svip", "--policy", "svip"}),
              HasSubstr("only one of them"));
  EXPECT_THAT(error({"--policies", "oracle", "--temperature", "0.5"}),
              HasSubstr("policy oracle needs --temperature 0, it is 0.5"));
  EXPECT_TRUE(server.requests().empty());
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

// As OneTwo, from a target that takes a millisecond a step and, but for `ar`, a
// draft that is never right.
grpc::Status OneTwoTraced(const v1::GenerateRequest& request,
                          grpc::ServerContext*,
                          FakeCoordinator::Writer* writer) {
  v1::Complete complete;
  for (const uint32_t id : {5, 6, 7}) complete.add_token_ids(id);
  if (request.output().trace()) {
    v1::TraceLane* lane = complete.add_trace();
    lane->set_role(v1::WORKER_ROLE_TARGET);
    for (int length = 1; length <= 3; ++length) {
      v1::Span* span = lane->add_spans();
      span->set_kind(v1::Span::KIND_VERIFY);
      span->set_start_ns(length);
      span->set_duration_ns(1'000'000);
      span->set_rows(request.speculation().method() == v1::METHOD_AR ? 1 : 2);
      span->set_batch_rows(span->rows());
      span->set_length(length);
    }
  }
  FakeCoordinator::SendComplete(writer, complete);
  return grpc::Status::OK;
}

TEST_F(BenchCommandTest, PredictsFromTheStepsAndMatchesOfTheRun) {
  FakeCoordinator server(OneTwoTraced);
  const std::string file = folder_.path() + "/bench.json";
  const std::string trace = folder_.path() + "/matches.jsonl";
  const Outcome outcome =
      Bench(server, {"--methods", "ar,sd:3", "--repeat", "1", "--json", file,
                     "--predict", "--match-trace", trace});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("predicted  of pre-    closed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("   1000.0  "));
  EXPECT_EQ(*ReadFile(trace),
            "{\"id\":\"1\",\"version\":2,\"ranks\":[0,0,0]}\n"
            "{\"id\":\"bee\",\"version\":2,\"ranks\":[0,0,0]}\n");
  const auto json = nlohmann::json::parse(*ReadFile(file), nullptr, false);
  ASSERT_TRUE(json.is_object());
  const auto& predicted = json["methods"][0]["predicted"];
  EXPECT_NEAR(predicted["tokens_per_second"].get<double>(), 1000.0, 1e-6);
  EXPECT_EQ(predicted["target_step"][0]["rows"], 1);
  EXPECT_EQ(predicted["target_step"][0]["ms"], 1.0);
  EXPECT_TRUE(predicted["draft_step"].is_null());
  EXPECT_DOUBLE_EQ(
      predicted["of_predicted"].get<double>(),
      json["methods"][0]["tokens_per_second"].get<double>() / 1000.0);

  // Warm-up, what is measured, and one recording of each prompt.
  const std::vector<v1::GenerateRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 2 + 2 * 2 + 2);
  EXPECT_FALSE(requests[0].output().trace());
  EXPECT_TRUE(requests[2].output().trace());
  EXPECT_EQ(requests[2].stop().max_tokens(), 7);
  EXPECT_EQ(requests[6].speculation().method(), v1::METHOD_SD);
  EXPECT_EQ(requests[6].stop().max_tokens(), 4);
  EXPECT_EQ(requests[7].text(), "b");
}

TEST_F(BenchCommandTest, PredictsArWithoutADraft) {
  FakeCoordinator server(OneTwoTraced);
  const Outcome outcome = Bench(
      server, {"--methods", "ar", "--repeat", "1", "--predict", "--streams=2"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(server.requests().size(), 1 + 2);
}

TEST_F(BenchCommandTest, SaysWhatItMeasuredWhereNoMatchesCanBeRecorded) {
  FakeCoordinator server(OneTwo);  // whose spans tell no places
  const std::string trace = folder_.path() + "/matches.jsonl";
  Outcome outcome = Bench(
      server, {"--methods", "ar", "--repeat", "1", "--match-trace", trace});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.out, HasSubstr("identical tokens: yes"));
  EXPECT_THAT(outcome.err,
              HasSubstr("FAILED_PRECONDITION: prompt \"1\": token 0 of 3"));
  FakeCoordinator traced(OneTwoTraced);
  outcome = Bench(traced, {"--methods", "ar", "--repeat", "1", "--match-trace",
                           "/no/such/folder/file"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write /no/such/folder/file"));
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
  EXPECT_THAT(error({address, prompts, "--draft-step-time=1:3"}),
              HasSubstr("not with --address"));
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
  for (const std::string own : {"--medusa", "--eagle", "--glide"}) {
    EXPECT_THAT(error({prompts, "--target-model=x", "--drafts=0", own, "dir",
                       "--suffixes=off"}),
                HasSubstr("--suffixes off and " + own + " exclude each other"));
  }
}

}  // namespace
}  // namespace nacre::tools
