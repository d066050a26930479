#include "coordinator/worker_events_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(WorkerEventsConvertTest, NotesAndHiddenSpansArrive) {
  v1::DraftEvent event;
  v1::PolicyNote* note = event.add_policy_notes();
  note->set_session_id(7);
  note->set_note(std::string(300, 'x'));
  v1::Span* span = event.add_spans();
  span->set_session_id(7);
  span->set_kind(v1::Span::KIND_HIDDEN);
  span->set_duration_ns(9);
  span->set_bytes(4096);
  span = event.add_spans();
  span->set_kind(v1::Span::KIND_HIDDEN);
  span->set_bytes(~uint64_t{0});
  const WorkerEvents events = ToWorkerEvents(event);
  EXPECT_THAT(events.policy_notes,
              ElementsAre(Pair(7u, std::string(256, 'x'))));
  ASSERT_EQ(events.spans.size(), 2u);
  EXPECT_EQ(events.spans[0].kind, SpanRecord::Kind::kHidden);
  EXPECT_EQ(events.spans[0].duration_ns, 9);
  EXPECT_EQ(events.spans[0].bytes, 4096);
  EXPECT_EQ(events.spans[1].bytes, int64_t{1} << 40);
}

// Whatever numbers a worker sends, arithmetic on what becomes of them is safe.
TEST(WorkerEventsConvertTest, NumbersThatNoWorkerReachesAreBounded) {
  constexpr uint32_t kMost = ~uint32_t{0};
  v1::TargetEvent event;
  v1::Span* span = event.add_spans();
  span->set_kind(v1::Span::KIND_VERIFY);
  span->set_start_ns(~uint64_t{0});
  span->set_duration_ns(~uint64_t{0});
  span->set_rows(kMost);
  span->set_batch_rows(1);
  span->set_matched(kMost);
  span->set_accepted(kMost);
  span->set_length(kMost);
  span->set_batch_sessions(kMost);
  *event.add_spans() = *span;
  event.mutable_spans(1)->set_batch_rows(0);
  v1::SessionError* error = event.add_errors();
  error->set_code(kMost);
  error->set_message(std::string(5000, 'x'));
  v1::Verdict* verdict = event.add_verdicts();
  verdict->set_base_length(kMost);
  verdict->set_window(kMost);
  verdict->set_matched(kMost);
  verdict->set_verified(kMost);
  verdict->set_accepted(kMost);
  verdict->add_token_ids(7);
  for (int i = 0; i < 3; ++i) {
    v1::TokenLogprobs* token = verdict->add_logprobs();
    for (int j = 0; j < 30; ++j) {
      token->add_top_ids(j);
      token->add_top_logprobs(-1.0f);
    }
  }
  const WorkerEvents events = ToWorkerEvents(event);
  ASSERT_EQ(events.spans.size(), 2u);
  for (const SpanRecord& record : events.spans) {
    EXPECT_EQ(record.start_ns, int64_t{1} << 60);
    EXPECT_EQ(record.duration_ns, kMaxDurationNs);
    EXPECT_EQ(record.rows, kMaxRows);
    EXPECT_EQ(record.matched, kMaxRows);
    EXPECT_EQ(record.accepted, kMaxRows);
    EXPECT_EQ(record.length, -1);
    EXPECT_EQ(record.batch_sessions, kMaxRows);
  }
  // No share of a step is more than the step.
  EXPECT_EQ(events.spans[0].batch_rows, kMaxRows);
  EXPECT_EQ(events.spans[1].batch_rows, 0);
  ASSERT_EQ(events.failures.size(), 1u);
  EXPECT_EQ(events.failures[0].code, -1);
  EXPECT_EQ(events.failures[0].message, std::string(1024, 'x'));
  ASSERT_EQ(events.verdicts.size(), 1u);
  const speculation::Verdict& what = events.verdicts[0].verdict;
  EXPECT_EQ(what.base_length, -1);
  EXPECT_EQ(what.window, -1);
  EXPECT_EQ(what.matched, -1);
  EXPECT_EQ(what.verified, -1);
  EXPECT_EQ(what.accepted, -1);
  ASSERT_EQ(events.verdicts[0].logprobs.size(), 1u);
  EXPECT_EQ(events.verdicts[0].logprobs[0].top.size(), 20u);
}

}  // namespace
}  // namespace nacre::coordinator
