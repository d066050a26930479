// /metrics of the real processes: every name is there from the start, the sums
// agree with the answers, and a worker's time has no gap.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "tests/integration/service_fixture.h"
#include "tests/telemetry/http_get.h"
#include "tools/child_process.h"
#include "tools/temporary_folder.h"

namespace nacre::integration {
namespace {

using telemetry::Samples;
using telemetry::Sum;
using tools::ChildProcess;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Start("coordinator",
          {"nacre-coordinator", "--tokenizer", TargetModel(), "--listen",
           "127.0.0.1:0", "--registry-listen", "127.0.0.1:0", "--admin-listen",
           "127.0.0.1:0", "--registry-address-file", File("registry.address"),
           "--address-file", File("coordinator.address")});
    address_ = AwaitFile(File("coordinator.address"));
    const std::string registry = AwaitFile(File("registry.address"));
    for (const char* role : {"target", "draft"}) {
      Start(role, {std::string("nacre-") + role + "-worker", "--model",
                   std::string(NACRE_MODELS "/") + role, "--coordinator",
                   registry, "--cpus", "0"});
    }
    ASSERT_TRUE(Service::Eventually([this] {
      return Sum(Scrape("coordinator"), "nacre_workers", "ready") == 2;
    }));
  }

  std::string File(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  static std::string AwaitFile(const std::string& path) {
    std::string text;
    EXPECT_TRUE(Service::Eventually([&] {
      const auto content = tools::ReadFile(path);
      if (content.ok()) text = *content;
      return content.ok();
    }));
    return std::string(absl::StripAsciiWhitespace(text));
  }

  void Start(const std::string& name, std::vector<std::string> argv) {
    argv[0] = std::string(NACRE_BIN "/") + argv[0];
    for (const std::string& arg : std::vector<std::string>{
             "--metrics-listen", "127.0.0.1:0", "--metrics-address-file",
             File(name + ".metrics")}) {
      argv.push_back(arg);
    }
    auto process = ChildProcess::Start(
        {.argv = std::move(argv), .log_file = File(name + ".log")});
    ASSERT_TRUE(process.ok()) << process.status();
    processes_[name] = *std::move(process);
  }

  Samples Scrape(const std::string& name) const {
    return telemetry::Scrape(AwaitFile(File(name + ".metrics")));
  }

  // Busy and waiting seconds of a worker together.
  double Life(const std::string& role) const {
    const Samples samples = Scrape(role);
    return Sum(samples, "nacre_worker_busy_seconds_total") +
           Sum(samples, "nacre_" + role + "_wait_seconds_total");
  }

  const tools::TemporaryFolder folder_;
  std::map<std::string, std::unique_ptr<ChildProcess>> processes_;
  std::string address_;
};

TEST_F(MetricsTest, SumsAgreeWithTheAnswersAndTimeHasNoGap) {
  const Samples fresh = Scrape("coordinator");
  for (const auto& [sample, value] : fresh) {
    // What is 0 only while nothing is attached.
    if (sample.rfind("nacre_workers", 0) == 0 ||
        sample.rfind("nacre_worker_heartbeat_age", 0) == 0 ||
        sample.rfind("nacre_build_info", 0) == 0) {
      continue;
    }
    EXPECT_EQ(value, 0) << sample;
  }

  // Between two scrapes of a worker lies at least `inner` and at most `outer`.
  std::map<std::string, double> life;
  std::map<std::string, absl::Time> before, after;
  for (const char* role : {"target", "draft"}) {
    before[role] = absl::Now();
    life[role] = Life(role);
    after[role] = absl::Now();
  }

  tools::GenerationClient client(address_);
  uint64_t completion = 0, prompt = 0, rounds = 0, drafted = 0, verified = 0,
           accepted = 0;
  absl::Duration inner;
  for (int i = 0; inner < absl::Seconds(1); ++i) {
    const v1::Method method =
        i % 3 == 0 ? v1::METHOD_ASYNC
                   : (i % 3 == 1 ? v1::METHOD_PEARL : v1::METHOD_SD);
    v1::GenerateRequest request = Request("def main():", method, 200);
    request.mutable_stop()->set_ignore_eos(true);
    const auto complete =
        client.Generate(request, kCallTimeout, [](const v1::Chunk&) {});
    ASSERT_TRUE(complete.ok()) << complete.status();
    prompt += complete->usage().prompt_tokens();
    completion += complete->usage().completion_tokens();
    rounds += complete->speculation().rounds();
    drafted += complete->speculation().drafted();
    verified += complete->speculation().verified();
    accepted += complete->speculation().accepted();
    inner = absl::Now() - std::max(after["target"], after["draft"]);
  }
  const Samples sums = Scrape("coordinator");
  EXPECT_EQ(Sum(sums, "nacre_prompt_tokens_total"), prompt);
  EXPECT_EQ(Sum(sums, "nacre_generation_tokens_total"), completion);
  EXPECT_EQ(Sum(sums, "nacre_spec_decode_mode_rounds_total"), rounds);
  EXPECT_EQ(Sum(sums, "nacre_spec_decode_num_draft_tokens_total"), drafted);
  EXPECT_EQ(Sum(sums, "nacre_spec_decode_num_verified_tokens_total"), verified);
  EXPECT_EQ(Sum(sums, "nacre_spec_decode_num_accepted_tokens_total"), accepted);
  EXPECT_EQ(Sum(sums, "nacre_spec_decode_num_accepted_tokens_per_pos_total"),
            accepted);
  EXPECT_EQ(drafted - accepted,
            Sum(sums, "nacre_spec_decode_draft_tokens_wasted_total"));
  EXPECT_EQ(Sum(sums, "nacre_num_requests_running"), 0);

  for (const char* role : {"target", "draft"}) {
    const absl::Time second_before = absl::Now();
    const double lived = Life(role) - life[role];
    const absl::Time second_after = absl::Now();
    const double shortest = absl::ToDoubleSeconds(second_before - after[role]);
    const double longest = absl::ToDoubleSeconds(second_after - before[role]);
    EXPECT_GE(lived, 0.99 * shortest) << role;
    EXPECT_LE(lived, 1.01 * longest) << role;
  }
  const Samples target = Scrape("target");
  EXPECT_GT(Sum(target, "nacre_worker_busy_seconds_total", "verify"), 0);
  EXPECT_GE(Sum(target, "nacre_worker_steps_total"), rounds);
  const Samples draft = Scrape("draft");
  EXPECT_GT(Sum(draft, "nacre_worker_busy_seconds_total", "draft"), 0);
  EXPECT_GT(Sum(draft, "nacre_draft_wait_seconds_total", "verdict"), 0);
  EXPECT_GT(Sum(draft, "nacre_rollback_tokens_total"), 0);
  EXPECT_TRUE(Service::Eventually([this] {
    return Sum(Scrape("target"), "nacre_kv_cache_usage_ratio") == 0 &&
           Sum(Scrape("draft"), "nacre_kv_cache_usage_ratio") == 0;
  }));
}

}  // namespace
}  // namespace nacre::integration
