// Traces from the observer's calls to what a collector gets.

#include "coordinator/observe/trace_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/telemetry/fake_collector.h"

namespace nacre::coordinator {
namespace {

using speculation::Verdict;
using telemetry::AttributeText;
using Proto = telemetry::FakeCollector::Span;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kOffset = 500'000 * kMs;  // the workers' clocks are ahead
constexpr int64_t kEpoch = 1'700'000'000'000 * kMs;
constexpr char kTraceparent[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

class TraceObserverTest : public ::testing::Test {
 protected:
  TraceObserverTest() {
    telemetry::OtlpExporter::Options options;
    options.collector.endpoint = collector_.address();
    options.max_delay = absl::Milliseconds(10);
    // Batches go out one after the other: on a busy machine the last of many
    // would be too late for any limit.
    options.collector.timeout = absl::InfiniteDuration();
    exporter_ = std::make_unique<telemetry::OtlpExporter>(options);
    Observe(1.0);
  }
  void Observe(double sample_ratio, bool client_decides = true) {
    TraceObserver::Options options;
    options.exporter = exporter_.get();
    options.model = "pearl";
    options.sample_ratio = sample_ratio;
    options.client_decides = client_decides;
    options.now_ns = [this] { return now_ns_; };
    options.unix_now_ns = [this] { return kEpoch + now_ns_; };
    observer_ = std::make_unique<TraceObserver>(options);
  }

  static RequestSpec Request() {
    RequestSpec request;
    request.request_id = "mine";
    request.prompt_ids = {31337, 31338};
    request.stop = {"secret stop"};
    request.max_tokens = 99;
    request.sampling.temperature = 0.5f;
    request.method = speculation::Method::kPearl;
    return request;
  }
  void Span(WorkerRole role, SpanRecord::Kind kind, int64_t start_ms,
            int64_t duration_ms, int rows = 1, int length = 4,
            uint64_t session_id = 7) {
    SpanRecord span;
    span.kind = kind;
    span.start_ns = start_ms * kMs + kOffset;
    span.duration_ns = duration_ms * kMs;
    span.rows = rows;
    span.batch_rows = 8;
    span.batch_sessions = 3;
    span.length = length;
    span.bytes = kind == SpanRecord::Kind::kHidden ? 640 : 0;
    observer_->OnSpan(session_id, role, span, kOffset);
  }
  void Round(int base_length, int tokens, int window, int verified,
             int accepted) {
    Verdict verdict;
    verdict.base_length = base_length;
    verdict.token_ids.assign(tokens, 41337);
    verdict.window = window;
    verdict.verified = verified;
    verdict.accepted = accepted;
    verdict.matched = tokens - 1;
    observer_->OnRound(7, verdict, tokens);
  }
  void Finish(const absl::Status& status = absl::OkStatus()) {
    Completion completion;
    completion.finish = Finish::kLength;
    completion.text = "secret text";
    completion.time_to_first_token_ns = 111 * kMs;
    completion.total_ns = 130 * kMs;
    observer_->OnFinished(7, Request(), status,
                          status.ok() ? &completion : nullptr);
  }
  // Sends all and takes it, by name.
  std::map<std::string, std::vector<Proto>> Received() {
    exporter_.reset();
    std::map<std::string, std::vector<Proto>> by_name;
    for (const Proto& span : collector_.spans()) {
      by_name[span.name()].push_back(span);
    }
    return by_name;
  }
  static int64_t StartMs(const Proto& span) {
    return (static_cast<int64_t>(span.start_time_unix_nano()) - kEpoch) / kMs;
  }
  static int64_t EndMs(const Proto& span) {
    return (static_cast<int64_t>(span.end_time_unix_nano()) - kEpoch) / kMs;
  }

  int64_t now_ns_ = 1000 * kMs;
  telemetry::FakeCollector collector_;
  std::unique_ptr<telemetry::OtlpExporter> exporter_;
  std::unique_ptr<TraceObserver> observer_;
};

TEST_F(TraceObserverTest, AChoiceIsASpanOfItsOwnBelowTheClients) {
  RequestSpec request = Request();
  request.traceparent = kTraceparent;
  request.num_choices = 3;
  for (int i = 0; i < 3; ++i) {
    request.choice = i;
    observer_->OnQueued(request, 10 + i);
  }
  for (int i = 0; i < 3; ++i) {
    request.choice = i;
    observer_->OnStarted(7, request, {"target:1", ""}, 0);
    Finish();
  }
  auto spans = Received();
  const std::vector<Proto>& roots = spans["nacre.v1.Inference/Generate"];
  ASSERT_EQ(roots.size(), 3u);
  ASSERT_EQ(spans["nacre.queue"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(roots[i].parent_span_id(), "\xb7\xad\x6b\x71\x69\x20\x33\x31");
    EXPECT_EQ(AttributeText(roots[i], "nacre.request.id"), "mine");
    EXPECT_EQ(AttributeText(roots[i], "gen_ai.request.choice.count"), "3");
    EXPECT_EQ(AttributeText(roots[i], "nacre.choice"), absl::StrCat(i));
    EXPECT_EQ(AttributeText(spans["nacre.queue"][i], "nacre.queue.position"),
              absl::StrCat(10 + i));
  }
}

TEST_F(TraceObserverTest, ARequestBecomesATree) {
  using Kind = SpanRecord::Kind;
  RequestSpec request = Request();
  request.traceparent = kTraceparent;
  request.tracestate = "vendor=1";
  observer_->OnQueued(request, 4);
  observer_->SetServer("pearl.example", 50050);
  now_ns_ = 1100 * kMs;
  observer_->OnStarted(7, request, {"target:1", "draft:1"}, 100 * kMs);
  observer_->OnOpened(7, 0);
  observer_->OnCached(7, 1);
  Span(WorkerRole::kTarget, Kind::kPrefill, 1101, 4, /*rows=*/2);
  Span(WorkerRole::kTarget, Kind::kVerify, 1105, 5);
  now_ns_ = 1111 * kMs;
  Round(2, 1, 0, 0, 0);
  Span(WorkerRole::kDraft, Kind::kDraft, 1104, 2);
  Span(WorkerRole::kTarget, Kind::kWaitDraftTokens, 1110, 3);
  Span(WorkerRole::kDraft, Kind::kWaitVerdict, 1106, 6);
  Span(WorkerRole::kTarget, Kind::kVerify, 1113, 7, 3);
  Span(WorkerRole::kTarget, Kind::kRollback, 1120, 0, 1);
  Span(WorkerRole::kDraft, Kind::kHidden, 1121, 1);
  now_ns_ = 1121 * kMs;
  Round(3, 2, 2, 2, 1);
  observer_->OnMoved(7, {"target:1", ""});
  now_ns_ = 1131 * kMs;  // the answer was complete a moment ago
  Finish();

  auto spans = Received();
  ASSERT_EQ(spans["nacre.v1.Inference/Generate"].size(), 1u);
  const Proto& root = spans["nacre.v1.Inference/Generate"][0];
  EXPECT_EQ(root.kind(), Proto::SPAN_KIND_SERVER);
  EXPECT_EQ(root.parent_span_id(), "\xb7\xad\x6b\x71\x69\x20\x33\x31");
  EXPECT_EQ(root.trace_state(), "vendor=1");
  EXPECT_EQ(StartMs(root), 1000);
  EXPECT_EQ(EndMs(root), 1130);
  EXPECT_EQ(AttributeText(root, "nacre.request.id"), "mine");
  EXPECT_EQ(AttributeText(root, "rpc.status_code"), "OK");
  EXPECT_EQ(AttributeText(root, "gen_ai.request.model"), "pearl");
  EXPECT_EQ(AttributeText(root, "gen_ai.request.max_tokens"), "99");
  EXPECT_EQ(AttributeText(root, "gen_ai.usage.input_tokens"), "2");
  EXPECT_EQ(AttributeText(root, "gen_ai.usage.output_tokens"), "3");
  EXPECT_EQ(AttributeText(root, "gen_ai.usage.cache_read.input_tokens"), "1");
  EXPECT_EQ(AttributeText(root, "gen_ai.response.finish_reasons"), "length");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.time_in_queue"), "0.100000");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.time_to_first_token"),
            "0.111000");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.e2e"), "0.130000");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.time_in_model_prefill"),
            "0.011000");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.time_in_model_decode"),
            "0.019000");
  EXPECT_EQ(AttributeText(root, "gen_ai.latency.time_in_model_inference"),
            "0.030000");
  EXPECT_EQ(AttributeText(root, "server.address"), "pearl.example");
  EXPECT_EQ(AttributeText(root, "server.port"), "50050");
  EXPECT_EQ(AttributeText(root, "nacre.method"), "pearl");
  EXPECT_EQ(AttributeText(root, "nacre.rounds"), "2");

  ASSERT_EQ(spans["nacre.queue"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.queue"][0], "nacre.queue.position"),
            "4");
  EXPECT_EQ(EndMs(spans["nacre.queue"][0]), 1100);
  ASSERT_EQ(spans["nacre.place"].size(), 2u);
  EXPECT_EQ(AttributeText(spans["nacre.place"][0], "nacre.draft"), "draft:1");
  EXPECT_EQ(AttributeText(spans["nacre.place"][1], "nacre.draft"), "");
  ASSERT_EQ(spans["nacre.prefill"].size(), 1u);
  EXPECT_EQ(spans["nacre.prefill"][0].parent_span_id(), root.span_id());
  EXPECT_EQ(AttributeText(spans["nacre.prefill"][0], "nacre.rows"), "2");
  EXPECT_EQ(AttributeText(spans["nacre.prefill"][0], "nacre.prompt_tokens"),
            "2");
  EXPECT_EQ(AttributeText(spans["nacre.prefill"][0], "nacre.cached_tokens"),
            "1");
  EXPECT_EQ(StartMs(spans["nacre.prefill"][0]), 1101);  // our clock

  ASSERT_EQ(spans["nacre.round"].size(), 2u);
  const Proto& first = spans["nacre.round"][0];
  const Proto& second = spans["nacre.round"][1];
  EXPECT_EQ(first.parent_span_id(), root.span_id());
  EXPECT_EQ(AttributeText(first, "nacre.mode"), "pre_verify");
  EXPECT_EQ(AttributeText(second, "nacre.mode"), "post_verify");
  EXPECT_EQ(AttributeText(second, "nacre.round"), "1");
  EXPECT_EQ(AttributeText(second, "nacre.base_len"), "3");
  EXPECT_EQ(AttributeText(second, "nacre.draft_len"), "2");
  EXPECT_EQ(AttributeText(second, "nacre.accepted"), "1");
  EXPECT_EQ(AttributeText(second, "nacre.bonus"), "1");
  EXPECT_EQ(AttributeText(second, "nacre.wasted"), "1");
  EXPECT_EQ(AttributeText(second, "nacre.wait.target_ns"), "3000000");
  EXPECT_EQ(AttributeText(second, "nacre.wait.draft_ns"), "6000000");
  EXPECT_EQ(StartMs(second), 1110);
  EXPECT_EQ(EndMs(second), 1120);

  ASSERT_EQ(spans["nacre.verify"].size(), 2u);
  EXPECT_EQ(spans["nacre.verify"][0].parent_span_id(), first.span_id());
  EXPECT_EQ(spans["nacre.verify"][1].parent_span_id(), second.span_id());
  EXPECT_EQ(AttributeText(spans["nacre.verify"][1], "nacre.worker"),
            "target:1");
  EXPECT_EQ(AttributeText(spans["nacre.verify"][1], "nacre.batch.tokens"), "8");
  EXPECT_EQ(AttributeText(spans["nacre.verify"][1], "nacre.batch.size"), "3");
  ASSERT_EQ(spans["nacre.draft"].size(), 1u);
  EXPECT_EQ(spans["nacre.draft"][0].parent_span_id(), second.span_id());
  ASSERT_EQ(spans["nacre.wait"].size(), 2u);
  EXPECT_EQ(AttributeText(spans["nacre.wait"][0], "nacre.wait.reason"),
            "draft_tokens");
  EXPECT_EQ(AttributeText(spans["nacre.wait"][0], "nacre.wait.peer"),
            "draft:1");
  EXPECT_EQ(AttributeText(spans["nacre.wait"][1], "nacre.wait.reason"),
            "verdict");
  ASSERT_EQ(spans["nacre.rollback"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.rollback"][0], "nacre.rollback.from"),
            "5");

  ASSERT_EQ(spans["nacre.hidden"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.hidden"][0], "nacre.hidden.bytes"),
            "640");
  EXPECT_EQ(AttributeText(spans["nacre.hidden"][0], "nacre.wait.peer"),
            "target:1");

  for (const auto& [name, group] : spans) {
    for (const Proto& span : group) {
      EXPECT_EQ(span.trace_id(), root.trace_id()) << name;
      EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
      for (const char* secret : {"secret", "31337", "41337"}) {
        EXPECT_THAT(span.DebugString(), Not(HasSubstr(secret))) << name;
      }
    }
  }
  EXPECT_EQ(static_cast<uint8_t>(root.trace_id()[0]), 0x0a);
}

TEST_F(TraceObserverTest, AStepIsLinkedToTheDraftingOfItsTokens) {
  using Kind = SpanRecord::Kind;
  const auto draft = [&](int64_t start_ms, int length) {
    Span(WorkerRole::kDraft, Kind::kDraft, start_ms, 1, 1, length);
  };
  observer_->OnStarted(7, Request(), {"target:1", "draft:1"}, 0);
  draft(1000, 3);  // the token at position 2, and so on
  draft(1001, 4);
  draft(1002, 5);
  draft(1003, 0);  // a verdict came first
  Span(WorkerRole::kTarget, Kind::kVerify, 1002, 5, 3);
  Round(2, 1, 2, 1, 0);  // the first token was wrong
  draft(1010, 4);        // position 3 once more
  draft(1011, 5);
  Span(WorkerRole::kTarget, Kind::kVerify, 1012, 5, 2);
  Round(3, 2, 1, 1, 1);
  // A new draft begins where the tokens of the old one were dropped.
  observer_->OnMoved(7, {"target:1", "draft:2"});
  draft(1020, 7);
  Span(WorkerRole::kTarget, Kind::kVerify, 1022, 5, 3);
  Round(5, 1, 2, 0, 0);
  Finish();
  auto spans = Received();
  const std::vector<Proto>& drafts = spans["nacre.draft"];
  ASSERT_EQ(drafts.size(), 7u);
  std::vector<std::vector<std::string>> linked;
  for (const Proto& verify : spans["nacre.verify"]) {
    std::vector<std::string>& ids = linked.emplace_back();
    for (const auto& link : verify.links()) {
      EXPECT_EQ(link.trace_id(), verify.trace_id());
      EXPECT_EQ(link.attributes(0).value().string_value(), "drafted");
      ids.push_back(link.span_id());
    }
  }
  ASSERT_EQ(linked.size(), 3u);
  EXPECT_THAT(linked[0], ElementsAre(drafts[0].span_id(), drafts[1].span_id()));
  EXPECT_THAT(linked[1], ElementsAre(drafts[4].span_id()));
  EXPECT_THAT(linked[2], ElementsAre(drafts[6].span_id()));
  for (const Proto& span : drafts) EXPECT_EQ(span.links_size(), 0);
}

TEST_F(TraceObserverTest, TheRequestsOfASharedStepAreLinked) {
  using Kind = SpanRecord::Kind;
  constexpr uint64_t kUnsampled = 6;
  for (const uint64_t id : {uint64_t{7}, uint64_t{8}, kUnsampled}) {
    RequestSpec request = Request();
    request.request_id = absl::StrCat("request ", id);
    if (id == kUnsampled) {
      request.traceparent = std::string(kTraceparent, 53) + "00";
    }
    observer_->OnStarted(id, request, {"target:1", "draft:1"}, 0);
  }
  const auto step = [&](WorkerRole role, int64_t start_ms,
                        std::vector<uint64_t> ids) {
    for (const uint64_t id : ids) {
      Span(role, role == WorkerRole::kDraft ? Kind::kDraft : Kind::kVerify,
           start_ms, 1, 1, 0, id);
    }
  };
  // One session may have a prefill and a verify in a step.
  Span(WorkerRole::kTarget, Kind::kPrefill, 1000, 1);
  step(WorkerRole::kTarget, 1000, {7, kUnsampled, 8});
  step(WorkerRole::kDraft, 1000, {8});  // another worker at the same time
  step(WorkerRole::kTarget, 1001, {7});
  for (const uint64_t id : {7, 8}) {
    Completion completion;
    observer_->OnFinished(id, Request(), absl::OkStatus(), &completion);
  }
  auto spans = Received();
  std::map<std::string, std::string> names;  // of the requests' spans
  for (const Proto& root : spans["nacre.v1.Inference/Generate"]) {
    names[root.trace_id() + root.span_id()] =
        AttributeText(root, "nacre.request.id");
  }
  ASSERT_EQ(names.size(), 2u);
  const auto linked = [&](const Proto& span) {
    std::vector<std::string> result;
    for (const auto& link : span.links()) {
      EXPECT_EQ(link.attributes(0).value().string_value(), "batch");
      result.push_back(names[link.trace_id() + link.span_id()]);
    }
    return result;
  };
  ASSERT_EQ(spans["nacre.prefill"].size(), 1u);
  EXPECT_THAT(linked(spans["nacre.prefill"][0]), ElementsAre("request 8"));
  ASSERT_EQ(spans["nacre.verify"].size(), 3u);
  EXPECT_THAT(linked(spans["nacre.verify"][0]), ElementsAre("request 8"));
  EXPECT_THAT(linked(spans["nacre.verify"][1]), ElementsAre());
  EXPECT_THAT(linked(spans["nacre.verify"][2]), ElementsAre("request 7"));
  ASSERT_EQ(spans["nacre.draft"].size(), 1u);
  EXPECT_THAT(linked(spans["nacre.draft"][0]), ElementsAre());
}

TEST_F(TraceObserverTest, OfALargeStepSomeLinksAreLeftOut) {
  constexpr int kRequests = 40;
  for (int i = 0; i < kRequests; ++i) {
    observer_->OnStarted(7 + i, Request(), {"target:1", ""}, 0);
  }
  for (int i = 0; i < kRequests; ++i) {
    Span(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 1000, 1, 1, 4, 7 + i);
  }
  Finish();
  const auto spans = Received()["nacre.verify"];
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].links_size(), 32);
  EXPECT_EQ(spans[0].dropped_links_count(), 7u);
}

