// `nacre calibrate` from end to end with the bundled models: real workers
// record, a network is trained, real workers tune it; then a draft worker loads
// what was written, and its answers are those of `ar`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json.h"
#include "tests/integration/command_line.h"
#include "tests/integration/service_fixture.h"
#include "tools/calibrate/feature_reader.h"
#include "tools/calibrate/hidden_reader.h"
#include "tools/calibrate/recording.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxTokens = 40;

class CalibrateTest : public ::testing::Test {
 protected:
  // Few prompts, few candidates: what is tested is that it works.
  CommandResult Calibrate(const std::string& policy,
                          const std::vector<std::string>& more) {
    std::vector<std::string> args = {"calibrate",
                                     "--policy",
                                     policy,
                                     "--target-model",
                                     TargetModel(),
                                     "--draft-model",
                                     DraftModel(),
                                     "--prompts",
                                     NACRE_TEST_DATA "/gsm8k_100.jsonl",
                                     "--limit=8",
                                     "--max-tokens=40",
                                     "--repeat=1",
                                     "--tune-prompts=2",
                                     "--caps=4,8",
                                     "--out",
                                     out()};
    args.insert(args.end(), more.begin(), more.end());
    return RunNacre(args);
  }
  std::string out() const { return folder_.path() + "/out"; }

  nlohmann::json Policy() const {
    const auto text = ReadFile(out() + "/policy.json");
    EXPECT_TRUE(text.ok()) << text.status();
    return nlohmann::json::parse(text.value_or(""), nullptr, false);
  }

  // Answers of a service with the file, of the policy without parameters and of
  // ar, for each method; returns what the reports say of the policy.
  void ExpectExactWith(const std::string& policy) {
    tools::Cluster::Options options = Service::Options();
    options.more_args.draft = {"--policy-file", policy + "=" + out()};
    Service service(options);
    uint64_t accepted = 0;
    for (const tools::Prompt& prompt : LoadPrompts("gsm8k_100.jsonl", 3)) {
      const auto ar =
          service.Generate(Request(prompt.text, v1::METHOD_AR, kMaxTokens));
      ASSERT_TRUE(ar.ok()) << ar.status();
      for (const v1::Method method :
           {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
        v1::GenerateRequest request = Request(prompt.text, method, kMaxTokens);
        request.mutable_speculation()->set_policy(policy);
        const auto answer = service.Generate(request);
        ASSERT_TRUE(answer.ok()) << answer.status();
        EXPECT_EQ(std::vector<uint32_t>(answer->token_ids().begin(),
                                        answer->token_ids().end()),
                  std::vector<uint32_t>(ar->token_ids().begin(),
                                        ar->token_ids().end()));
        EXPECT_EQ(answer->speculation().policy(), policy);
        accepted += answer->speculation().accepted();
      }
    }
    EXPECT_GT(accepted, 0u);
  }

  const tools::TemporaryFolder folder_;
};

TEST_F(CalibrateTest, DiscoIsTrainedTunedAndLoaded) {
  const CommandResult result =
      Calibrate("disco", {"--thresholds=0.3,0.6", "--epochs=20", "--width=8"});
  ASSERT_EQ(result.end, "exit code 0") << result.err;
  EXPECT_THAT(result.out, HasSubstr("trained on "));
  EXPECT_THAT(result.out, HasSubstr("sd/disco:threshold=0.6,max=8"));
  const nlohmann::json json = Policy();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["policy"], "disco");
  const double threshold = json["parameters"]["threshold"];
  EXPECT_TRUE(threshold == 0.3 || threshold == 0.6) << threshold;
  const int cap = json["parameters"]["max"];
  EXPECT_TRUE(cap == 4 || cap == 8) << cap;
  EXPECT_EQ(json["calibration"]["prompts"], 8);
  EXPECT_GT(json["calibration"]["training_tokens"], 20);
  EXPECT_GT(json["calibration"]["test"]["tokens"], 0);
  EXPECT_THAT(result.out, HasSubstr("accepted by entropy in nats: < 0.01: "));
  EXPECT_EQ(json["calibration"]["acceptance_by_entropy"].back()["below"],
            nullptr);
  EXPECT_EQ(json["calibration"]["tuning"]["thresholds"].size(), 3u);
  ExpectExactWith("disco");
}

