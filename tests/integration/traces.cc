#include "tests/integration/traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace nacre::integration {
namespace {

// Of an int or double attribute; -1 without it.
double Number(const Span& span, const std::string& key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    return attribute.value().has_int_value()
               ? static_cast<double>(attribute.value().int_value())
               : attribute.value().double_value();
  }
  return -1;
}

double DurationNs(const Span& span) {
  return static_cast<double>(span.end_time_unix_nano() -
                             span.start_time_unix_nano());
}

double Nanoseconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds() * 1'000'000'000 +
                             duration.nanos());
}

template <typename Matches>
Spans Filter(const Spans& spans, Matches matches) {
  Spans kept;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(kept), matches);
  return kept;
}

class TraceChecker {
 public:
  TraceChecker(Spans spans, const TracedRequest& traced)
      : spans_(std::move(spans)), traced_(traced) {}

  void Check() {
    const Spans roots = Named(spans_, kRootName);
    ASSERT_EQ(roots.size(), 1u);
    root_id_ = roots[0].span_id();
    rounds_ = Named(spans_, "nacre.round");
    for (const auto& round : rounds_) round_ids_.insert(round.span_id());
    CheckTree();
    CheckRoot(roots[0]);
    CheckStart();
    CheckRounds();
    CheckWork();
    CheckWaits();
  }

 private:
  const v1::Complete& complete() const { return traced_.answer.complete; }
  bool has_draft() const { return !traced_.draft.empty(); }

  static void ExpectText(const Span& span, const std::string& key,
                         const std::string& value) {
    EXPECT_EQ(telemetry::AttributeText(span, key), value)
        << span.name() << " " << key;
  }

  // One trace: ids are unique and every parent is in it.
  void CheckTree() const {
    const std::set<std::string> of_request = {"nacre.queue", "nacre.place",
                                              "nacre.prefill", "nacre.round"};
    std::set<std::string> ids;
    for (const auto& span : spans_) {
      SCOPED_TRACE(span.name());
      EXPECT_EQ(span.span_id().size(), 8u);
      EXPECT_TRUE(ids.insert(span.span_id()).second);
      EXPECT_EQ(span.trace_state(), traced_.trace_state);
      EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
      if (span.span_id() == root_id_) continue;
      EXPECT_EQ(span.kind(), Span::SPAN_KIND_INTERNAL);
      const bool of_round = round_ids_.contains(span.parent_span_id());
      EXPECT_TRUE(of_round || span.parent_span_id() == root_id_);
      if (of_request.contains(span.name())) {
        EXPECT_FALSE(of_round);
      }
      if (span.name() == "nacre.verify") {
        EXPECT_TRUE(of_round);
      }
    }
  }

  void CheckRoot(const Span& root) const {
    EXPECT_EQ(root.kind(), Span::SPAN_KIND_SERVER);
    EXPECT_EQ(root.parent_span_id(), absl::HexStringToBytes(traced_.parent_id));
    EXPECT_FALSE(root.has_status());
    const v1::GenerateRequest& request = traced_.request;
    const v1::Usage& usage = complete().usage();
    const std::map<std::string, std::string> expected = {
        {"rpc.system.name", "grpc"},
        {"rpc.method", kRootName},
        {"rpc.status_code", "OK"},
        {"gen_ai.operation.name", "text_completion"},
        {"gen_ai.request.model", "target"},
        {"gen_ai.request.max_tokens",
         absl::StrCat(request.stop().max_tokens())},
        {"gen_ai.request.stream", request.output().stream() ? "true" : "false"},
        {"gen_ai.request.seed", absl::StrCat(complete().seed())},
        {"gen_ai.usage.input_tokens", absl::StrCat(usage.prompt_tokens())},
        {"gen_ai.usage.output_tokens", absl::StrCat(usage.completion_tokens())},
        {"gen_ai.usage.cache_read.input_tokens",
         absl::StrCat(usage.cached_tokens())},
        {"gen_ai.response.finish_reasons",
         complete().finish_reason() == v1::FINISH_REASON_LENGTH ? "length"
                                                                : "stop"},
        {"server.address", traced_.server.substr(0, traced_.server.rfind(':'))},
        {"server.port", traced_.server.substr(traced_.server.rfind(':') + 1)},
        {"nacre.request.id", traced_.answer.request_id()},
        {"nacre.method", traced_.method},
        {"nacre.rounds", absl::StrCat(complete().speculation().rounds())}};
    for (const auto& [key, value] : expected) ExpectText(root, key, value);

    const v1::Timing& timing = complete().timing();
    const double total = Seconds(timing.total());
    const double first = Seconds(timing.time_to_first_token());
    const double queue = Seconds(timing.queue());
    const std::map<std::string, double> latencies = {
        {"e2e", total},
        {"time_to_first_token", first},
        {"time_in_queue", queue},
        {"time_in_model_prefill", first - queue},
        {"time_in_model_decode", total - first},
        {"time_in_model_inference", total - queue}};
    for (const auto& [key, value] : latencies) {
      EXPECT_NEAR(Number(root, "gen_ai.latency." + key), value, 1e-9) << key;
    }
  }

