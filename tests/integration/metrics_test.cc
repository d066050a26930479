// /metrics of the real processes: every name is there from the start, the sums
// agree with the answers, and a worker's time has no gap.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

using telemetry::Samples;
using telemetry::Sum;

// Busy and waiting seconds of a worker together.
double Life(const Processes& processes, const std::string& role) {
  const Samples samples = processes.Scrape(role);
  return Sum(samples, "nacre_worker_busy_seconds_total") +
         Sum(samples, "nacre_" + role + "_wait_seconds_total");
}

v1::Method CycledMethod(int i) {
  constexpr v1::Method kMethods[] = {v1::METHOD_ASYNC, v1::METHOD_PEARL,
                                     v1::METHOD_SD};
  return kMethods[i % 3];
}

TEST(MetricsTest, SumsAgreeWithTheAnswersAndTimeHasNoGap) {
  Processes processes({});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  const Samples fresh = processes.Scrape("coordinator");
  for (const auto& [sample, value] : fresh) {
    // What is 0 only while nothing is attached.
    if (sample.rfind("nacre_workers", 0) == 0 ||
        sample.rfind("nacre_worker_heartbeat_age", 0) == 0 ||
        sample.rfind("nacre_kv_capacity_tokens", 0) == 0 ||
        sample.rfind("nacre_target_info", 0) == 0 ||
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
    life[role] = Life(processes, role);
    after[role] = absl::Now();
  }

  tools::GenerationClient client(processes.address());
  uint64_t completion = 0, prompt = 0, rounds = 0, drafted = 0, verified = 0,
           accepted = 0;
  absl::Duration inner;
  for (int i = 0; inner < absl::Seconds(1); ++i) {
    v1::GenerateRequest request = Request("def main():", CycledMethod(i), 200);
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
  // The last answer may be here before its request has been counted out.
  Samples sums;
  ASSERT_TRUE(Service::Eventually([&processes, &sums] {
    sums = processes.Scrape("coordinator");
    return Sum(sums, "nacre_num_requests_running") == 0;
  }));
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

  for (const char* role : {"target", "draft"}) {
    const absl::Time second_before = absl::Now();
    const double lived = Life(processes, role) - life[role];
    const absl::Time second_after = absl::Now();
    const double shortest = absl::ToDoubleSeconds(second_before - after[role]);
    const double longest = absl::ToDoubleSeconds(second_after - before[role]);
    EXPECT_GE(lived, 0.99 * shortest) << role;
    EXPECT_LE(lived, 1.01 * longest) << role;
  }
  const Samples target = processes.Scrape("target");
  EXPECT_GT(Sum(target, "nacre_worker_busy_seconds_total", "verify"), 0);
  EXPECT_GE(Sum(target, "nacre_worker_steps_total"), rounds);
  const Samples draft = processes.Scrape("draft");
  EXPECT_GT(Sum(draft, "nacre_worker_busy_seconds_total", "draft"), 0);
  EXPECT_GT(Sum(draft, "nacre_draft_wait_seconds_total", "verdict"), 0);
  EXPECT_GT(Sum(draft, "nacre_rollback_tokens_total"), 0);
  EXPECT_TRUE(Service::Eventually([&processes] {
    return Sum(processes.Scrape("target"), "nacre_kv_cache_usage_ratio") == 0 &&
           Sum(processes.Scrape("draft"), "nacre_kv_cache_usage_ratio") == 0;
  }));
}

// Prompts that begin alike, the last one all cached but for its end.
TEST(MetricsTest, CachedTokensReconcileAndChangeNoToken) {
  const std::string common =
      "Question: A baker makes 12 loaves of bread each morning and sells 7 of "
      "them before noon. In the afternoon a school orders three dozen rolls "
      "and pays for them at once. How many ";
  std::vector<v1::GenerateRequest> requests;
  for (const char* end : {"are left?", "rolls is that?", "are sold?",
                          "loaves does he make in a week?", "are left?"}) {
    const int i = static_cast<int>(requests.size());
    requests.push_back(
        Request(absl::StrCat(common, end, "\nAnswer:"), CycledMethod(i), 40));
    if (i % 2 == 1) {
      requests.back().mutable_sampling()->set_temperature(0.8f);
      requests.back().mutable_sampling()->set_seed(5);
    }
  }
  std::vector<Tokens> uncached;
  for (const char* cache : {"off", "on"}) {
    SCOPED_TRACE(cache);
    Processes processes({.workers = {"--prefix-cache", cache}});
    ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
    tools::GenerationClient client(processes.address());
    std::vector<Tokens> outputs;
    std::vector<uint64_t> cached;
    uint64_t cached_sum = 0, prompt_sum = 0;
    for (const v1::GenerateRequest& request : requests) {
      const auto complete =
          client.Generate(request, kCallTimeout, [](const v1::Chunk&) {});
      ASSERT_TRUE(complete.ok()) << complete.status();
      outputs.push_back(Ids(*complete));
      cached.push_back(complete->usage().cached_tokens());
      cached_sum += cached.back();
      prompt_sum += complete->usage().prompt_tokens();
    }
    EXPECT_EQ(cached[0], 0u);
    if (uncached.empty()) {
      EXPECT_EQ(cached_sum, 0u);
      uncached = outputs;
    } else {
      for (size_t i = 1; i < cached.size(); ++i) EXPECT_GE(cached[i], 32u) << i;
      EXPECT_EQ(outputs, uncached);
    }

    const Samples sums = processes.Scrape("coordinator");
    EXPECT_EQ(Sum(sums, "nacre_prefix_cache_hits_total"), cached_sum);
    EXPECT_EQ(Sum(sums, "nacre_prefix_cache_queries_total"), prompt_sum);
    const Samples target = processes.Scrape("target");
    EXPECT_EQ(Sum(target, "nacre_worker_prefix_cache_hits_total"), cached_sum);
    EXPECT_EQ(Sum(target, "nacre_worker_prefix_cache_queries_total"),
              prompt_sum);
    // The draft has read the same prompts and keeps a cache of its own.
    const Samples draft = processes.Scrape("draft");
    EXPECT_EQ(Sum(draft, "nacre_worker_prefix_cache_hits_total") > 0,
              cached_sum > 0);
    EXPECT_EQ(Sum(draft, "nacre_worker_prefix_cache_queries_total"),
              prompt_sum);
    for (const Samples& samples : {target, draft}) {
      EXPECT_EQ(Sum(samples, "nacre_worker_reaped_sessions_total"), 0);
    }
  }
}

}  // namespace
}  // namespace nacre::integration