TEST_F(CalibrateTest, SpecDecPlusPlusIsTrainedTunedAndLoaded) {
  const CommandResult result =
      Calibrate("specdec++", {"--thresholds=0.5,0.9", "--epochs=5"});
  ASSERT_EQ(result.end, "exit code 0") << result.err;
  EXPECT_THAT(result.out, HasSubstr("sd/specdec++:threshold=0.9,max=8"));
  const nlohmann::json json = Policy();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["policy"], "specdec++");
  EXPECT_EQ(json["num_layers"], 3);
  const double threshold = json["parameters"]["threshold"];
  EXPECT_TRUE(threshold == 0.5 || threshold == 0.9) << threshold;
  EXPECT_GT(json["calibration"]["training_tokens"], 20);
  EXPECT_GT(json["calibration"]["test"]["tokens"], 0);
  ExpectExactWith("specdec++");
}

TEST_F(CalibrateTest, CaliTsIsTrainedTunedAndLoaded) {
  const CommandResult result =
      Calibrate("cali-ts", {"--thresholds=0.1,0.4", "--epochs=2"});
  ASSERT_EQ(result.end, "exit code 0") << result.err;
  EXPECT_THAT(result.out, HasSubstr("sd/cali-ts:sigma-model=0.4,max=8"));
  const nlohmann::json json = Policy();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["policy"], "cali-ts");
  const double sigma = json["parameters"]["sigma-model"];
  EXPECT_TRUE(sigma == 0.1 || sigma == 0.4) << sigma;
  EXPECT_EQ(json["calibration"]["recorded_tokens"],
            json["calibration"]["answer_tokens"])
      << result.out;
  EXPECT_GT(json["calibration"]["training_tokens"], 100);
  EXPECT_GT(json["calibration"]["test"]["tokens"], 0);
  ExpectExactWith("cali-ts");
}

// Which tokens a run records depends on its chunks; what is trained on them
// does not, once runs have filled each other's gaps.
TEST_F(CalibrateTest, RecordingsOfOtherChunksGiveTheSameWeights) {
  std::vector<std::string> weights;
  for (const std::string policy : {"disco", "specdec++"}) {
    for (const char* window : {"--window=16", "--window=5"}) {
      const CommandResult result = Calibrate(
          policy,
          {"--thresholds=0.5", "--caps=4", "--epochs=2", "--limit=4", window});
      ASSERT_EQ(result.end, "exit code 0") << result.err;
      const nlohmann::json report = Policy()["calibration"];
      EXPECT_EQ(report["recorded_tokens"], report["answer_tokens"])
          << result.out;
      const auto file = ReadFile(out() + "/policy.safetensors");
      ASSERT_TRUE(file.ok()) << file.status();
      weights.push_back(*file);
    }
  }
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[2], weights[3]);
}

TEST_F(CalibrateTest, OptimalStaticIsMeasured) {
  const CommandResult result = Calibrate("optimal-static", {});
  ASSERT_EQ(result.end, "exit code 0") << result.err;
  EXPECT_THAT(result.out, HasSubstr("the law says gamma "));
  const nlohmann::json json = Policy();
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["calibration"]["acceptance"], 0.0);
  EXPECT_GT(json["calibration"]["cost_ratio"], 0.0);
  const int law = json["calibration"]["law_gamma"];
  EXPECT_LE(std::abs(law - json["parameters"]["gamma"].get<int>()), 2);
  ExpectExactWith("optimal-static");
}