  void CheckStart() const {
    const Spans places = Named(spans_, "nacre.place");
    ASSERT_EQ(places.size(), 1u);
    ExpectText(places[0], "nacre.target", traced_.target);
    ExpectText(places[0], "nacre.draft", traced_.draft);
    ExpectText(places[0], "nacre.place.reason", "start");
    EXPECT_NE(telemetry::AttributeText(places[0], "nacre.target.incarnation"),
              "");
    EXPECT_EQ(
        telemetry::AttributeText(places[0], "nacre.draft.incarnation").empty(),
        !has_draft());
    const Spans queues = Named(spans_, "nacre.queue");
    ASSERT_EQ(queues.size(), traced_.queue_position.has_value() ? 1u : 0u);
    if (queues.empty()) return;
    EXPECT_EQ(Number(queues[0], "nacre.queue.position"),
              *traced_.queue_position);
    EXPECT_EQ(DurationNs(queues[0]), Nanoseconds(complete().timing().queue()));
  }

  // In order, and round for round what the answer's report says. The request
  // asked for it.
  void CheckRounds() const {
    const v1::SpeculationReport& report = complete().speculation();
    ASSERT_EQ(rounds_.size(), report.rounds());
    ASSERT_EQ(report.per_round_drafted_size(), report.rounds());
    double base = complete().usage().prompt_tokens();
    double wasted = 0, degraded = 0;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("round ", i));
      const auto& round = rounds_[i];
      const int index = static_cast<int>(i);
      EXPECT_EQ(Number(round, "nacre.round"), index);
      EXPECT_EQ(Number(round, "nacre.draft_len"),
                report.per_round_drafted(index));
      EXPECT_EQ(Number(round, "nacre.accepted"),
                report.per_round_accepted(index));
      const double bonus = Number(round, "nacre.bonus");
      EXPECT_TRUE(bonus == 0 || bonus == 1) << bonus;
      if (i == 0) {
        EXPECT_EQ(Number(round, "nacre.base_len"), base);
      } else {
        EXPECT_GT(Number(round, "nacre.base_len"), base);
      }
      base = Number(round, "nacre.base_len");
      wasted += Number(round, "nacre.wasted");
      const bool is_degraded =
          telemetry::AttributeText(round, "nacre.degraded") == "true";
      if (is_degraded) ++degraded;
      CheckMode(round, is_degraded);
    }
    EXPECT_LT(base, complete().usage().prompt_tokens() +
                        complete().usage().completion_tokens());
    EXPECT_EQ(wasted, report.verified() - report.accepted());
    EXPECT_EQ(degraded, report.degraded_rounds());
  }

  void CheckMode(const Span& round, bool is_degraded) const {
    std::string mode = "off";
    if (has_draft() && !is_degraded) {
      mode = traced_.method == "sd"                  ? "sync"
             : Number(round, "nacre.draft_len") == 0 ? "pre_verify"
                                                     : "post_verify";
    }
    ExpectText(round, "nacre.mode", mode);
  }

  // What the workers did, each in its own name.
  void CheckWork() const {
    const Spans verifies = Named(spans_, "nacre.verify");
    ASSERT_EQ(verifies.size(), rounds_.size());
    for (size_t i = 0; i < verifies.size(); ++i) {
      EXPECT_EQ(verifies[i].parent_span_id(), rounds_[i].span_id()) << i;
      const double suffixes =
          std::max(0.0, Number(rounds_[i], "nacre.suffix_len"));
      EXPECT_EQ(Number(verifies[i], "nacre.rows"),
                Number(rounds_[i], "nacre.draft_len") + suffixes + 1);
      ExpectText(verifies[i], "nacre.role", "target");
      CheckDrafted(verifies[i],
                   static_cast<int>(Number(rounds_[i], "nacre.draft_len")));
    }
    double prefilled = 0;
    for (const auto& span : Named(spans_, "nacre.prefill")) {
      if (telemetry::AttributeText(span, "nacre.role") == "target") {
        prefilled += Number(span, "nacre.rows");
      }
    }
    // The last token of the prompt is a row of the first step.
    EXPECT_EQ(prefilled + complete().usage().cached_tokens() + 1,
              complete().usage().prompt_tokens());
    // An answer may be over before a draft that is held up has said anything.
    const bool has_drafted = !Named(spans_, "nacre.draft").empty();
    EXPECT_LE(complete().speculation().drafted() > 0, has_drafted);
    EXPECT_LE(has_drafted, has_draft());
    for (const char* name : {"nacre.prefill", "nacre.draft", "nacre.verify",
                             "nacre.wait", "nacre.rollback"}) {
      for (const auto& span : Named(spans_, name)) {
        SCOPED_TRACE(name);
        const bool on_draft =
            telemetry::AttributeText(span, "nacre.role") == "draft";
        ExpectText(span, "nacre.role", on_draft ? "draft" : "target");
        ExpectText(span, "nacre.worker",
                   on_draft ? traced_.draft : traced_.target);
        if (span.name() == "nacre.draft") {
          EXPECT_TRUE(on_draft);
        }
        if (Number(span, "nacre.rows") > 0) {
          EXPECT_GE(Number(span, "nacre.batch.tokens"),
                    Number(span, "nacre.rows"));
          EXPECT_GE(Number(span, "nacre.batch.size"), 1);
        }
      }
    }
    for (const auto& span : Named(spans_, "nacre.rollback")) {
      EXPECT_EQ(DurationNs(span), 0);
      EXPECT_GT(Number(span, "nacre.rollback.from"),
                Number(span, "nacre.rollback.to"));
    }
  }

  // A step names the drafting of each token that it verified. Of a token tree
  // it names the steps that made its longest path longer: one step makes many
  // nodes, and a path may have grown before it was the longest.
  void CheckDrafted(const Span& verify, int num_tokens) const {
    std::set<std::string> linked;
    for (const auto& link : verify.links()) {
      EXPECT_EQ(link.attributes(0).value().string_value(), "drafted");
      EXPECT_EQ(link.trace_id(), verify.trace_id());
      EXPECT_TRUE(linked.insert(link.span_id()).second);
    }
    const int num_linked = static_cast<int>(linked.size());
    if (traced_.method == "async") {
      EXPECT_LE(num_linked, num_tokens);
    } else {
      EXPECT_EQ(num_linked, num_tokens);
    }
    for (const auto& span : Named(spans_, "nacre.draft"))
      linked.erase(span.span_id());
    EXPECT_TRUE(linked.empty());
  }

  // The waits of all rounds are those of the answer, to the nanosecond.
  void CheckWaits() const {
    double target = 0, draft = 0;
    for (const auto& round : rounds_) {
      target += Number(round, "nacre.wait.target_ns");
      draft += Number(round, "nacre.wait.draft_ns");
    }
    EXPECT_EQ(target, Nanoseconds(complete().timing().target_wait()));
    EXPECT_EQ(draft, Nanoseconds(complete().timing().draft_wait()));
    for (const auto& span : Named(spans_, "nacre.wait")) {
      const std::string reason =
          telemetry::AttributeText(span, "nacre.wait.reason");
      if (reason == "draft_tokens") {
        ExpectText(span, "nacre.wait.peer", traced_.draft);
        target -= DurationNs(span);
      } else if (reason == "verdict") {
        ExpectText(span, "nacre.wait.peer", traced_.target);
        if (round_ids_.contains(span.parent_span_id()))
          draft -= DurationNs(span);
      } else {
        EXPECT_EQ(reason, "acknowledge");
      }
    }
    EXPECT_EQ(target, 0);
    EXPECT_EQ(draft, 0);
  }

  const Spans spans_;
  const TracedRequest& traced_;
  std::string root_id_;
  Spans rounds_;
  std::set<std::string> round_ids_;
};

}  // namespace

Spans Named(const Spans& spans, const std::string& name) {
  return Filter(spans,
                [&name](const Span& span) { return span.name() == name; });
}

Spans OfTrace(const Spans& spans, const std::string& trace_id) {
  return Filter(spans, [id = absl::HexStringToBytes(trace_id)](
                           const Span& span) { return span.trace_id() == id; });
}

void CheckTrace(const Spans& spans, const TracedRequest& traced) {
  TraceChecker(spans, traced).Check();
}

}  // namespace nacre::integration
