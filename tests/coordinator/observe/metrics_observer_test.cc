#include "coordinator/observe/metrics_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/telemetry/samples.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;
using speculation::Verdict;
using telemetry::Samples;
using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

class MetricsObserverTest : public ::testing::Test {
 protected:
  static RequestSpec Request(Method method, int prompt_tokens = 3) {
    RequestSpec request;
    request.request_id = "r";
    request.prompt_ids.assign(prompt_tokens, 1);
    request.method = method;
    return request;
  }

  void Start(uint64_t id, Method method, const std::string& draft = "draft",
             int64_t queue_ns = 0) {
    observer_.OnStarted(id, Request(method), {"target", draft}, queue_ns);
    length_ = 3;
  }
  void Tail(uint64_t id, int base_length, int first_position, int count) {
    speculation::Tail tail;
    tail.base_length = base_length;
    tail.first_position = first_position;
    tail.token_ids.assign(count, 9);
    observer_.OnTail(id, tail);
  }
  // `count` tokens, all of them shown.
  void Round(uint64_t id, int count, int window = 0, int verified = 0,
             int accepted = 0, bool degraded = false) {
    Verdict verdict;
    verdict.base_length = length_;
    verdict.token_ids.assign(count, 5);
    verdict.window = window;
    verdict.verified = verified;
    verdict.accepted = accepted;
    verdict.degraded = degraded;
    observer_.OnRound(id, verdict, count);
    length_ += count;
  }
  void Finish(uint64_t id, const absl::Status& status = absl::OkStatus()) {
    observer_.OnFinished(id, Request(Method::kAr), status, nullptr);
  }
  void Span(uint64_t id, WorkerRole role, SpanRecord::Kind kind,
            int64_t start_ns, int64_t duration_ns, int64_t bytes = 0) {
    SpanRecord span;
    span.bytes = bytes;
    span.session_id = id;
    span.kind = kind;
    span.start_ns = start_ns;
    span.duration_ns = duration_ns;
    observer_.OnSpan(id, role, span, /*clock_offset_ns=*/0);
  }
  double Sum(const std::string& name, const std::string& part = "") const {
    return telemetry::Sum(telemetry::Collect(*observer_.collectable()), name,
                          part);
  }
  double Wasted(const std::string& reason) const {
    return Sum("nacre_spec_decode_draft_tokens_wasted_total", reason);
  }

  int64_t now_ns_ = 1000 * kMs;
  int length_ = 3;
  MetricsObserver observer_{"pearl", [this] { return now_ns_; }};
};

TEST_F(MetricsObserverTest, EverySeriesIsThereAtZero) {
  const Samples samples = telemetry::Collect(*observer_.collectable());
  for (const auto& [sample, value] : samples) {
    EXPECT_EQ(value, 0) << sample;
    EXPECT_NE(sample.find("model=\"pearl\""), std::string::npos) << sample;
  }
  for (const char* name : {
           "nacre_num_requests_running",
           "nacre_num_requests_waiting",
           "nacre_prompt_tokens_total",
           "nacre_generation_tokens_total",
           "nacre_prefix_cache_queries_total",
           "nacre_prefix_cache_hits_total",
           "nacre_time_to_first_token_seconds_count",
           "nacre_inter_token_latency_seconds_count",
           "nacre_e2e_request_latency_seconds_count",
           "nacre_request_queue_time_seconds_count",
           "nacre_spec_decode_num_drafts_total",
           "nacre_spec_decode_num_draft_tokens_total",
           "nacre_spec_decode_num_verified_tokens_total",
           "nacre_spec_decode_num_accepted_tokens_total",
           "nacre_spec_decode_draft_length_count",
           "nacre_round_duration_seconds_count",
           "nacre_coordinator_round_overhead_seconds_count",
       }) {
    EXPECT_EQ(telemetry::Sum(samples, name), 0) << name;
  }
  const auto expect_label = [&](const char* name, const char* label,
                                std::initializer_list<const char*> values) {
    for (const char* value : values) {
      const std::string part = std::string(label) + "=\"" + value + "\"";
      EXPECT_EQ(telemetry::Sum(samples, name, part), 0) << name << part;
    }
  };
  expect_label("nacre_requests_total", "finish_reason",
               {"eos", "stop", "length", "cancelled", "error"});
  expect_label("nacre_requests_total", "status",
               {"OK", "CANCELLED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED",
                "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"});
  expect_label("nacre_spec_decode_draft_tokens_wasted_total", "reason",
               {"rejected", "branch", "stale", "cancelled"});
  expect_label("nacre_spec_decode_mode_rounds_total", "mode",
               {"pre_verify", "post_verify", "sync", "off"});
  expect_label("nacre_spec_decode_degraded_rounds_total", "reason",
               {"no_draft", "draft_lost"});
  expect_label("nacre_spec_decode_policy_stops_total", "policy",
               {"svip", "specdec++", "oracle"});
  expect_label("nacre_spec_decode_num_accepted_tokens_per_pos_total",
               "position", {"0", "1", "15", "16+"});
  expect_label("nacre_spec_decode_target_ranks_total", "rank",
               {"1", "2", "8", "beyond"});
  expect_label("nacre_round_wait_seconds_count", "role", {"draft", "target"});
  expect_label("nacre_spec_decode_wait_seconds_total", "after",
               {"hit", "miss"});
}

