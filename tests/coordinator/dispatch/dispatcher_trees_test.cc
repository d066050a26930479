// Requests with token trees: who gets slots, and what plans say of rows.

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

}  // namespace
}  // namespace nacre::coordinator
