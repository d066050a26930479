// Every length policy with every method through the real processes: the tokens
// are those of ar, greedy and sampled, one stream and several; and what the
// service says where it cannot run one.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/files.h"
#include "model/config.h"
#include "tests/draft_worker/policy_folder.h"
#include "tests/integration/random_policy.h"
#include "tests/integration/service_fixture.h"
#include "tools/cluster/child_process.h"

namespace nacre::integration {
namespace {

using testing::PolicyFolder;

constexpr int kMaxTokens = 40;
constexpr size_t kPrompts = 6;
constexpr int kStreams = 3;

class Files {
 public:
  explicit Files(const std::string& target_fingerprint) {
    const std::string draft = Fingerprint(DraftModel());
    const int hidden = model::ReadConfig(DraftModel())->hidden_size;
    const int target_hidden = model::ReadConfig(TargetModel())->hidden_size;
    disco_.WriteJson("disco", draft, target_fingerprint,
                     {{"parameters", {{"threshold", 0.45}}}});
    disco_.WriteTensors(Shuffled(testing::DiscoTensors()));
    head_.WriteJson("specdec++", draft, target_fingerprint);
    head_.WriteTensors(Shuffled(testing::HeadTensors(hidden), /*tied=*/true));
    cali_.WriteJson("cali-ts", draft, target_fingerprint);
    cali_.WriteTensors(Shuffled(testing::CaliTsTensors(target_hidden, hidden)));
    gamma_.WriteJson("optimal-static", draft, target_fingerprint,
                     {{"parameters", {{"gamma", 3}}}});
  }
  std::vector<std::string> flags() const {
    return {"disco=" + disco_.path(), "specdec++=" + head_.path(),
            "cali-ts=" + cali_.path(), "optimal-static=" + gamma_.path()};
  }