TEST_F(TraceObserverTest, EveryPlaceHasAReason) {
  const std::vector<std::pair<Placement, const char*>> places = {
      {{"target:1", "draft:1"}, "start"},
      {{"target:1", ""}, "draft_lost"},
      {{"target:1", "draft:2"}, "draft_found"},
      {{"", ""}, "target_lost"},
      {{"target:2", "draft:2"}, "target_found"}};
  observer_->OnStarted(7, Request(), places[0].first, 0);
  for (size_t i = 1; i < places.size(); ++i) {
    observer_->OnMoved(7, places[i].first);
  }
  Finish();
  const auto spans = Received()["nacre.place"];
  ASSERT_EQ(spans.size(), places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(AttributeText(spans[i], "nacre.place.reason"), places[i].second);
    EXPECT_EQ(AttributeText(spans[i], "nacre.target"),
              places[i].first.target_address);
  }
}

TEST_F(TraceObserverTest, OnlyWhoAskedForADraftIsDegraded) {
  for (const auto& [method, expects_draft] :
       {std::pair{speculation::Method::kPearl, true},
        std::pair{speculation::Method::kAr, true},
        std::pair{speculation::Method::kPearl, false}}) {
    RequestSpec request = Request();
    request.method = method;
    request.expects_draft = expects_draft;
    observer_->OnStarted(7, request, {"target:1", ""}, 0);
    Verdict verdict;
    verdict.token_ids = {1};
    verdict.degraded = true;
    observer_->OnRound(7, verdict, 1);
    Finish();
  }
  const auto rounds = Received()["nacre.round"];
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(AttributeText(rounds[0], "nacre.degraded"), "true");
  EXPECT_EQ(AttributeText(rounds[1], "nacre.degraded"), "");
  EXPECT_EQ(AttributeText(rounds[2], "nacre.degraded"), "");
}