TEST_F(MetricsObserverTest, RanksAreCountedWhenARequestEndsWell) {
  Completion completion;
  completion.stats.ranks = {7, 2, 0, 0, 0, 0, 0, 0, 1};
  Start(1, Method::kAsync);
  observer_.OnFinished(1, Request(Method::kAsync), absl::OkStatus(),
                       &completion);
  const std::string name = "nacre_spec_decode_target_ranks_total";
  EXPECT_EQ(Sum(name, "rank=\"1\""), 7);
  EXPECT_EQ(Sum(name, "rank=\"2\""), 2);
  EXPECT_EQ(Sum(name, "rank=\"beyond\""), 1);
  EXPECT_EQ(Sum(name), 10);
}

TEST_F(MetricsObserverTest, CountsTheChunksThatAPolicyEnded) {
  RequestSpec request = Request(Method::kAsync);
  request.policy = *speculation::ParsePolicySpec("svip");
  observer_.OnStarted(1, request, {"target", "draft"}, 0);
  const auto tail = [&](int base_length, int first_position, int count,
                        speculation::StopMark stop) {
    speculation::Tail tail;
    tail.base_length = base_length;
    tail.first_position = first_position;
    tail.token_ids.assign(count, 9);
    tail.stop = stop;
    observer_.OnTail(1, tail);
  };
  const auto stops = [&](const char* policy) {
    return telemetry::Sum(telemetry::Collect(*observer_.collectable()),
                          "nacre_spec_decode_policy_stops_total",
                          std::string("policy=\"") + policy + "\"");
  };
  tail(3, 3, 1, speculation::StopMark::kNone);
  tail(3, 4, 1, speculation::StopMark::kChunk);
  tail(3, 5, 1, speculation::StopMark::kLead);
  EXPECT_EQ(stops("svip"), 1);
  tail(6, 6, 1, speculation::StopMark::kPolicy);
  EXPECT_EQ(stops("svip"), 2);
  // It still waits there.
  tail(7, 7, 0, speculation::StopMark::kPolicy);
  EXPECT_EQ(stops("svip"), 2);
  // Another chunk, ended before a token.
  tail(8, 9, 0, speculation::StopMark::kPolicy);
  tail(9, 9, 0, speculation::StopMark::kPolicy);
  EXPECT_EQ(stops("svip"), 3);
  // A tree, whose messages begin at its root, says so until the next commit.
  const auto nodes = [&](int base_length, speculation::StopMark stop) {
    speculation::Tail tail;
    tail.base_length = tail.first_position = base_length;
    tail.token_ids = {9, 8};
    tail.parents = {0, 0};
    tail.scores = {0, 0};
    tail.first_node = 1;
    tail.stop = stop;
    observer_.OnTail(1, tail);
  };
  nodes(12, speculation::StopMark::kPolicy);
  nodes(12, speculation::StopMark::kPolicy);
  EXPECT_EQ(stops("svip"), 4);
  nodes(13, speculation::StopMark::kNone);
  nodes(13, speculation::StopMark::kPolicy);
  EXPECT_EQ(stops("svip"), 5);
  EXPECT_EQ(stops("oracle"), 0);
}

