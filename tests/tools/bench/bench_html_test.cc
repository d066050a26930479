#include "tools/bench/bench_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Span* AddSpan(v1::Span::Kind kind, int64_t start_ms, int64_t duration_ms,
                  v1::TraceLane* lane) {
  v1::Span* span = lane->add_spans();
  span->set_kind(kind);
  span->set_start_ns(start_ms * 1000000);
  span->set_duration_ns(duration_ms * 1000000);
  return span;
}

// ar and sd:4 on one prompt; sd has a trace.
class BenchHtmlTest : public ::testing::Test {
 protected:
  BenchHtmlTest() {
    plan_.methods = *ParseBenchMethods("ar,sd:4", std::nullopt);
    plan_.prompts = {{"p0", "a", std::nullopt}};
    for (int method = 0; method < 2; ++method) {
      BenchAnswer answer;
      answer.method = method;
      v1::SpeculationReport* report = answer.complete.mutable_speculation();
      for (const uint64_t count : {1, 0, 3}) {
        report->add_acceptance_histogram(count);
      }
      result_.answers.push_back(answer);
    }
    BenchAnswer traced;
    traced.method = 1;
    v1::TraceLane* target = traced.complete.add_trace();
    target->set_role(v1::WORKER_ROLE_TARGET);
    target->set_clock_offset_ns(1000000000);
    for (int i = 0; i < 20; ++i) {
      v1::Span* verify =
          AddSpan(v1::Span::KIND_VERIFY, 1000 + 12 * i, 10, target);
      verify->set_rows(5);
      verify->set_accepted(i % 5);
      AddSpan(v1::Span::KIND_WAIT_DRAFT_TOKENS, 1010 + 12 * i, 2, target);
    }
    v1::TraceLane* draft = traced.complete.add_trace();
    draft->set_role(v1::WORKER_ROLE_DRAFT);
    for (int i = 0; i < 120; ++i) {
      AddSpan(v1::Span::KIND_DRAFT, 2 * i, 2, draft);
      AddSpan(v1::Span::KIND_HIDDEN, 2 * i, 2, draft);
    }
    result_.traced.push_back(traced);
    summaries_.resize(2);
    for (int method = 0; method < 2; ++method) {
      summaries_[method].method = plan_.methods[method];
      summaries_[method].tokens_per_second = 50.0 + 25.0 * method;
      summaries_[method].speedup = 1.0 + 0.5 * method;
    }
    summaries_[1].target_wait_share = 0.2;
    summaries_[1].target_wait_after_miss_share = 0.05;
    summaries_[1].draft_wait_share = 0.4;
    model_.set_name("a <model>");
  }

  std::string Html(const std::string& identical = "yes") const {
    return BenchHtml("nacre bench --prompts 'a & b'", model_,
                     {{plan_, result_, summaries_, identical}});
  }

  BenchPlan plan_;
  BenchResult result_;
  std::vector<MethodSummary> summaries_;
  v1::Model model_;
};

