// A session and its answer, driven as the dispatcher does, for their tests.

#ifndef TESTS_COORDINATOR_SESSION_FIXTURE_H_
#define TESTS_COORDINATOR_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "coordinator/dispatch/answer.h"
#include "coordinator/dispatch/session.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_observer.h"
#include "tests/coordinator/recording_sink.h"

namespace nacre::coordinator {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    request_.prompt_ids = Bytes("ab");
    request_.max_tokens = 1000;
    request_.stream = true;
    request_.arrival_ns = 1000;
  }

  Session& session() {
    if (session_ == nullptr) {
      auto cell = std::make_shared<SessionCell>();
      cell->request = std::make_shared<const RequestSpec>(request_);
      auto answer = std::make_shared<Answer>(cell->request, &tokenizer_, sink_,
                                             &observer_);
      session_ =
          std::make_unique<Session>(5, cell, answer, TensorChannels(), 0.7);
      answer->OnStarted(5, Placement(), /*numerics_id=*/"n",
                        /*start_ns=*/1000);
    }
    return *session_;
  }
  Answer& answer() { return *session().answer(); }

  // The next verdict of a target that says these tokens.
  speculation::Verdict Next(
      std::vector<int32_t> token_ids,
      speculation::FinishReason finish = speculation::FinishReason::kNone) {
    speculation::Verdict verdict;
    verdict.base_length = session().schedule().committed_length();
    verdict.token_ids = std::move(token_ids);
    verdict.finish = finish;
    return verdict;
  }
  absl::optional<speculation::Commit> OnVerdict(
      const speculation::Verdict& verdict,
      absl::Span<const TokenLogprobs> logprobs = {}) {
    const auto commit = session().ApplyVerdict(verdict);
    if (commit.has_value()) {
      answer().ExpectChunk();
      answer().Show(verdict, logprobs,
                    session().Applied(verdict, /*now_ns=*/1500));
    }
    return commit;
  }
  bool Say(
      std::vector<int32_t> token_ids,
      speculation::FinishReason finish = speculation::FinishReason::kNone) {
    return OnVerdict(Next(std::move(token_ids), finish)).has_value();
  }
  Completion Complete() {
    answer().Complete({TraceLane(), absl::nullopt, /*cost_ratio=*/3.5,
                       /*now_ns=*/9000});
    return sink_->completion().value();
  }
  void OnSpan(WorkerRole role, const SpanRecord& span) {
    session().OnSpan(role, span);
    answer().OnSpan(role, span, /*clock_offset_ns=*/0);
  }
  // The session's target is gone, or its draft.
  void Leave(const TraceLane& lane) {
    session().OnWorkerLeft(lane.role);
    answer().OnWorkerLeft(lane);
  }
  // The step whose last row it holds, if any, has no other part.
  bool EndHeldStep() {
    speculation::SessionSchedule& schedule = session().schedule();
    if (schedule.ended_step() != nullptr) return false;
    schedule.EndStep();
    answer().EndHeldStep(schedule.step());
    return true;
  }
  static SpanRecord Span(SpanRecord::Kind kind, int64_t start_ns,
                         int64_t duration_ns, int rows, int batch_rows) {
    SpanRecord span;
    span.kind = kind;
    span.start_ns = start_ns;
    span.duration_ns = duration_ns;
    span.rows = rows;
    span.batch_rows = batch_rows;
    return span;
  }

  const ByteTokenizer tokenizer_;
  RecordingObserver observer_;
  const std::shared_ptr<RecordingSink> sink_ =
      std::make_shared<RecordingSink>();
  RequestSpec request_;
  std::unique_ptr<Session> session_;
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_SESSION_FIXTURE_H_