// They are rows of the step, and not the draft's.
TEST_F(TraceObserverTest, WhatTheTargetProposedItselfIsCountedApart) {
  observer_->OnStarted(7, Request(), {"target:1", "draft:1"}, 0);
  Round(2, 1, 2, 2, 0);
  Verdict verdict;
  verdict.base_length = 3;
  verdict.token_ids = {1, 1};
  verdict.window = 5;
  verdict.suffix_proposed = 3;
  verdict.matched = verdict.suffix_accepted = 1;
  observer_->OnRound(7, verdict, 2);
  Finish();
  const auto rounds = Received()["nacre.round"];
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(AttributeText(rounds[0], "nacre.draft_len"), "2");
  EXPECT_EQ(AttributeText(rounds[0], "nacre.suffix_len"), "");
  EXPECT_EQ(AttributeText(rounds[1], "nacre.draft_len"), "2");
  EXPECT_EQ(AttributeText(rounds[1], "nacre.suffix_len"), "3");
}

// Its last row was held: what it accepted was shown before.
TEST_F(TraceObserverTest, AStepInTwoPartsIsOneRound) {
  observer_->OnStarted(7, Request(), {"target:1", "draft:1"}, 0);
  observer_->OnAccepted(7, 2);
  Verdict verdict;
  verdict.base_length = 2;
  verdict.token_ids = {1, 1, 1};
  verdict.window = verdict.matched = 2;
  observer_->OnRound(7, verdict, /*num_shown=*/1);
  Finish();
  auto spans = Received();
  ASSERT_EQ(spans["nacre.round"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.round"][0], "nacre.bonus"), "1");
  ASSERT_EQ(spans["nacre.v1.Inference/Generate"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.v1.Inference/Generate"][0],
                          "gen_ai.usage.output_tokens"),
            "3");
}

TEST_F(TraceObserverTest, AFailureSaysSo) {
  observer_->OnStarted(7, Request(), {"target:1", ""}, 0);
  Finish(absl::UnavailableError("target:1 was lost"));
  auto spans = Received();
  ASSERT_EQ(spans["nacre.v1.Inference/Generate"].size(), 1u);
  const Proto& root = spans["nacre.v1.Inference/Generate"][0];
  EXPECT_EQ(root.parent_span_id(), "");
  EXPECT_EQ(AttributeText(root, "rpc.status_code"), "UNAVAILABLE");
  EXPECT_EQ(root.status().message(), "target:1 was lost");
  for (const char* absent : {"gen_ai.latency.time_to_first_token",
                             "gen_ai.latency.time_in_model_inference",
                             "gen_ai.usage.cache_read.input_tokens"}) {
    EXPECT_EQ(AttributeText(root, absent), "") << absent;
  }
}

TEST_F(TraceObserverTest, TheClientDecidesElseTheRatio) {
  Observe(0.0);
  observer_->OnStarted(7, Request(), {}, 0);
  Finish();
  RequestSpec sampled = Request();
  sampled.traceparent = kTraceparent;
  observer_->OnStarted(7, sampled, {}, 0);
  Finish();
  Observe(1.0);
  RequestSpec unsampled = Request();
  unsampled.traceparent = std::string(kTraceparent, 53) + "00";
  observer_->OnStarted(7, unsampled, {}, 0);
  Finish();
  RequestSpec malformed = Request();
  malformed.traceparent = "00-nonsense";
  observer_->OnStarted(7, malformed, {}, 0);
  Finish();
  Observe(1.0, /*client_decides=*/false);
  observer_->OnStarted(7, unsampled, {}, 0);
  Finish();
  const auto roots = Received()["nacre.v1.Inference/Generate"];
  ASSERT_EQ(roots.size(), 3u);
  EXPECT_EQ(static_cast<uint8_t>(roots[0].trace_id()[0]), 0x0a);
  EXPECT_EQ(roots[1].parent_span_id(), "");
  EXPECT_EQ(roots[2].trace_id(), roots[0].trace_id());
}

TEST_F(TraceObserverTest, AnEndlessRequestIsCutAndCounted) {
  observer_->OnStarted(7, Request(), {}, 0);
  for (int i = 0; i < 9000; ++i) Round(i, 1, 0, 0, 0);
  Finish();
  auto spans = Received();
  EXPECT_EQ(spans["nacre.round"].size(), 8191u);
  ASSERT_EQ(spans["nacre.v1.Inference/Generate"].size(), 1u);
  EXPECT_EQ(AttributeText(spans["nacre.v1.Inference/Generate"][0],
                          "nacre.dropped_events"),
            "809");
}

}  // namespace
}  // namespace nacre::coordinator