TEST_F(MetricsObserverTest, CountsRunningAndWaitingRequests) {
  const RequestSpec request = Request(Method::kAsync);
  observer_.OnQueued(request, 0);
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 1);
  // Another of the same name is refused: the first one still waits.
  observer_.OnRefused(request, absl::AlreadyExistsError("running"));
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 1);
  Start(1, Method::kAsync, "draft", 250 * kMs);
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 0);
  EXPECT_EQ(Sum("nacre_num_requests_running"), 1);
  EXPECT_EQ(Sum("nacre_request_queue_time_seconds_sum"), 0.25);
  EXPECT_EQ(Sum("nacre_prompt_tokens_total"), 3);
  Finish(1);
  EXPECT_EQ(Sum("nacre_num_requests_running"), 0);

  observer_.OnQueued(request, 0);
  observer_.OnRefused(request, absl::CancelledError("gone"));
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 0);
  // Refused without having waited.
  observer_.OnRefused(request, absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 0);
}

TEST_F(MetricsObserverTest, CountsWhatTheTargetsHadCached) {
  Start(1, Method::kAr, "");
  Start(2, Method::kAsync);
  // The second one ends before its target has opened it.
  observer_.OnOpened(1, 2);
  Finish(2, absl::CancelledError(""));
  EXPECT_EQ(Sum("nacre_prefix_cache_queries_total"), 3);
  EXPECT_EQ(Sum("nacre_prefix_cache_hits_total"), 2);
  Start(3, Method::kAr, "");
  observer_.OnOpened(3, 0);
  EXPECT_EQ(Sum("nacre_prefix_cache_queries_total"), 6);
  EXPECT_EQ(Sum("nacre_prefix_cache_hits_total"), 2);
  observer_.OnCached(3, 1);
  observer_.OnCached(4, 1);  // there is no such session
  EXPECT_EQ(Sum("nacre_prefix_cache_queries_total"), 6);
  EXPECT_EQ(Sum("nacre_prefix_cache_hits_total"), 3);
}

TEST_F(MetricsObserverTest, EachChoiceWaitsAndRuns) {
  RequestSpec request = Request(Method::kAsync);
  request.num_choices = 3;
  for (request.choice = 0; request.choice < 3; ++request.choice) {
    observer_.OnQueued(request, request.choice);
  }
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 3);
  request.choice = 1;
  observer_.OnStarted(1, request, {"target", ""}, 0);
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 2);
  EXPECT_EQ(Sum("nacre_num_requests_running"), 1);
  request.choice = 2;
  observer_.OnRefused(request, absl::CancelledError("gone"));
  EXPECT_EQ(Sum("nacre_num_requests_waiting"), 1);
}

TEST_F(MetricsObserverTest, TimesTheTokens) {
  Start(1, Method::kAr, "", 100 * kMs);
  now_ns_ += 50 * kMs;
  Round(1, 1);
  EXPECT_NEAR(Sum("nacre_time_to_first_token_seconds_sum"), 0.150, 1e-12);
  now_ns_ += 40 * kMs;
  Round(1, 4);  // they share the time
  EXPECT_EQ(Sum("nacre_inter_token_latency_seconds_count"), 4);
  EXPECT_NEAR(Sum("nacre_inter_token_latency_seconds_sum"), 0.040, 1e-12);
  EXPECT_EQ(Sum("nacre_inter_token_latency_seconds_bucket", "le=\"0.01\""), 4);
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), 5);
  now_ns_ += 10 * kMs;
  Finish(1);
  EXPECT_NEAR(Sum("nacre_e2e_request_latency_seconds_sum"), 0.200, 1e-12);

  Start(2, Method::kAr, "");
  Finish(2, absl::CancelledError(""));
  EXPECT_EQ(Sum("nacre_e2e_request_latency_seconds_count"), 1);
  EXPECT_EQ(Sum("nacre_time_to_first_token_seconds_count"), 1);
}