TEST_F(CalibrateTest, SvipIsTuned) {
  const CommandResult result = Calibrate("svip", {"--thresholds=0.3,0.5"});
  ASSERT_EQ(result.end, "exit code 0") << result.err;
  const nlohmann::json json = Policy();
  ASSERT_TRUE(json.is_object());
  const double h = json["parameters"]["h"];
  EXPECT_TRUE(h == 0.3 || h == 0.5) << h;
  ExpectExactWith("svip");
}

// What fails leaves no folder.
TEST_F(CalibrateTest, AFailureWritesNothing) {
  const CommandResult result =
      Calibrate("disco", {"--backend=none-such", "--epochs=2"});
  EXPECT_EQ(result.end, "exit code 1");
  EXPECT_THAT(result.err, HasSubstr("none-such"));
  EXPECT_FALSE(std::filesystem::exists(out()));
}

// A worker that records serves as always, and what it wrote can be read, also
// under overlap and with several requests.
TEST_F(CalibrateTest, ARecordingDraftServesAsAlways) {
  const std::string file = folder_.path() + "/rows.jsonl";
  tools::Cluster::Options options = Service::Options();
  const std::string states_file = folder_.path() + "/states";
  options.more_args.draft = {"--record-features", file, "--record-hidden",
                             states_file};
  std::map<int, std::vector<int32_t>> answers;
  {
    Service service(options);
    for (const tools::Prompt& prompt : LoadPrompts("gsm8k_100.jsonl", 2)) {
      const auto ar =
          service.Generate(Request(prompt.text, v1::METHOD_AR, kMaxTokens));
      v1::GenerateRequest request =
          Request(prompt.text, v1::METHOD_ASYNC, kMaxTokens);
      const int index = static_cast<int>(answers.size());
      request.set_request_id(tools::RecordingId(index));
      const auto async = service.Generate(request);
      ASSERT_TRUE(ar.ok() && async.ok());
      EXPECT_EQ(
          std::vector<uint32_t>(ar->token_ids().begin(), ar->token_ids().end()),
          std::vector<uint32_t>(async->token_ids().begin(),
                                async->token_ids().end()));
      answers[index].assign(ar->token_ids().begin(), ar->token_ids().end());
    }
  }
  const auto lines = tools::ParseFeatures(file, ReadFile(file).value_or(""));
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto states = tools::HiddenStates::Parse(
      states_file, ReadFile(states_file).value_or(""));
  ASSERT_TRUE(states.ok()) << states.status();
  int last = -1;
  uint64_t session = 0;
  for (const tools::FeatureLine& line : *lines) {
    if (line.session != session) last = -1;
    EXPECT_GT(line.position, last);
    last = line.position;
    session = line.session;
    EXPECT_TRUE(line.row.has_value());
  }
  // Every outcome is that of the answer, every state is there.
  tools::Recording recording({.max_tokens = {kMaxTokens, kMaxTokens}});
  const absl::Status added = recording.Add(*lines, &*states, answers);
  EXPECT_TRUE(added.ok()) << added;
  EXPECT_GT(recording.recorded(), 0u);
}

TEST(RecordStartup, BadFilesEndTheWorker) {
  const tools::TemporaryFolder folder;
  const auto run = [&](const std::string& program, const std::string& model) {
    const std::string log = folder.path() + "/log";
    std::filesystem::remove(log);
    auto process = tools::ChildProcess::Start(
        {.argv = {std::string(NACRE_BIN "/") + program, "--model", model,
                  "--coordinator", "127.0.0.1:1", "--cpus", "0",
                  "--record-features", "/nowhere/rows.jsonl"},
         .log_file = log});
    EXPECT_TRUE(process.ok()) << process.status();
    EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(1)));
    EXPECT_EQ((*process)->Poll().value_or("still running"), "exit code 1");
    return ReadFile(log).value_or("");
  };
  EXPECT_THAT(run("nacre-draft-worker", DraftModel()),
              HasSubstr("--record-features /nowhere/rows.jsonl"));
  EXPECT_THAT(run("nacre-target-worker", TargetModel()),
              HasSubstr("--record-features of a target needs --record-hidden"));
}

}  // namespace
}  // namespace nacre::integration
