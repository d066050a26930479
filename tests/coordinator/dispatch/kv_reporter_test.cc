// Workers that several coordinators share: what this one may promise of their
// KV, what it tells them, and where it places requests.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "speculation/policies/policy_spec.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

class DispatcherGrantsTest : public DispatcherTest {
 protected:
  static constexpr int64_t kCapacity = 1024;

  Worker AddShared(WorkerRole role, const std::string& address) {
    WorkerInfo info = Info(role, address);
    info.kv_capacity_tokens = kCapacity;
    info.grants_kv = true;
    return AddWith(std::move(info));
  }
  void Grant(const Worker& worker, uint64_t serial, int64_t tokens,
             int other_sessions = 0) {
    dispatcher_.StateKept(worker.id, KvGrant{serial, tokens, other_sessions});
  }
  static const wire::KvReport& Last(const Worker& worker) {
    return worker.client->kv_reports.back();
  }
  bool Waits(const Run& run) {
    return DraftAddress(run.id) == "no such session";
  }
};

TEST_F(DispatcherGrantsTest, NothingStartsBeforeAGrant) {
  const Worker target = AddShared(WorkerRole::kTarget, "target");
  RequestSpec request = Sized("r", 100);
  request.method = speculation::Method::kAr;
  const Run run = Start(request);
  EXPECT_TRUE(Waits(run));
  EXPECT_TRUE(target.client->kv_reports.empty());
  Grant(target, 3, 64);
  EXPECT_TRUE(Waits(run));
  EXPECT_EQ(Last(target).serial, 3u);
  EXPECT_EQ(Last(target).reserved, 0);
  EXPECT_EQ(Last(target).need, 112);
  EXPECT_EQ(Last(target).need_session, run.id);
  EXPECT_EQ(Last(target).wanted, 112);
  Grant(target, 4, 112);
  EXPECT_FALSE(Waits(run));
  EXPECT_EQ(Last(target).serial, 4u);
  EXPECT_EQ(Last(target).reserved, 112);
  EXPECT_EQ(Last(target).need_session, 0u);
  EXPECT_EQ(Last(target).sessions, 1);
}

TEST_F(DispatcherGrantsTest, TellsAtOnceThatMoreIsWanted) {
  const Worker target = AddShared(WorkerRole::kTarget, "target");
  Grant(target, 1, 0);
  const size_t before = target.client->kv_reports.size();
  const Run first = Start(Sized("a", 160));
  ASSERT_EQ(target.client->kv_reports.size(), before + 1);
  EXPECT_EQ(Last(target).need, 160);
  Start(Sized("b", 320));
  ASSERT_EQ(target.client->kv_reports.size(), before + 2);
  EXPECT_EQ(Last(target).need, 160);
  EXPECT_EQ(Last(target).wanted, 480);
  // Another one is the first.
  dispatcher_.Cancel(first.id);
  ASSERT_EQ(target.client->kv_reports.size(), before + 3);
  EXPECT_EQ(Last(target).need, 320);
  // No more than there is.
  Start(Sized("c", 960));
  EXPECT_EQ(Last(target).wanted, kCapacity);
}

TEST_F(DispatcherGrantsTest, GivesBackAsSessionsClose) {
  const Worker target = AddShared(WorkerRole::kTarget, "target");
  Grant(target, 1, kCapacity);
  RequestSpec request = Sized("a", 160);
  request.method = speculation::Method::kAr;
  const Run run = Start(request);
  ASSERT_FALSE(Waits(run));
  Grant(target, 2, 64);
  EXPECT_EQ(Last(target).reserved, 160);
  Verdict(target, run.id, 2, {'x'}, speculation::FinishReason::kLength);
  const size_t before = target.client->kv_reports.size();
  Closed(target, run.id);
  ASSERT_EQ(target.client->kv_reports.size(), before + 1);
  EXPECT_EQ(Last(target).serial, 2u);
  EXPECT_EQ(Last(target).reserved, 0);
}