TEST_F(MetricsObserverTest, EveryRoundHasOneMode) {
  Start(1, Method::kPearl);
  Round(1, 1, /*window=*/0);
  Round(1, 3, /*window=*/2, /*verified=*/3, /*accepted=*/3);
  Round(1, 1, 0, 0, 0, /*degraded=*/true);
  Finish(1);
  Start(2, Method::kSd);
  Round(2, 2, /*window=*/4, /*verified=*/2, /*accepted=*/1);
  Finish(2);
  Start(3, Method::kAr, "");
  Round(3, 1, 0, 0, 0, /*degraded=*/true);
  Finish(3);
  const std::string name = "nacre_spec_decode_mode_rounds_total";
  EXPECT_EQ(Sum(name, "pre_verify"), 1);
  EXPECT_EQ(Sum(name, "post_verify"), 1);
  EXPECT_EQ(Sum(name, "sync"), 1);
  EXPECT_EQ(Sum(name, "off"), 2);
  // ar asks for no draft.
  EXPECT_EQ(Sum("nacre_spec_decode_degraded_rounds_total"), 1);
  EXPECT_EQ(Sum("nacre_spec_decode_draft_length_count"), 3);
  EXPECT_EQ(Sum("nacre_spec_decode_draft_length_sum"), 6);
}

TEST_F(MetricsObserverTest, TokensOfTheTargetsOwnAreNotTheDrafts) {
  Start(1, Method::kAsync);
  speculation::Verdict verdict;
  verdict.token_ids = {'a', 'b'};
  verdict.window = verdict.suffix_proposed = 5;
  verdict.matched = verdict.suffix_accepted = 1;
  observer_.OnRound(1, verdict, /*num_shown=*/2);
  Finish(1);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total", "pre_verify"), 1);
  EXPECT_EQ(Sum("nacre_spec_decode_draft_length_count"), 1);
  EXPECT_EQ(Sum("nacre_spec_decode_draft_length_sum"), 0);
}

TEST_F(MetricsObserverTest, SaysWhyRoundsAreDegraded) {
  Start(1, Method::kAsync, /*draft=*/"");
  Round(1, 1, 0, 0, 0, /*degraded=*/true);
  observer_.OnMoved(1, {"target", "draft"});
  observer_.OnMoved(1, {"target", ""});
  Round(1, 1, 0, 0, 0, /*degraded=*/true);
  Round(1, 1, 0, 0, 0, /*degraded=*/true);
  const std::string name = "nacre_spec_decode_degraded_rounds_total";
  EXPECT_EQ(Sum(name, "no_draft"), 1);
  EXPECT_EQ(Sum(name, "draft_lost"), 2);
}

TEST_F(MetricsObserverTest, WhereThereNeverWasADraftNoRoundLacksIt) {
  RequestSpec request = Request(Method::kAsync);
  request.expects_draft = false;
  observer_.OnStarted(1, request, {"target", ""}, 0);
  Round(1, 1, 0, 0, 0, /*degraded=*/true);
  EXPECT_EQ(Sum("nacre_spec_decode_degraded_rounds_total"), 0);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total", "off"), 1);
}

TEST_F(MetricsObserverTest, AcceptedTokensByPosition) {
  Start(1, Method::kAsync);
  Tail(1, 3, 3, 40);
  Round(1, 4, 5, /*verified=*/4, /*accepted=*/3);
  Round(1, 21, 20, /*verified=*/20, /*accepted=*/20);
  Round(1, 1, 0);
  const std::string name =
      "nacre_spec_decode_num_accepted_tokens_per_pos_total";
  EXPECT_EQ(Sum(name, "\"0\""), 2);
  EXPECT_EQ(Sum(name, "\"2\""), 2);
  EXPECT_EQ(Sum(name, "\"3\""), 1);
  EXPECT_EQ(Sum(name, "\"16+\""), 4);
  EXPECT_EQ(Sum(name), Sum("nacre_spec_decode_num_accepted_tokens_total"));
  EXPECT_EQ(Sum("nacre_spec_decode_num_verified_tokens_total"), 24);
  EXPECT_EQ(Sum("nacre_spec_decode_num_drafts_total"), 2);
}

TEST_F(MetricsObserverTest, EveryDraftTokenIsUsedOrWastedForOneReason) {
  Start(1, Method::kAsync);
  Tail(1, /*base=*/3, /*at=*/3, 6);
  Round(1, 2, /*window=*/4, /*verified=*/2, /*accepted=*/1);  // stale: 4
  Tail(1, /*base=*/3, /*at=*/9, 2);  // still against what was rejected
  Tail(1, /*base=*/5, /*at=*/5, 5);  // after the rejection
  Round(1, 3, /*window=*/2, /*verified=*/2, /*accepted=*/2);  // length 8
  Finish(1, absl::CancelledError(""));                        // 8, 9 pending
  EXPECT_EQ(Wasted("rejected"), 1);
  EXPECT_EQ(Wasted("cancelled"), 2);
  EXPECT_EQ(Wasted("stale"), 7);
  EXPECT_EQ(Sum("nacre_spec_decode_num_draft_tokens_total"),
            Sum("nacre_spec_decode_num_accepted_tokens_total") + Wasted(""));
}