 private:
  PolicyFolder disco_, head_, cali_, gamma_;
};

v1::GenerateRequest Ask(const std::string& prompt, v1::Method method,
                        const std::string& policy, float temperature) {
  v1::GenerateRequest request = Request(prompt, method, kMaxTokens);
  request.mutable_speculation()->set_policy(policy);
  request.mutable_sampling()->set_temperature(temperature);
  request.mutable_sampling()->set_seed(99);
  return request;
}

class PoliciesTest : public ::testing::Test {
 protected:
  static tools::Cluster::Options WithFiles(const Files& files) {
    tools::Cluster::Options options = Service::Options();
    options.metrics_port = 0;
    for (const std::string& file : files.flags()) {
      options.more_args.draft.push_back("--policy-file=" + file);
    }
    return options;
  }
  // One request with the policy; its answer is ar's.
  void Check(Service& service, const v1::GenerateRequest& request,
             const v1::Complete& ar) {
    const auto complete = service.Generate(request);
    const v1::SpeculationOptions& asked = request.speculation();
    ASSERT_TRUE(complete.ok()) << complete.status() << asked.DebugString();
    ASSERT_EQ(
        std::vector<uint32_t>(complete->token_ids().begin(),
                              complete->token_ids().end()),
        std::vector<uint32_t>(ar.token_ids().begin(), ar.token_ids().end()))
        << asked.ShortDebugString();
    const v1::SpeculationReport& report = complete->speculation();
    // With its file it has the target's hidden states, too.
    EXPECT_EQ(report.policy(), asked.policy());
    (asked.policy() == "cali-ts" ? hidden_bytes_ : other_hidden_bytes_) +=
        report.hidden_bytes();
    if (asked.policy() == "oracle") {
      EXPECT_EQ(report.accepted(), report.verified());
    }
    accepted_ += report.accepted();
  }

  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> hidden_bytes_{0};
  std::atomic<uint64_t> other_hidden_bytes_{0};
};

TEST_F(PoliciesTest, EveryPolicyWithEveryMethodSaysWhatArSays) {
  const Files files(Fingerprint(TargetModel()));
  Service service(WithFiles(files));
  const auto prompts = LoadPrompts("gsm8k_100.jsonl", kPrompts);
  for (const float temperature : {0.0f, 0.8f}) {
    std::vector<v1::Complete> ar;
    for (const tools::Prompt& prompt : prompts) {
      const auto answer = service.Generate(
          Ask(prompt.text, v1::METHOD_AR, "svip", temperature));
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(answer->speculation().policy(), "");
      ar.push_back(*answer);
    }
    for (const std::string policy :
         {"constant", "constant:n=1", "heuristic", "confidence", "svip",
          "svip:c=1", "beta-ts", "beta-ts:update=bernoulli", "cali-ts", "disco",
          "specdec++", "optimal-static", "optimal-static:gamma=6", "load",
          "oracle"}) {
      if (policy == "oracle" && temperature != 0.0f) continue;
      const uint64_t accepted_before = accepted_;
      for (const v1::Method method :
           {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
        std::vector<v1::GenerateRequest> requests;
        for (size_t i = 0; i < prompts.size(); ++i) {
          requests.push_back(Ask(prompts[i].text, method, policy, temperature));
          if (policy != "oracle") continue;
          *requests.back().mutable_speculation()->mutable_oracle_token_ids() =
              ar[i].token_ids();
        }
        for (size_t i = 0; i < prompts.size(); i += 3) {
          Check(service, requests[i], ar[i]);
        }
        std::vector<std::thread> streams;
        for (int stream = 0; stream < kStreams; ++stream) {
          streams.emplace_back([&, stream] {
            for (size_t i = stream; i < prompts.size(); i += kStreams) {
              Check(service, requests[i], ar[i]);
            }
          });
        }
        for (std::thread& stream : streams) stream.join();
        const double branches = service.WastedBranches();
        // It ends the depth of these trees.
        for (const char* tree : {"cape", "eagle2:k=4,depth=6"}) {
          for (size_t i = 0; i < prompts.size(); i += 4) {
            requests[i].mutable_speculation()->set_tree(tree);
            Check(service, requests[i], ar[i]);
          }
        }
        // One that reads the target's hidden states has chains.
        if (policy == "cali-ts") {
          EXPECT_EQ(service.WastedBranches(), branches);
        } else {
          EXPECT_GT(service.WastedBranches(), branches) << policy;
        }
        if (HasFatalFailure()) return;
      }
      // The drafts really took part.
      EXPECT_GT(accepted_, accepted_before) << policy;
    }
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
  EXPECT_GT(hidden_bytes_, 0u);
  EXPECT_EQ(other_hidden_bytes_, 0u);
  // All can be asked for.
  const v1::ServerInfo info = service.ServerInfo();
  const std::set<std::string> names(info.policies().begin(),
                                    info.policies().end());
  EXPECT_EQ(names.size(), 11u);
  EXPECT_TRUE(names.contains("disco") && names.contains("specdec++"));
}

// What a client sees where a policy cannot run.
TEST_F(PoliciesTest, WhatCannotRunIsRefused) {
  const Files others("another target");
  Service service(WithFiles(others));
  const auto error = [&](const std::string& policy, float temperature = 0.0f,
                         bool recorded = false) {
    v1::GenerateRequest request =
        Ask("Question: 1 + 1?", v1::METHOD_SD, policy, temperature);
    if (recorded) request.mutable_speculation()->add_oracle_token_ids(3);
    return service.Generate(request).status();
  };
  // The draft has files, but for another target.
  for (const char* policy : {"disco", "specdec++:min=3", "optimal-static"}) {
    const absl::Status status = error(policy);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << policy;
    EXPECT_NE(std::string(status.message()).find("another target"),
              std::string::npos)
        << status;
  }
  EXPECT_TRUE(error("optimal-static:gamma=2").ok());
  EXPECT_TRUE(error("cali-ts").ok());
  for (const char* policy :
       {"sivp", "svip:depth=1", "svip:h=nan", "svip:h=-1", "svip:h=101",
        "constant:n=0", "constant:n=65", "disco:file=/etc/passwd",
        "beta-ts:update=literal"}) {
    EXPECT_EQ(error(policy).code(), absl::StatusCode::kInvalidArgument)
        << policy;
  }
  EXPECT_EQ(error("oracle").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("oracle", 0.8f, true).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error("svip", 0.0f, true).code(),
            absl::StatusCode::kInvalidArgument);
  const v1::ServerInfo info = service.ServerInfo();
  EXPECT_EQ(std::count(info.policies().begin(), info.policies().end(), "disco"),
            0);
}

TEST_F(PoliciesTest, TheServersDefaultIsForThoseWhoNameNone) {
  tools::Cluster::Options options = Service::Options();
  options.more_args.coordinator = {"--default-policy=svip:h=0.4"};
  Service service(options);
  const auto policy = [&](const std::string& asked) {
    const auto answer = service.Generate(
        Ask("Question: 1 + 1?", v1::METHOD_ASYNC, asked, 0.0f));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer->speculation().policy();
  };
  EXPECT_EQ(policy(""), "svip:h=0.4");
  EXPECT_EQ(policy("constant"), "constant");
}

// A worker with a bad file says so in one line and ends.
TEST(PolicyStartup, BadFilesEndTheWorker) {
  PolicyFolder folder;
  const auto run = [&](const std::string& program, const std::string& model) {
    const std::string log = folder.path() + "/log";
    std::filesystem::remove(log);
    auto process = tools::ChildProcess::Start(
        {.argv = {std::string(NACRE_BIN "/") + program, "--model", model,
                  "--coordinator", "127.0.0.1:1", "--cpus", "0",
                  "--policy-file", "disco=" + folder.path()},
         .log_file = log});
    EXPECT_TRUE(process.ok()) << process.status();
    EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(1)));
    EXPECT_EQ((*process)->Poll().value_or("still running"), "exit code 1");
    return *ReadFile(log);
  };
  EXPECT_NE(run("nacre-draft-worker", DraftModel()).find("policy.json"),
            std::string::npos);
  folder.WriteJson("disco", "another draft", "any target");
  folder.WriteTensors(testing::DiscoTensors());
  EXPECT_NE(run("nacre-draft-worker", DraftModel())
                .find("made for the draft with fingerprint another draft"),
            std::string::npos);
  EXPECT_NE(run("nacre-target-worker", TargetModel())
                .find("--policy-file is for draft workers"),
            std::string::npos);
}

}  // namespace
}  // namespace nacre::integration
