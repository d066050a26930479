// Length policies: which may draft for a request, and what its answer says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/dispatch/dispatcher.h"
#include "speculation/policies/policy_spec.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Method;
using ::testing::HasSubstr;

class DispatcherPoliciesTest : public DispatcherTest {
 protected:
  // A draft with calibrations: (policy, target's fingerprint).
  Worker AddDraftWith(
      const std::string& address,
      std::vector<std::pair<std::string, std::string>> policy_files) {
    Worker worker;
    worker.role = WorkerRole::kDraft;
    worker.client = std::make_shared<RecordingClient>();
    WorkerInfo info = Info(WorkerRole::kDraft, address);
    info.policy_files = std::move(policy_files);
    worker.id = *AddWorker(&dispatcher_, std::move(info), worker.client);
    return worker;
  }
  static RequestSpec With(const std::string& id, const std::string& policy,
                          Method method = Method::kSd) {
    RequestSpec request = Request(id);
    request.fingerprint = "big";
    request.method = method;
    request.policy = *speculation::ParsePolicySpec(policy);
    return request;
  }
  absl::Status Refusal(RequestSpec request) {
    return dispatcher_
        .Start(std::move(request), std::make_shared<RecordingSink>())
        .status();
  }
};

TEST_F(DispatcherPoliciesTest, APolicyWithoutItsFileIsAFailedPrecondition) {
  AddTarget();
  AddDraft("plain");
  AddDraftWith("other target", {{"disco", "bigger"}, {"specdec++", "big"}});
  absl::Status status = Refusal(With("r", "disco:threshold=0.4"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("none of 2 draft workers has one"));
  status = Refusal(With("r", "optimal-static"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Refusal(With("a", "optimal-static:gamma=4")).ok());
  EXPECT_TRUE(Refusal(With("b", "cali-ts")).ok());
  EXPECT_TRUE(Refusal(With("c", "disco", Method::kAr)).ok());
}

TEST_F(DispatcherPoliciesTest, ItsSessionsGoToDraftsThatHaveTheFile) {
  AddTarget();
  AddDraft("plain");
  const Worker able = AddDraftWith("able", {{"disco", "big"}});
  for (const char* id : {"a", "b", "c"}) {
    EXPECT_EQ(DraftAddress(Start(With(id, "disco")).id), "able");
  }
  // Without it they go on alone: another draft cannot help.
  const Run run = Start(With("d", "disco"));
  dispatcher_.RemoveWorker(able.id);
  EXPECT_EQ(DraftAddress(run.id), "");
  const Worker back = AddDraftWith("back", {{"disco", "big"}});
  EXPECT_EQ(DraftAddress(run.id), "back");
}

// One that waits for a file says nothing of the room on a draft without one.
TEST_F(DispatcherPoliciesTest, WhoNeedsAFileKeepsNobodyFromAnotherDraft) {
  AddTarget();
  const Run able = Start(With("a", "disco"));
  const Run plain = Start(With("b", "svip"));
  AddDraft("plain");
  EXPECT_EQ(DraftAddress(able.id), "");
  EXPECT_EQ(DraftAddress(plain.id), "plain");
}

TEST_F(DispatcherPoliciesTest, WithoutAnyDraftTheRequestRunsDegraded) {
  AddTarget();
  EXPECT_TRUE(Refusal(With("r", "disco")).ok());
}

TEST_F(DispatcherPoliciesTest, TheAnswerSaysWhatRanAndWithoutWhat) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const auto policy = [&](RequestSpec request, const std::string& note) {
    const Run run = Start(std::move(request));
    if (!note.empty()) {
      wire::DraftEvents events;
      events.policy_notes.push_back({run.id, note});
      dispatcher_.OnEvents(draft.id, events);
    }
    Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
    return run.sink->completion()->policy;
  };
  EXPECT_EQ(policy(With("a", "svip:h=0.4"), ""), "svip:h=0.4");
  EXPECT_EQ(policy(With("b", "cali-ts"), "no model score"),
            "cali-ts (no model score)");
  EXPECT_EQ(policy(With("c", ""), ""), "constant");
  EXPECT_EQ(policy(With("d", "svip", Method::kAr), ""), "");
}

TEST_F(DispatcherPoliciesTest, InSdThePolicysLongestChunkIsTheWindow) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  Start(With("a", "svip:max=23"));
  EXPECT_EQ(target.client->last_target_plan.window, 23);
  EXPECT_TRUE(draft.client->last_draft_plan.waits_at_stop);
  RequestSpec bounded = With("b", "svip");
  bounded.window = 6;
  Start(bounded);
  EXPECT_EQ(target.client->last_target_plan.window, 6);
  Start(With("c", "svip", Method::kPearl));
  EXPECT_FALSE(draft.client->last_draft_plan.waits_at_stop);
}