TEST_F(MetricsObserverTest, BranchesThatWereNotNeededAreNotStale) {
  Start(1, Method::kAsync);
  speculation::Tail tail;
  tail.base_length = tail.first_position = 3;
  // Two choices, two behind the first, one behind each of these.
  tail.token_ids = {5, 6, 5, 7, 8, 9};
  tail.parents = {0, 0, 1, 1, 3, 4};
  tail.scores.assign(6, -1.0f);
  tail.first_node = 1;
  observer_.OnTail(1, tail);
  // 5 matched, 5 was wrong: 7 came, which had been prepared.
  Verdict verdict;
  verdict.base_length = 3;
  verdict.token_ids = {5, 7};
  verdict.window = verdict.verified = verdict.accepted = 2;
  verdict.matched = 1;
  observer_.OnRound(1, verdict, 2);
  Finish(1);
  EXPECT_EQ(Wasted("branch"), 1);     // 6
  EXPECT_EQ(Wasted("stale"), 2);      // 5 and 8 behind it
  EXPECT_EQ(Wasted("cancelled"), 1);  // 9
  EXPECT_EQ(Wasted("rejected"), 0);
  EXPECT_EQ(Sum("nacre_spec_decode_num_draft_tokens_total"),
            Sum("nacre_spec_decode_num_accepted_tokens_total") + Wasted(""));
}

TEST_F(MetricsObserverTest, WhatAHeldStepAcceptedIsTimedBeforeItsRound) {
  Start(1, Method::kPearl);
  now_ns_ += 50 * kMs;
  observer_.OnAccepted(1, 2);
  EXPECT_NEAR(Sum("nacre_time_to_first_token_seconds_sum"), 0.050, 1e-12);
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), 2);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total"), 0);
  now_ns_ += 30 * kMs;
  Verdict verdict;
  verdict.base_length = 3;
  verdict.token_ids = {5, 5, 5};
  verdict.window = 2;
  verdict.verified = verdict.accepted = 3;
  observer_.OnRound(1, verdict, /*num_shown=*/1);
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), 3);
  EXPECT_NEAR(Sum("nacre_inter_token_latency_seconds_sum"), 0.030, 1e-12);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total"), 1);
  EXPECT_EQ(Sum("nacre_spec_decode_num_accepted_tokens_total"), 3);
}

TEST_F(MetricsObserverTest, ALostDraftsTokensAreStale) {
  Start(1, Method::kAsync);
  Tail(1, 3, 3, 5);
  observer_.OnMoved(1, {"target", ""});
  Finish(1);
  EXPECT_EQ(Wasted("stale"), 5);
  EXPECT_EQ(Wasted("cancelled"), 0);
}

TEST_F(MetricsObserverTest, WaitsAfterAHitAndAfterAMissAreApart) {
  Start(1, Method::kAsync);
  SpanRecord wait;
  wait.kind = SpanRecord::Kind::kWaitDraftTokens;
  for (const int ms : {3, 4, 8}) {
    wait.duration_ns = ms * kMs;
    wait.after_miss = ms == 8;
    observer_.OnSpan(1, WorkerRole::kTarget, wait, 0);
  }
  EXPECT_NEAR(Sum("nacre_spec_decode_wait_seconds_total", "hit"), 0.007, 1e-12);
  EXPECT_NEAR(Sum("nacre_spec_decode_wait_seconds_total", "miss"), 0.008,
              1e-12);
}