// F8: a grant may shrink while an opening is on its way.
TEST_F(DispatcherGrantsTest, ARefusedOpeningOfASharedWorkerWaits) {
  const Worker target = AddShared(WorkerRole::kTarget, "target");
  Grant(target, 1, kCapacity);
  RequestSpec request = Sized("a", 160);
  request.method = speculation::Method::kAr;
  const Run run = Start(request);
  ASSERT_FALSE(Waits(run));
  Fail(target, run.id, static_cast<int>(absl::StatusCode::kResourceExhausted),
       "no room");
  EXPECT_EQ(run.sink->num_ends(), 0);
  target.client->Take();
  now_ns_ += Failover::kRetryNs;
  dispatcher_.Tick();
  EXPECT_FALSE(target.client->Take().empty());
  EXPECT_EQ(run.sink->num_ends(), 0);
}

TEST_F(DispatcherGrantsTest, SessionsOfOthersCountAsLoad) {
  const Worker first = AddShared(WorkerRole::kTarget, "first");
  const Worker second = AddShared(WorkerRole::kTarget, "second");
  Grant(first, 1, kCapacity, /*other_sessions=*/2);
  Grant(second, 1, kCapacity, /*other_sessions=*/0);
  for (const char* id : {"a", "b"}) {
    RequestSpec request = Sized(id, 100);
    request.method = speculation::Method::kAr;
    EXPECT_FALSE(Waits(Start(request)));
  }
  EXPECT_EQ(Last(first).sessions, 0);
  EXPECT_EQ(Reserved(second), 224);
  // Now both have as many.
  Grant(second, 1, kCapacity, /*other_sessions=*/1);
  RequestSpec request = Sized("c", 100);
  request.method = speculation::Method::kAr;
  Start(request);
  EXPECT_EQ(Reserved(first), 112);
}

TEST_F(DispatcherGrantsTest, SessionsThatLackADraftAskForIt) {
  const Worker target = AddTarget();
  const Worker draft = AddShared(WorkerRole::kDraft, "draft");
  Grant(draft, 1, 0);
  const Run run = Start(Sized("a", 160));
  EXPECT_EQ(DraftAddress(run.id), "");
  // No room is saved for one: a draft takes any that fits.
  EXPECT_EQ(Last(draft).need, 0);
  EXPECT_EQ(Last(draft).need_session, 0u);
  EXPECT_EQ(Last(draft).wanted, 160);
  Grant(draft, 2, 160);
  EXPECT_EQ(DraftAddress(run.id), "draft");
  EXPECT_EQ(Last(draft).wanted, 0);
}

TEST_F(DispatcherGrantsTest, ADraftIsAskedForWhatItHoldsOfASession) {
  const Worker target = AddTarget();
  WorkerInfo info = Info(WorkerRole::kDraft, "draft");
  info.kv_capacity_tokens = kCapacity;
  info.context_length = 96;
  info.grants_kv = true;
  const Worker draft = AddWith(std::move(info));
  Grant(draft, 1, 0);
  const Run run = Start(Sized("a", 160));
  EXPECT_EQ(Last(draft).wanted, 96);
  Grant(draft, 2, 96);
  EXPECT_EQ(DraftAddress(run.id), "draft");
}

TEST_F(DispatcherGrantsTest, ADraftIsNotAskedForWhatItCannotRun) {
  const Worker target = AddTarget();
  const Worker draft = AddShared(WorkerRole::kDraft, "draft");
  WorkerInfo info = Info(WorkerRole::kDraft, "calibrated");
  info.kv_capacity_tokens = kCapacity;
  info.grants_kv = true;
  info.policy_files = {{"specdec++", "big"}};
  const Worker calibrated = AddWith(std::move(info));
  Grant(draft, 1, 0);
  Grant(calibrated, 1, 0);
  RequestSpec request = Sized("a", 160);
  request.policy = *speculation::ParsePolicySpec("specdec++");
  ASSERT_TRUE(request.policy.needs_file());
  Start(std::move(request));
  EXPECT_EQ(Last(draft).wanted, 0);
  EXPECT_EQ(Last(calibrated).wanted, 160);
}

TEST_F(DispatcherGrantsTest, ADraftIsNotAskedForMoreThanItHas) {
  const Worker target = AddTarget();
  WorkerInfo info = Info(WorkerRole::kDraft, "draft");
  info.kv_capacity_tokens = 128;
  info.grants_kv = true;
  const Worker draft = AddWith(std::move(info));
  Grant(draft, 1, 0);
  Start(Sized("a", 160));
  EXPECT_EQ(Last(draft).wanted, 0);
  Start(Sized("b", 96));
  EXPECT_EQ(Last(draft).wanted, 96);
}

