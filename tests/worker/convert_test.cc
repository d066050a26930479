#include "worker/convert.h"

#include <gtest/gtest.h>

#include <limits>

namespace nacre::worker {
namespace {

constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();

TEST(ConvertTest, NumbersThatDoNotFitBecomeInvalidOrTheLimit) {
  EXPECT_EQ(ToInt(0x7FFFFFFF), std::numeric_limits<int>::max());
  EXPECT_EQ(ToInt(0x80000000), -1);
  EXPECT_EQ(ToInt(kHuge), -1);
  EXPECT_EQ(ToLimit(7), 7);
  EXPECT_EQ(ToLimit(kHuge), std::numeric_limits<int>::max());
  EXPECT_EQ(ToDuration(5), 5);
  EXPECT_EQ(ToDuration(std::numeric_limits<uint64_t>::max()),
            int64_t{3600} * 1'000'000'000);
}

TEST(ConvertTest, UnsetSamplingFieldsAreNeutral) {
  const SamplingParams params = ToSamplingParams(v1::SamplingParams());
  EXPECT_TRUE(ValidateSamplingParams(params).ok());
  EXPECT_EQ(params.temperature, 0.0f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.repetition_penalty, 1.0f);
}

TEST(ConvertTest, SamplingFieldsAreTakenOver) {
  v1::SamplingParams proto;
  proto.set_temperature(0.5f);
  proto.set_top_k(kHuge);
  proto.set_top_p(0.9f);
  proto.set_min_p(0.1f);
  proto.set_repetition_penalty(1.2f);
  proto.set_frequency_penalty(-1.0f);
  proto.set_presence_penalty(2.0f);
  proto.set_seed(std::numeric_limits<uint64_t>::max());
  const SamplingParams params = ToSamplingParams(proto);
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, std::numeric_limits<int>::max());
  EXPECT_EQ(params.top_p, 0.9f);
  EXPECT_EQ(params.min_p, 0.1f);
  EXPECT_EQ(params.repetition_penalty, 1.2f);
  EXPECT_EQ(params.frequency_penalty, -1.0f);
  EXPECT_EQ(params.presence_penalty, 2.0f);
  EXPECT_EQ(params.seed, std::numeric_limits<uint64_t>::max());
}

TEST(ConvertTest, PlansAreHeldWithinTheirLimits) {
  v1::DraftPlan draft;
  draft.set_lead_after_mismatch(5);
  draft.set_lead_in_flow(kHuge);
  EXPECT_EQ(ToDraftPlan(draft),
            (speculation::DraftPlan{5, speculation::kMaxLead}));
  draft.set_waits_at_stop(true);
  EXPECT_TRUE(ToDraftPlan(draft).waits_at_stop);
  v1::TargetPlan target;
  target.set_gate_after_mismatch(kHuge);
  target.set_gate_in_flow(3);
  target.set_window(kHuge);
  target.set_gate_timeout_ns(9);
  EXPECT_EQ(ToTargetPlan(target),
            (speculation::TargetPlan{speculation::kMaxWindow, 3,
                                     speculation::kMaxWindow, 9}));
}

TEST(ConvertTest, TailsSurviveTheWire) {
  for (const speculation::StopMark stop :
       {speculation::StopMark::kNone, speculation::StopMark::kChunk,
        speculation::StopMark::kLead, speculation::StopMark::kPolicy,
        speculation::StopMark::kEnd}) {
    const speculation::Tail tail = {3, 10, 12, {7, 8, 9}, stop};
    v1::Tail proto;
    FillTail(5, tail, &proto);
    EXPECT_EQ(proto.session_id(), 5u);
    speculation::Tail back;
    ASSERT_TRUE(ToTail(proto, &back));
    EXPECT_EQ(back.epoch, tail.epoch);
    EXPECT_EQ(back.base_length, tail.base_length);
    EXPECT_EQ(back.first_position, tail.first_position);
    EXPECT_EQ(back.token_ids, tail.token_ids);
    EXPECT_EQ(back.stop, tail.stop);
  }
}

TEST(ConvertTest, DistributionsSurviveTheWire) {
  speculation::Tail tail = {3, 10, 12, {7, 8}, speculation::StopMark::kNone};
  tail.distributions = {{{7, 1}, {0.75f, 1e-20f}}, {{8}, {1.0f}}};
  v1::Tail proto;
  FillTail(5, tail, &proto);
  speculation::Tail back;
  ASSERT_TRUE(ToTail(proto, &back));
  ASSERT_EQ(back.distributions.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back.distributions[i].token_ids, tail.distributions[i].token_ids);
    EXPECT_EQ(back.distributions[i].weights, tail.distributions[i].weights);
  }
  // Of a row more ids than any draft sends, and more rows than a tail has.
  v1::Tail wide = proto;
  for (int id = 0; id < speculation::kMaxDistribution; ++id) {
    wide.mutable_distributions(1)->add_token_ids(100);
  }
  EXPECT_FALSE(ToTail(wide, &back));
  v1::Tail heavy = proto;
  for (int id = 0; id < speculation::kMaxDistribution; ++id) {
    heavy.mutable_distributions(1)->add_weights(1.0f);
  }
  EXPECT_FALSE(ToTail(heavy, &back));
  v1::Tail many = proto;
  for (int i = 0; i < speculation::kMaxLead; ++i) many.add_distributions();
  EXPECT_FALSE(ToTail(many, &back));
}

TEST(ConvertTest, VerificationIsKnownOrRefused) {
  using speculation::Verification;
  Verification verification = Verification::kRatio;
  EXPECT_TRUE(ToVerification(v1::VERIFICATION_UNSPECIFIED, &verification));
  EXPECT_EQ(verification, Verification::kExact);
  EXPECT_TRUE(ToVerification(v1::VERIFICATION_RATIO, &verification));
  EXPECT_EQ(verification, Verification::kRatio);
  EXPECT_TRUE(ToVerification(v1::VERIFICATION_EXACT, &verification));
  EXPECT_EQ(verification, Verification::kExact);
  const auto unknown = static_cast<v1::Verification>(9);
  EXPECT_FALSE(ToVerification(unknown, &verification));
  EXPECT_EQ(UnknownVerification(unknown).message(), "unknown verification 9");
}

TEST(ConvertTest, TailsThatCannotBeExpressedAreRefused) {
  speculation::Tail tail;
  v1::Tail unknown;
  unknown.set_stop(static_cast<v1::StopMark>(99));
  EXPECT_FALSE(ToTail(unknown, &tail));
  v1::Tail longest;
  longest.mutable_token_ids()->Resize(kMaxTokenIds, 1);
  EXPECT_TRUE(ToTail(longest, &tail));
  longest.add_token_ids(1);
  EXPECT_FALSE(ToTail(longest, &tail));
}

TEST(ConvertTest, VerdictsCarryEveryField) {
  speculation::Verdict verdict;
  verdict.base_length = 10;
  verdict.token_ids = {1, 2, 3};
  verdict.window = 4;
  verdict.matched = 2;
  verdict.verified = 3;
  verdict.accepted = 2;
  verdict.degraded = true;
  verdict.finish = speculation::FinishReason::kStop;
  v1::Verdict proto;
  FillVerdict(9, verdict, &proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "session_id: 9 base_length: 10 token_ids: 1 token_ids: 2 "
            "token_ids: 3 window: 4 matched: 2 verified: 3 accepted: 2 "
            "degraded: true finish: FINISH_REASON_STOP");
}

TEST(ConvertTest, SessionEventsCarryEveryField) {
  SessionEvents events;
  events.opened = {{1, 32, "half of it"}};
  events.cached = {{1, 16}};
  events.failures = {{2, absl::ResourceExhaustedError("full"), 7}};
  events.closed = {3};
  events.spans = {{4, Span::Kind::kVerify, 5, 6, 7, 8, 9, 10, 11, 12},
                  {.session_id = 4, .kind = Span::Kind::kHidden, .bytes = 13}};
  v1::TargetEvent proto;
  FillSessionEvents(events, &proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "opened { session_id: 1 cached_tokens: 32 policy_note: \"half of "
            "it\" } "
            "errors { session_id: 2 code: 8 message: \"full\" epoch: 7 } "
            "closed { session_id: 3 } "
            "spans { session_id: 4 kind: KIND_VERIFY start_ns: 5 duration_ns: "
            "6 rows: 7 batch_rows: 8 matched: 9 accepted: 10 length: 11 "
            "batch_sessions: 12 } "
            "spans { session_id: 4 kind: KIND_HIDDEN bytes: 13 } "
            "cached { session_id: 1 tokens: 16 }");
}

TEST(ConvertTest, HeartbeatsHoldThePartitionOfTime) {
  TimePartition partition(0);
  int64_t now = 0;
  for (int i = 0; i < kNumWorkerStates; ++i) {
    partition.Enter(static_cast<WorkerState>(i), now);
    now += 1 << i;
  }
  EngineStats stats;
  stats.steps = 1;
  stats.sessions = 2;
  stats.kv_free_tokens = 3;
  stats.rejected_messages = 4;
  stats.reaped_sessions = 5;
  stats.time = partition.At(now);
  v1::Heartbeat proto;
  FillHeartbeat(stats, /*draining=*/true, &proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "steps: 1 sessions: 2 kv_free_tokens: 3 draining: true "
            "time { elapsed_ns: 127 prefill_ns: 1 draft_ns: 2 verify_ns: 4 "
            "wait_draft_tokens_ns: 8 wait_verdict_ns: 16 "
            "wait_acknowledge_ns: 32 no_work_ns: 64 } rejected_messages: 4 "
            "reaped_sessions: 5");
}

}  // namespace
}  // namespace nacre::worker