TEST_F(MetricsObserverTest, RoundsAndWaitsComeFromTheWorkersOwnClocks) {
  using Kind = SpanRecord::Kind;
  Start(1, Method::kPearl);
  Span(1, WorkerRole::kTarget, Kind::kVerify, 100 * kMs, 10 * kMs);
  Round(1, 1, 0);
  Span(1, WorkerRole::kTarget, Kind::kWaitDraftTokens, 110 * kMs, 5 * kMs);
  Span(1, WorkerRole::kDraft, Kind::kWaitVerdict, 7 * kMs, 2 * kMs);
  Span(1, WorkerRole::kDraft, Kind::kDraft, 9 * kMs, 1 * kMs);
  Span(1, WorkerRole::kTarget, Kind::kVerify, 116 * kMs, 14 * kMs);
  Round(1, 1, 2);
  EXPECT_EQ(Sum("nacre_round_duration_seconds_count"), 2);
  EXPECT_NEAR(Sum("nacre_round_duration_seconds_sum"), 0.030, 1e-12);
  EXPECT_EQ(Sum("nacre_round_wait_seconds_count", "target"), 2);
  EXPECT_NEAR(Sum("nacre_round_wait_seconds_sum", "target"), 0.005, 1e-12);
  EXPECT_NEAR(Sum("nacre_round_wait_seconds_sum", "draft"), 0.002, 1e-12);
  // Another target has another clock.
  observer_.OnMoved(1, {"other", "draft"});
  Span(1, WorkerRole::kTarget, Kind::kVerify, 1 * kMs, 10 * kMs);
  EXPECT_NEAR(Sum("nacre_round_duration_seconds_sum"), 0.040, 1e-12);
  observer_.OnVerdictsHandled(30'000);
  EXPECT_NEAR(Sum("nacre_coordinator_round_overhead_seconds_sum"), 3e-5, 1e-15);
}

TEST_F(MetricsObserverTest, HiddenStatesAreCountedInBytesAndSeconds) {
  using Kind = SpanRecord::Kind;
  Start(1, Method::kSd);
  Span(1, WorkerRole::kDraft, Kind::kHidden, 5 * kMs, 2 * kMs, 1000);
  Span(1, WorkerRole::kDraft, Kind::kHidden, 9 * kMs, 0, 24);
  Span(1, WorkerRole::kDraft, Kind::kDraft, 9 * kMs, 1 * kMs);
  EXPECT_EQ(Sum("nacre_hidden_state_bytes_total"), 1024);
  EXPECT_NEAR(Sum("nacre_hidden_state_seconds_total"), 0.002, 1e-12);
}

TEST_F(MetricsObserverTest, AnswersByStatusAndReason) {
  observer_.OnAnswered("a", absl::OkStatus(), Finish::kEos);
  observer_.OnAnswered("b", absl::OkStatus(), Finish::kStop);
  observer_.OnAnswered("", absl::InvalidArgumentError(""), absl::nullopt);
  observer_.OnAnswered("d", absl::CancelledError(""), absl::nullopt);
  observer_.OnAnswered("e", absl::Status(absl::StatusCode(99), ""),
                       absl::nullopt);
  const std::string name = "nacre_requests_total";
  EXPECT_EQ(Sum(name, "finish_reason=\"eos\""), 1);
  EXPECT_EQ(Sum(name, "status=\"OK\""), 2);
  EXPECT_EQ(Sum(name, "status=\"INVALID_ARGUMENT\""), 1);
  EXPECT_EQ(Sum(name, "finish_reason=\"cancelled\""), 1);
  EXPECT_EQ(Sum(name, "status=\"UNKNOWN\""), 1);
  EXPECT_EQ(Sum(name), 5);
}

TEST_F(MetricsObserverTest, UnknownSessionsAreIgnored) {
  Tail(7, 0, 0, 3);
  Round(7, 3, 2, 2, 2);
  observer_.OnMoved(7, {});
  observer_.OnOpened(7, 1);
  Span(7, WorkerRole::kTarget, SpanRecord::Kind::kVerify, 0, 5);
  Finish(7);
  for (const auto& [sample, value] :
       telemetry::Collect(*observer_.collectable())) {
    EXPECT_EQ(value, 0) << sample;
  }
}

// As they are documented: dashboards and alerts are made for them.
TEST_F(MetricsObserverTest, HistogramsHaveTheirBuckets) {
  std::map<std::string, std::vector<double>> bounds;
  for (const auto& family : observer_.collectable()->Collect()) {
    if (family.type != prometheus::MetricType::Histogram) continue;
    std::vector<double>& of_family = bounds[family.name];
    of_family.clear();
    for (const auto& bucket : family.metric.at(0).histogram.bucket) {
      if (!std::isinf(bucket.upper_bound)) {
        of_family.push_back(bucket.upper_bound);
      }
    }
  }
  const std::vector<double> request = {.01,   .02,   .04,   .08,  .16,
                                       .32,   .64,   1.28,  2.56, 5.12,
                                       10.24, 20.48, 40.96, 81.92};
  EXPECT_EQ(bounds["nacre_e2e_request_latency_seconds"], request);
  EXPECT_EQ(bounds["nacre_request_queue_time_seconds"], request);
  EXPECT_THAT(bounds["nacre_time_to_first_token_seconds"],
              ElementsAre(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75,
                          1, 2.5, 5, 7.5, 10));
  EXPECT_THAT(bounds["nacre_inter_token_latency_seconds"],
              ElementsAre(.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2,
                          .3, .4, .5, .75, 1, 2.5));
  const std::vector<double> round = {.0005, .001, .0025, .005, .01, .025,
                                     .05,   .1,   .25,   .5,   1,   2.5};
  EXPECT_EQ(bounds["nacre_round_duration_seconds"], round);
  EXPECT_EQ(bounds["nacre_round_wait_seconds"], round);
  EXPECT_THAT(bounds["nacre_coordinator_round_overhead_seconds"],
              ElementsAre(.00001, .000025, .00005, .0001, .00025, .0005, .001,
                          .0025, .005, .01));
  EXPECT_THAT(bounds["nacre_spec_decode_draft_length"],
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64));
  EXPECT_EQ(bounds.size(), 8u);
}