TEST_F(BenchHtmlTest, IsOnePageThatNeedsNothingElse) {
  const std::string html = Html();
  EXPECT_THAT(html, ::testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, ::testing::EndsWith("</html>\n"));
  for (const char* outside : {"<script", "<link", "<img", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(html, HasSubstr("a &lt;model&gt;"));
  EXPECT_THAT(html, HasSubstr("--prompts &#39;a &amp; b&#39;"));
}

TEST_F(BenchHtmlTest, TellsWhatWasMeasured) {
  const std::string html = Html();
  EXPECT_THAT(html, HasSubstr("<td>sd:4</td><td>0</td><td>75.0</td>"
                              "<td>1.50</td>"));
  EXPECT_THAT(html, HasSubstr("<td>20.0 %</td><td>40.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("identical tokens: <strong>yes</strong>"));
  EXPECT_THAT(html, HasSubstr("2: 75.0 %"));  // of the histogram
  EXPECT_THAT(Html("no"), HasSubstr("identical tokens: <strong>no</strong>"));
  EXPECT_THAT(html, Not(HasSubstr("predicted")));
  EXPECT_THAT(html, Not(HasSubstr("oracle")));
}

TEST_F(BenchHtmlTest, WithoutADraftThereIsNoAcceptanceRate) {
  summaries_[1].acceptance_rate = 0.25;
  summaries_[1].paid.drafted = 8;
  EXPECT_THAT(Html(), HasSubstr("<td>1.50</td><td>25.0 %</td>"));
  summaries_[1].paid.drafted = 0;
  EXPECT_THAT(Html(), HasSubstr("<td>1.50</td><td>–</td>"));
}

TEST_F(BenchHtmlTest, TellsWhatStepsPaidForAndWhatWasOfUse) {
  MethodSummary& sd = summaries_[1];
  sd.mean_accepted_length = 3.5;
  sd.paid.rounds = 40;
  sd.paid.rows_verified = 200;
  sd.paid.rows_used = 100;
  sd.suffix_proposed = 10;
  sd.suffix_accepted = 4;
  sd.paid.drafted = 500;
  sd.paid.accepted = 110;
  sd.hit_rate = 0.625;
  const std::string html = Html();
  EXPECT_THAT(html, HasSubstr("<td>sd:4</td><td>3.50</td><td>5.00</td>"
                              "<td>50.0 %</td><td>0.25</td><td>40.0 %</td>"
                              "<td>12.50</td><td>22.0 %</td><td>62.5 %</td>"));
  // `ar` pays for nothing.
  EXPECT_THAT(html, Not(HasSubstr("<td>ar</td><td>0.00</td>")));
}

TEST_F(BenchHtmlTest, WhatNobodyToldIsLeftOpen) {
  summaries_[1].mean_accepted_length = 2.0;
  summaries_[1].paid.rounds = 10;
  summaries_[1].paid.drafted = 40;
  summaries_[1].paid.accepted = 10;
  EXPECT_THAT(Html(), HasSubstr("<td>sd:4</td><td>2.00</td><td>–</td>"
                                "<td>–</td><td>0.00</td><td>–</td>"
                                "<td>4.00</td><td>25.0 %</td><td>–</td>"));
  summaries_.pop_back();
  EXPECT_THAT(Html(), Not(HasSubstr("What a target step paid for")));
}

TEST_F(BenchHtmlTest, ShowsRoundsOfTheMiddleOnOneClock) {
  const std::string html = Html();
  // Rounds 6 to 13 of 20, from 72 ms on; the draft's clock is another.
  EXPECT_THAT(html, HasSubstr("verify 5: 1, 10.00 ms"));
  size_t verifies = 0;
  for (size_t at = html.find("verify 5: "); at != std::string::npos;
       at = html.find("verify 5: ", at + 1)) {
    ++verifies;
  }
  // Each in the rectangle's title and, where there is room, as text.
  EXPECT_EQ(verifies % kTimelineRounds, 0u);
  EXPECT_THAT(html, HasSubstr("sd:4, draft"));
  // Hidden states come while the draft does something else.
  EXPECT_THAT(html, HasSubstr("draft, 2.00 ms"));
  EXPECT_THAT(html, Not(HasSubstr("held, 2.00 ms")));
}

TEST_F(BenchHtmlTest, TheTracesOfRecordedStepsServeToo) {
  result_.timelines.resize(2);
  result_.timelines[1] = result_.traced[0].complete.trace();
  result_.traced.clear();
  EXPECT_THAT(Html(), HasSubstr("verify 5: 1, 10.00 ms"));
  result_.timelines.clear();
  EXPECT_THAT(Html(), Not(HasSubstr("verify 5:")));
}

TEST_F(BenchHtmlTest, PredictionsAndTheOracleAreMarks) {
  summaries_[1].prediction = BenchPrediction{
      100.0, std::nullopt, StepTimes::Flat(1e6), std::nullopt, 0.0, 0.0};
  summaries_[1].of_predicted = 0.75;
  summaries_.push_back(summaries_[1]);
  summaries_[2].method.name = "sd:4+oracle";
  summaries_[2].speedup = 3.0;
  const std::string html = Html();
  EXPECT_THAT(html, HasSubstr("<td>100.0</td><td>75.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("class=\"mark\""));
  EXPECT_THAT(html, HasSubstr("class=\"bound\""));
  EXPECT_THAT(html, HasSubstr("Red mark: the oracle"));
}

}  // namespace
}  // namespace nacre::tools