// cali-ts reads the target's hidden states: both ends hear of one channel, the
// draft where the target is.
TEST_F(DispatcherPoliciesTest, BothWorkersHearOfTheHiddenChannel) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  std::set<uint64_t> channels;
  for (const char* id : {"a", "b", "c"}) {
    Start(With(id, "cali-ts:max=9", Method::kAsync));
    const uint64_t channel = target.client->last_hidden_channel;
    EXPECT_NE(channel, 0u);
    EXPECT_EQ(draft.client->last_hidden_channel, channel);
    EXPECT_EQ(draft.client->last_hidden_address, "target");
    channels.insert(channel);
    channels.insert(target.client->last_kv_channel);
    EXPECT_EQ(draft.client->last_kv_channel, target.client->last_kv_channel);
  }
  EXPECT_EQ(channels.size(), 6u);
  EXPECT_EQ(channels.count(0), 0u);
  // Others read none. Their drafts may read keys, if they are such drafts.
  for (const char* policy : {"svip", ""}) {
    Start(With(std::string("none") + policy, policy));
    EXPECT_EQ(target.client->last_hidden_channel, 0u);
    EXPECT_EQ(draft.client->last_hidden_channel, 0u);
    EXPECT_EQ(draft.client->last_hidden_address, "target");
    EXPECT_NE(draft.client->last_kv_channel, 0u);
    EXPECT_EQ(draft.client->last_kv_channel, target.client->last_kv_channel);
  }
  Start(With("ar", "cali-ts", Method::kAr));
  EXPECT_EQ(target.client->last_hidden_channel, 0u);
  EXPECT_EQ(target.client->last_kv_channel, 0u);
}

TEST_F(DispatcherPoliciesTest, ASessionThatMovesReadsFromWhereItIs) {
  const Worker target = AddTarget("first");
  const Worker draft = AddDraft("draft");
  Start(With("a", "cali-ts"));
  const uint64_t channel = target.client->last_hidden_channel;
  // Another draft reads what the target goes on to publish.
  const Worker next = AddDraft("next");
  dispatcher_.RemoveWorker(draft.id);
  EXPECT_EQ(next.client->last_hidden_channel, channel);
  EXPECT_EQ(next.client->last_hidden_address, "first");
  // Another target is told to publish, and the draft where it is.
  const Worker second = AddTarget("second");
  dispatcher_.RemoveWorker(target.id);
  EXPECT_NE(second.client->last_hidden_channel, 0u);
  EXPECT_EQ(next.client->last_hidden_channel,
            second.client->last_hidden_channel);
  EXPECT_EQ(next.client->last_hidden_address, "second");
}

TEST_F(DispatcherPoliciesTest, TheReportCountsHiddenStates) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start(With("a", "cali-ts"));
  wire::SessionEvents events;
  for (const int64_t duration_ns : {300, 400}) {
    SpanRecord span;
    span.session_id = run.id;
    span.kind = SpanRecord::Kind::kHidden;
    span.duration_ns = duration_ns;
    span.bytes = 1024;
    events.spans.push_back(span);
  }
  Say(draft, events);
  Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
  EXPECT_EQ(run.sink->completion()->hidden_bytes, 2048);
  EXPECT_EQ(run.sink->completion()->hidden_ns, 700);
  EXPECT_EQ(run.sink->completion()->draft_busy_ns, 0);
  EXPECT_EQ(run.sink->completion()->draft_wait_ns, 0);
}

}  // namespace
}  // namespace nacre::coordinator
