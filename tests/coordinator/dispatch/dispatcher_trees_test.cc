// Requests with token trees: which get slots, and what plans say of rows.

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

// Nor is it planned as if it grew trees.
TEST_F(DispatcherTreesTest, ADraftThatGrowsNoTreesGetsNone) {
  const Worker target = AddTarget();
  WorkerInfo info = Info(WorkerRole::kDraft, "draft");
  info.drafts_chains = true;
  const Worker draft = AddWith(std::move(info));
  Start(Tree("a"));
  EXPECT_EQ(draft.client->last_num_slots, 0);
  EXPECT_EQ(draft.client->opened_draft_plan.rows, 1);
  EXPECT_EQ(target.client->opened_target_plan.tree_rows, 0);
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

// At a temperature above 0 their first choices are right less often than those
// of others, who must not be planned by them.
TEST_F(DispatcherTreesTest, TreesByProbabilitySayNothingOfThePair) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const auto alpha_of = [&](const Run& run, int length) {
    Verdict(target, run.id, length, {'x'}, speculation::FinishReason::kLength);
    EXPECT_TRUE(run.sink->completion().has_value());
    return run.sink->completion()->alpha;
  };
  RequestSpec request = Tree("by q");
  request.tree = *speculation::ParseTreeSpec("eagle2");
  const Run run = Start(request);
  wire::TargetEvents events;
  speculation::Verdict& verdict =
      events.verdicts.emplace_back(wire::SessionVerdict{run.id}).verdict;
  verdict.base_length = 2;
  verdict.token_ids = {'x'};
  verdict.window = verdict.verified = 1;
  dispatcher_.OnEvents(target.id, events);
  wire::DraftEvents told;
  told.ranks.push_back({run.id, 1, {3}, 0});
  dispatcher_.OnEvents(draft.id, told);
  EXPECT_LT(alpha_of(run, 3), 0.7) << "it counts for itself";
  EXPECT_EQ(alpha_of(Start(Tree("next")), 2), 0.7);
}

// What a pair's mismatches were tells a new session what branches will catch.
TEST_F(DispatcherTreesTest, RanksOfThePairChooseTheRowsOfItsNextSession) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  std::vector<int> rows;
  for (const int rank : {speculation::kBeyond, 2}) {
    const Run run = Start(Tree(absl::StrCat("told ", rank), 500));
    // A long text, so that nothing else is remembered of the pair.
    Verdict(target, run.id, 2, std::vector<int32_t>(60, 'x'));
    Verdict(target, run.id, 62, std::vector<int32_t>(60, 'x'));
    wire::DraftEvents told;
    for (int i = 0; i < 6; ++i) {
      told.ranks.push_back({run.id, 1, std::vector<int>(20, 1), 0});
      for (int j = 10; j < 20; ++j) told.ranks.back().ranks[j] = rank;
    }
    dispatcher_.OnEvents(draft.id, told);
    dispatcher_.Cancel(run.id);
    const Run next = Start(Tree(absl::StrCat("next ", rank)));
    rows.push_back(draft.client->opened_draft_plan.rows);
    dispatcher_.Cancel(next.id);
  }
  EXPECT_LT(rows[0], rows[1]);
}

}  // namespace
}  // namespace nacre::coordinator
