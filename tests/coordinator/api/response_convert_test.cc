#include "coordinator/api/response_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;

TEST(ResponseConvertTest, EveryMethodHasItsName) {
  using speculation::Method;
  for (const auto& [proto, method] :
       {std::pair{v1::METHOD_AR, Method::kAr},
        std::pair{v1::METHOD_SD, Method::kSd},
        std::pair{v1::METHOD_PEARL, Method::kPearl},
        std::pair{v1::METHOD_ASYNC, Method::kAsync}}) {
    EXPECT_EQ(ToProto(method), proto);
  }
}

TEST(ResponseConvertTest, ACompletionArrivesWithAllItsNumbers) {
  RequestSpec spec;
  spec.prompt_ids = {4, 5, 6, 7};
  spec.sampling.seed = 7;
  Completion completion;
  completion.finish = Finish::kStop;
  completion.stop_match = "end";
  completion.text = "hello";
  completion.token_ids = {1, 2, 3};
  completion.numerics_id = "cpu-v1";
  completion.total_ns = 3000000001;
  completion.time_to_first_token_ns = 5;
  completion.draft_busy_ns = 6;
  completion.draft_wait_ns = 7;
  completion.target_busy_ns = 8;
  completion.target_wait_ns = -9;  // never shown below zero
  completion.stats.rounds = 2;
  completion.stats.drafted = 11;
  completion.stats.verified = 10;
  completion.stats.accepted = 9;
  completion.stats.committed = 3;
  completion.stats.degraded_rounds = 1;
  completion.stats.ranks = {7, 2, 0, 0, 0, 0, 0, 0, 1};
  completion.stats.prepared = 2;
  completion.window = 4;
  completion.alpha = 0.5;
  completion.cost_ratio = 2.5;
  completion.step_gaps_ns = {17, 19};
  completion.acceptance_histogram = {1, 0, 1};
  completion.rounds = {{4, 2}, {3, 0}};
  completion.logprobs = {{1, -0.5f, {{9, -0.25f}, {1, -0.5f}}}};
  TraceLane lane;
  lane.role = WorkerRole::kDraft;
  lane.address = "host:1";
  lane.clock_offset_ns = -5;
  SpanRecord span;
  span.session_id = 12;
  span.kind = SpanRecord::Kind::kWaitVerdict;
  span.start_ns = 100;
  span.duration_ns = 50;
  span.rows = 1;
  span.batch_rows = 2;
  span.matched = 3;
  span.accepted = 4;
  span.length = 5;
  span.batch_sessions = 6;
  lane.spans.push_back(span);
  span.kind = SpanRecord::Kind::kHidden;
  span.bytes = 512;
  lane.spans.push_back(span);
  completion.trace.push_back(lane);

  completion.cached_tokens = 2;
  completion.hidden_bytes = 4096;
  completion.hidden_ns = 77;
  completion.policy = "svip:h=0.4";

  const v1::Complete proto = ToProto(spec, completion);
  EXPECT_EQ(proto.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(proto.stop_match(), "end");
  EXPECT_EQ(proto.text(), "hello");
  EXPECT_THAT(proto.token_ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(proto.prompt_token_ids_size(), 4);
  EXPECT_EQ(proto.seed(), 7u);
  EXPECT_EQ(proto.numerics_id(), "cpu-v1");
  EXPECT_EQ(proto.usage().prompt_tokens(), 4u);
  EXPECT_EQ(proto.usage().completion_tokens(), 3u);
  EXPECT_EQ(proto.usage().cached_tokens(), 2u);
  EXPECT_EQ(proto.timing().total().seconds(), 3);
  EXPECT_EQ(proto.timing().total().nanos(), 1);
  EXPECT_EQ(proto.timing().time_to_first_token().nanos(), 5);
  EXPECT_EQ(proto.timing().draft_busy().nanos(), 6);
  EXPECT_EQ(proto.timing().draft_wait().nanos(), 7);
  EXPECT_EQ(proto.timing().target_busy().nanos(), 8);
  EXPECT_EQ(proto.timing().target_wait().nanos(), 0);
  const v1::SpeculationReport& report = proto.speculation();
  EXPECT_EQ(report.method(), v1::METHOD_ASYNC);
  EXPECT_EQ(report.window(), 4u);
  EXPECT_EQ(report.policy(), "svip:h=0.4");
  EXPECT_EQ(report.rounds(), 2u);
  EXPECT_EQ(report.drafted(), 11u);
  EXPECT_EQ(report.verified(), 10u);
  EXPECT_EQ(report.accepted(), 9u);
  EXPECT_EQ(report.committed(), 3u);
  EXPECT_EQ(report.degraded_rounds(), 1u);
  EXPECT_EQ(report.alpha(), 0.5);
  EXPECT_EQ(report.cost_ratio(), 2.5);
  EXPECT_EQ(report.hidden_bytes(), 4096u);
  EXPECT_EQ(report.hidden_ns(), 77u);
  EXPECT_THAT(report.ranks(), ElementsAre(7, 2, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_EQ(report.prepared(), 2u);
  EXPECT_THAT(report.step_gap_ns(), ElementsAre(17, 19));
  EXPECT_THAT(report.acceptance_histogram(), ElementsAre(1, 0, 1));
  EXPECT_THAT(report.per_round_drafted(), ElementsAre(4, 3));
  EXPECT_THAT(report.per_round_accepted(), ElementsAre(2, 0));
  ASSERT_EQ(proto.logprobs_size(), 1);
  EXPECT_EQ(proto.logprobs(0).token_id(), 1u);
  EXPECT_EQ(proto.logprobs(0).logprob(), -0.5f);
  EXPECT_THAT(proto.logprobs(0).top_ids(), ElementsAre(9, 1));
  EXPECT_THAT(proto.logprobs(0).top_logprobs(), ElementsAre(-0.25f, -0.5f));
  ASSERT_EQ(proto.trace_size(), 1);
  EXPECT_EQ(proto.trace(0).role(), v1::WORKER_ROLE_DRAFT);
  EXPECT_EQ(proto.trace(0).address(), "host:1");
  EXPECT_EQ(proto.trace(0).clock_offset_ns(), -5);
  const v1::Span& out = proto.trace(0).spans(0);
  EXPECT_EQ(out.session_id(), 12u);
  EXPECT_EQ(out.kind(), v1::Span::KIND_WAIT_VERDICT);
  EXPECT_EQ(out.start_ns(), 100u);
  EXPECT_EQ(out.duration_ns(), 50u);
  EXPECT_EQ(out.rows(), 1u);
  EXPECT_EQ(out.batch_rows(), 2u);
  EXPECT_EQ(out.matched(), 3u);
  EXPECT_EQ(out.accepted(), 4u);
  EXPECT_EQ(out.length(), 5u);
  EXPECT_EQ(out.batch_sessions(), 6u);
  EXPECT_EQ(out.bytes(), 0u);
  EXPECT_EQ(proto.trace(0).spans(1).kind(), v1::Span::KIND_HIDDEN);
  EXPECT_EQ(proto.trace(0).spans(1).bytes(), 512u);

  completion.finish = Finish::kEos;
  EXPECT_EQ(ToProto(spec, completion).finish_reason(), v1::FINISH_REASON_EOS);
  completion.finish = Finish::kLength;
  EXPECT_EQ(ToProto(spec, completion).finish_reason(),
            v1::FINISH_REASON_LENGTH);
}

TEST(ResponseConvertTest, AChunksTraceIsConverted) {
  Chunk chunk;
  EXPECT_FALSE(ToProto(chunk).has_trace());
  chunk.trace.emplace();
  chunk.trace->origins = {TokenOrigin::kDraft, TokenOrigin::kBranch,
                          TokenOrigin::kSuffix, TokenOrigin::kTarget};
  chunk.trace->text_bytes = {3, 0, 2, 1};
  chunk.trace->window = 5;
  chunk.trace->verified = 4;
  chunk.trace->accepted = 2;
  chunk.trace->degraded = true;
  chunk.trace->lanes = {{WorkerRole::kDraft, "host:1", -5, {SpanRecord()}}};
  const v1::ChunkTrace proto = ToProto(chunk).trace();
  EXPECT_THAT(proto.origins(),
              ElementsAre(v1::TOKEN_ORIGIN_DRAFT, v1::TOKEN_ORIGIN_BRANCH,
                          v1::TOKEN_ORIGIN_SUFFIX, v1::TOKEN_ORIGIN_TARGET));
  EXPECT_THAT(proto.text_bytes(), ElementsAre(3, 0, 2, 1));
  EXPECT_EQ(proto.window(), 5u);
  EXPECT_EQ(proto.verified(), 4u);
  EXPECT_EQ(proto.accepted(), 2u);
  EXPECT_TRUE(proto.degraded());
  ASSERT_EQ(proto.lanes_size(), 1);
  EXPECT_EQ(proto.lanes(0).role(), v1::WORKER_ROLE_DRAFT);
  EXPECT_EQ(proto.lanes(0).address(), "host:1");
  EXPECT_EQ(proto.lanes(0).clock_offset_ns(), -5);
  EXPECT_EQ(proto.lanes(0).spans_size(), 1);
}

// A default client takes 4 MiB.
TEST(ResponseConvertTest, WhatWasStreamedMayBeLeftOut) {
  RequestSpec spec;
  spec.prompt_ids.assign(100000, 4);
  Completion completion;
  completion.text = std::string(100000, 'x');
  completion.token_ids.assign(100000, 1);
  TokenLogprobs logprobs{1, -0.5f, {}};
  logprobs.top.assign(20, {9, -0.25f});
  completion.logprobs.assign(100000, logprobs);
  EXPECT_GT(ToProto(spec, completion).ByteSizeLong(), size_t{4} << 20);
  spec.omit_streamed = true;
  const v1::Complete proto = ToProto(spec, completion);
  EXPECT_LT(proto.ByteSizeLong(), 200u);
  EXPECT_EQ(proto.usage().prompt_tokens(), 100000u);
  EXPECT_EQ(proto.usage().completion_tokens(), 100000u);
  EXPECT_EQ(proto.token_ids_size(), 0);
  EXPECT_EQ(proto.text(), "");
}

}  // namespace
}  // namespace nacre::coordinator
