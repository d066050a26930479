// Requests with token trees: who gets slots, and what plans say of rows.

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

class DispatcherTreesTest : public DispatcherTest {
 protected:
  DispatcherTreesTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->draft_rows = 5;
          options->tree_rows = 32;
        }) {}

  static RequestSpec Tree(const std::string& id, int tokens = 100) {
    RequestSpec request = Sized(id, tokens);
    request.tree = speculation::TreeShape::kBest;
    return request;
  }
};

TEST_F(DispatcherTreesTest, BothWorkersGetSlotsAndBounds) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  Start(Tree("a"));
  EXPECT_EQ(target.client->last_num_slots, 32);
  EXPECT_EQ(draft.client->last_num_slots, 64);  // of sixteen steps
  EXPECT_EQ(target.client->opened_target_plan.tree_rows, 32);
  Start(Sized("b", 100));
  EXPECT_EQ(target.client->last_num_slots, 0);
  EXPECT_EQ(draft.client->last_num_slots, 0);
  EXPECT_EQ(target.client->opened_target_plan.tree_rows, 0);
  EXPECT_EQ(draft.client->opened_draft_plan.rows, 1);
}

// Sessions share the rows of a draft's step: one that comes to a crowd would
// hold slots that it never fills.
TEST_F(DispatcherTreesTest, WhoComesToACrowdGetsNone) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  Start(Tree("a"));
  EXPECT_EQ(draft.client->last_num_slots, 64);
  Start(Tree("b"));  // two rows of the five are its share
  EXPECT_EQ(target.client->last_num_slots, 32);
  EXPECT_EQ(draft.client->last_num_slots, 16);
  Start(Tree("c"));
  EXPECT_EQ(target.client->last_num_slots, 0);
  EXPECT_EQ(draft.client->last_num_slots, 0);
}

// A session's slots are its own as long as it stays.
TEST_F(DispatcherTreesTest, WithoutSlotsItIsPlannedAsAChainAlsoLater) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run first = Start(Tree("a"));
  EXPECT_GT(draft.client->opened_draft_plan.rows, 1);
  const Run second = Start(Tree("b"));
  const Run third = Start(Tree("c"));
  ASSERT_EQ(draft.client->last_num_slots, 0);
  EXPECT_EQ(draft.client->opened_draft_plan.rows, 1);
  dispatcher_.Cancel(first.id);
  dispatcher_.Cancel(second.id);
  Verdict(target, third.id, 2, {'x'});
  EXPECT_EQ(draft.client->last_draft_plan.rows, 1);
  EXPECT_EQ(target.client->last_target_plan.tree_rows, 0);
}

// The plan at hand is still that of the draft before.
TEST_F(DispatcherTreesTest, AShapeIsTheRequestsAlsoAtALaterDraft) {
  AddTarget();
  const Worker small = AddDraft("small", 128);
  RequestSpec request = Tree("a");
  request.tree = *speculation::ParseTreeSpec("eagle2:k=3,depth=3,total=9");
  Start(request);
  ASSERT_EQ(small.client->last_num_slots, 0);
  EXPECT_EQ(small.client->opened_draft_plan.rows, 1);
  dispatcher_.RemoveWorker(small.id);
  const Worker large = AddDraft("large");
  EXPECT_EQ(large.client->last_num_slots, 64);
  EXPECT_TRUE(large.client->opened_draft_plan.tree == request.tree);
}

// Slots take no room that another request would want: it would wait for them.
TEST_F(DispatcherTreesTest, WithoutAQuarterToSpareThereAreNoSlots) {
  const Worker target = AddTarget("target", 512);
  const Worker draft = AddDraft("draft", 512);
  Start(Tree("a", 192));  // leaves 288 of 512, and 256
  EXPECT_EQ(target.client->last_num_slots, 32);
  EXPECT_EQ(draft.client->last_num_slots, 64);
  Start(Tree("b", 160));  // with slots it would leave 96, and 32
  EXPECT_EQ(target.client->last_num_slots, 0);
  EXPECT_EQ(draft.client->last_num_slots, 0);
  // What fits fits.
  target.client->Take();
  Start(Sized("c", 128));
  EXPECT_EQ(target.client->Take().size(), 1u);
}

// They say it already, by the token: a verdict would say it twice.
TEST_F(DispatcherTreesTest, WhereRanksAreToldVerdictsSayNothingOfThePair) {
  const Worker target = AddTarget();
  const std::vector<Worker> drafts = {AddDraft("a"), AddDraft("b")};
  for (const int accepted : {0, 1}) {
    const Run run = Start(Tree(absl::StrCat("told ", accepted)));
    Verdict(target, run.id, 2, {'x', 'y'});
    wire::DraftEvents told;
    told.ranks.push_back({run.id, 1, {1, 1}, 0});
    dispatcher_.OnEvents(drafts[accepted].id, told);
    wire::TargetEvents events;
    speculation::Verdict& verdict =
        events.verdicts.emplace_back(wire::SessionVerdict{run.id}).verdict;
    verdict.base_length = 4;
    verdict.token_ids.assign(1 + accepted, 'z');
    verdict.window = verdict.verified = 1;
    verdict.matched = verdict.accepted = accepted;
    dispatcher_.OnEvents(target.id, events);
  }
  const std::vector<Run> next = {Start(Tree("c")), Start(Tree("d"))};
  EXPECT_NE(DraftAddress(next[0].id), DraftAddress(next[1].id));
  std::vector<double> alphas;
  for (const Run& run : next) {
    Verdict(target, run.id, 2, {'x'}, speculation::FinishReason::kLength);
    ASSERT_TRUE(run.sink->completion().has_value());
    alphas.push_back(run.sink->completion()->alpha);
  }
  EXPECT_EQ(alphas[0], alphas[1]);
}

}  // namespace
}  // namespace nacre::coordinator