// A draft that could not open a session is not offered it again.
TEST_F(DispatcherGrantsTest, ADraftThatRefusedASessionIsNotAskedForIt) {
  const Worker target = AddTarget();
  const Worker draft = AddShared(WorkerRole::kDraft, "draft");
  Grant(draft, 1, 160);
  const Run run = Start(Sized("a", 160));
  ASSERT_EQ(DraftAddress(run.id), "draft");
  Fail(draft, run.id, static_cast<int>(absl::StatusCode::kInternal), "no");
  Grant(draft, 2, 160);
  EXPECT_EQ(DraftAddress(run.id), "");
  EXPECT_EQ(Last(draft).wanted, 0);
}

TEST_F(DispatcherGrantsTest, OthersGrantNothing) {
  const Worker target = AddTarget("target", kCapacity);
  Grant(target, 1, 0);
  EXPECT_FALSE(Waits(Start(Sized("a", 160))));
  EXPECT_TRUE(target.client->kv_reports.empty());
}

TEST_F(DispatcherGrantsTest, ADrainingWorkerIsAskedForNothing) {
  const Worker target = AddShared(WorkerRole::kTarget, "target");
  Grant(target, 1, 160);
  RequestSpec request = Sized("a", 160);
  request.method = speculation::Method::kAr;
  Start(request);
  Start(Sized("b", 320));
  EXPECT_EQ(Last(target).wanted, 320);
  dispatcher_.DrainWorker(target.id);
  Grant(target, 2, 160);
  EXPECT_EQ(Last(target).serial, 2u);
  EXPECT_EQ(Last(target).reserved, 160);
  EXPECT_EQ(Last(target).sessions, 1);
  EXPECT_EQ(Last(target).need_session, 0u);
  EXPECT_EQ(Last(target).wanted, 0);
}

TEST_F(DispatcherGrantsTest, WhoIsHeldWaitsFirst) {
  const Worker gone = AddTarget("gone");
  const Worker shared = AddShared(WorkerRole::kTarget, "shared");
  Grant(shared, 1, 0);
  RequestSpec request = Sized("held", 160);
  request.method = speculation::Method::kAr;
  const Run held = Start(request);
  dispatcher_.RemoveWorker(gone.id);
  EXPECT_EQ(Last(shared).need_session, held.id);
  EXPECT_EQ(Last(shared).need, 160);
  EXPECT_EQ(Last(shared).wanted, 160);
  Start(Sized("new", 320));
  EXPECT_EQ(Last(shared).need_session, held.id);
  EXPECT_EQ(Last(shared).wanted, 480);
  dispatcher_.Cancel(held.id);
  EXPECT_EQ(Last(shared).need, 320);
  EXPECT_EQ(Last(shared).wanted, 320);
}

class FullGrantsTest : public DispatcherTest {
 protected:
  FullGrantsTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->max_running = 1;
          options->max_queue = 9;
        }) {}
};

// What waits for a session's end would get nothing from more KV.
TEST_F(FullGrantsTest, WhoWaitsForAPlaceWantsNoKv) {
  WorkerInfo info = Info(WorkerRole::kTarget, "target");
  info.kv_capacity_tokens = 960;
  info.grants_kv = true;
  const Worker target = AddWith(std::move(info));
  dispatcher_.StateKept(target.id, KvGrant{1, 960, 0});
  const Run first = Start(Sized("a", 160));
  Start(Sized("b", 160));
  dispatcher_.StateKept(target.id, KvGrant{2, 320, 0});
  EXPECT_EQ(target.client->kv_reports.back().need_session, 0u);
  EXPECT_EQ(target.client->kv_reports.back().wanted, 0);
  dispatcher_.StateKept(target.id, KvGrant{3, 96, 0});
  dispatcher_.Cancel(first.id);
  EXPECT_EQ(target.client->kv_reports.back().need, 0);
  // Now KV is all that is missing.
  Closed(target, first.id);
  EXPECT_EQ(target.client->kv_reports.back().need, 160);
  dispatcher_.StateKept(target.id, KvGrant{4, 160, 0});
  EXPECT_EQ(target.client->kv_reports.back().need, 0);
  EXPECT_EQ(NumSessions(target), 1);
}

}  // namespace
}  // namespace nacre::coordinator
