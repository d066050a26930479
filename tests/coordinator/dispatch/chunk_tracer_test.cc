#include "coordinator/dispatch/chunk_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/session_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Verdict;
using ::testing::ElementsAre;

class ChunkTracerTest : public SessionTest {
 protected:
  ChunkTracerTest() { request_.trace_chunks = true; }

  ChunkTrace LastTrace() {
    const Chunk chunk = sink_->chunks().back();
    EXPECT_TRUE(chunk.trace.has_value());
    return chunk.trace.value_or(ChunkTrace());
  }
};

TEST_F(ChunkTracerTest, EachTokenSaysWhereItCameFrom) {
  Verdict verdict = Next(Bytes("abcdef"));
  verdict.window = 7;
  verdict.matched = 5;
  verdict.suffix_proposed = 3;
  verdict.suffix_accepted = 1;
  verdict.branch_accepted = 2;
  verdict.verified = 5;
  verdict.accepted = 4;
  verdict.degraded = true;
  ASSERT_TRUE(OnVerdict(verdict).has_value());
  const ChunkTrace trace = LastTrace();
  EXPECT_THAT(trace.origins,
              ElementsAre(TokenOrigin::kDraft, TokenOrigin::kDraft,
                          TokenOrigin::kBranch, TokenOrigin::kBranch,
                          TokenOrigin::kSuffix, TokenOrigin::kTarget));
  EXPECT_EQ(trace.window, 7);
  EXPECT_EQ(trace.verified, 5);
  EXPECT_EQ(trace.accepted, 4);
  EXPECT_TRUE(trace.degraded);
}

TEST_F(ChunkTracerTest, TextThatWasHeldBackComesWithTheTokenThatLetsItGo) {
  request_.stop = {"END"};
  Say(Bytes("one E"));
  EXPECT_THAT(LastTrace().text_bytes, ElementsAre(1, 1, 1, 1, 0));
  Say(Bytes("N"));
  EXPECT_THAT(LastTrace().text_bytes, ElementsAre(0));
  Say(Bytes("xE"), FinishReason::kLength);
  EXPECT_EQ(sink_->chunks().back().text, "ENxE");
  EXPECT_THAT(LastTrace().text_bytes, ElementsAre(3, 1));
}

TEST_F(ChunkTracerTest, TokensBehindAStopStringHaveNoOrigin) {
  request_.stop = {"END"};
  Say(Bytes("aENDxyz"));
  const ChunkTrace trace = LastTrace();
  EXPECT_EQ(trace.origins.size(), 4u);
  EXPECT_THAT(trace.text_bytes, ElementsAre(1, 0, 0, 0));
}

TEST_F(ChunkTracerTest, AMethodWithoutADraftMissesNone) {
  request_.method = speculation::Method::kAr;
  Verdict verdict = Next(Bytes("a"));
  verdict.degraded = true;
  ASSERT_TRUE(OnVerdict(verdict).has_value());
  EXPECT_FALSE(LastTrace().degraded);
}

TEST_F(ChunkTracerTest, LanesAreThoseSinceTheChunkBefore) {
  session();
  answer().OnMoved({"target:1", "draft:1"});
  OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 10, 5, 1, 1));
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kVerify, 11, 7, 2, 2));
  OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 15, 5, 1, 1));
  Say(Bytes("a"));
  ChunkTrace trace = LastTrace();
  ASSERT_EQ(trace.lanes.size(), 2u);
  EXPECT_EQ(trace.lanes[0].address, "draft:1");
  EXPECT_EQ(trace.lanes[0].spans.size(), 2u);
  EXPECT_EQ(trace.lanes[1].address, "target:1");
  EXPECT_EQ(trace.lanes[1].role, WorkerRole::kTarget);
  EXPECT_EQ(trace.lanes[1].spans[0].duration_ns, 7);

  // Its draft died: the next one has a lane of its own.
  answer().OnMoved({"target:1", "draft:2"});
  OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 30, 5, 1, 1));
  Say(Bytes("b"), FinishReason::kLength);
  trace = LastTrace();
  ASSERT_EQ(trace.lanes.size(), 1u);
  EXPECT_EQ(trace.lanes[0].address, "draft:2");
}

TEST_F(ChunkTracerTest, WhatComesAfterTheLastChunkIsInTheCompletion) {
  Say(Bytes("a"), FinishReason::kLength);
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kVerify, 11, 7, 2, 2));
  const Completion completion = Complete();
  ASSERT_EQ(completion.trace.size(), 1u);
  EXPECT_EQ(completion.trace[0].spans.size(), 1u);
}

TEST_F(ChunkTracerTest, ATraceOfTheWholeAnswerStaysWhole) {
  request_.trace = true;
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kVerify, 11, 7, 2, 2));
  Say(Bytes("a"), FinishReason::kLength);
  EXPECT_EQ(LastTrace().lanes.size(), 1u);
  EXPECT_EQ(Complete().trace[0].spans.size(), 1u);
}

TEST_F(ChunkTracerTest, SpansBetweenTwoChunksAreBounded) {
  for (size_t i = 0; i < ChunkTracer::kMaxSpans + 5; ++i) {
    OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 10, 5, 1, 1));
  }
  Say(Bytes("a"));
  EXPECT_EQ(LastTrace().lanes[0].spans.size(), ChunkTracer::kMaxSpans);
  OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 10, 5, 1, 1));
  Say(Bytes("b"));
  EXPECT_EQ(LastTrace().lanes[0].spans.size(), 1u);
}

TEST_F(ChunkTracerTest, OtherRequestsHaveNone) {
  request_.trace_chunks = false;
  OnSpan(WorkerRole::kDraft, Span(SpanRecord::Kind::kDraft, 10, 5, 1, 1));
  Say(Bytes("a"), FinishReason::kLength);
  EXPECT_FALSE(sink_->chunks().back().trace.has_value());
  EXPECT_TRUE(Complete().trace.empty());
}

}  // namespace
}  // namespace nacre::coordinator