TEST_F(MetricsObserverTest, WaitsOfARoundAreNotThoseOfTheNext) {
  using Kind = SpanRecord::Kind;
  Start(1, Method::kPearl);
  Span(1, WorkerRole::kTarget, Kind::kWaitDraftTokens, 0, 5 * kMs);
  Span(1, WorkerRole::kDraft, Kind::kWaitVerdict, 0, 2 * kMs);
  Round(1, 1, 0, 0, 0, /*degraded=*/true);  // without a draft: not counted
  Round(1, 1, 2, 2, 2);
  EXPECT_EQ(Sum("nacre_round_wait_seconds_count", "target"), 1);
  EXPECT_EQ(Sum("nacre_round_wait_seconds_sum", "target"), 0);
  EXPECT_EQ(Sum("nacre_round_wait_seconds_sum", "draft"), 0);
}

TEST_F(MetricsObserverTest, ADraftsVerifySpanIsNoRound) {
  using Kind = SpanRecord::Kind;
  Start(1, Method::kSd);
  Span(1, WorkerRole::kDraft, Kind::kVerify, 5 * kMs, 2 * kMs);
  EXPECT_EQ(Sum("nacre_round_duration_seconds_count"), 0);
  // A clock that stepped back counts as one that stood still.
  Span(1, WorkerRole::kTarget, Kind::kVerify, 50 * kMs, 2 * kMs);
  Span(1, WorkerRole::kTarget, Kind::kVerify, 10 * kMs, 2 * kMs);
  EXPECT_EQ(Sum("nacre_round_duration_seconds_count"), 2);
  EXPECT_NEAR(Sum("nacre_round_duration_seconds_sum"), 0.002, 1e-12);
}

TEST_F(MetricsObserverTest, AMovedSessionsDraftedTokensAreStale) {
  Start(1, Method::kAsync);
  Tail(1, 3, 3, 5);
  observer_.OnMoved(1, {"other target", "draft"});
  Finish(1);
  EXPECT_EQ(Wasted("stale"), 5);
  EXPECT_EQ(Wasted("cancelled"), 0);
  Start(2, Method::kAsync);
  Tail(2, 3, 3, 5);
  observer_.OnMoved(2, {"target", "another draft"});
  Finish(2);
  EXPECT_EQ(Wasted("cancelled"), 5);
}

TEST_F(MetricsObserverTest, EmptyRoundsTimeNothing) {
  Start(1, Method::kAr, "");
  now_ns_ += 50 * kMs;
  observer_.OnAccepted(1, 0);
  EXPECT_EQ(Sum("nacre_time_to_first_token_seconds_count"), 0);
  observer_.OnAccepted(1, 1);
  EXPECT_NEAR(Sum("nacre_time_to_first_token_seconds_sum"), 0.050, 1e-12);
  EXPECT_EQ(Sum("nacre_inter_token_latency_seconds_count"), 0);
  observer_.OnAccepted(2, 1);  // there is no such session
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), 1);
}

}  // namespace
}  // namespace nacre::coordinator
