#include "coordinator/dispatch/status_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nacre::coordinator {
namespace {

std::shared_ptr<WorkerCell> NewWorker(WorkerRole role,
                                      const std::string& address) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  return std::make_shared<WorkerCell>(info);
}

std::shared_ptr<SessionCell> NewSession(const std::string& request_id) {
  auto request = std::make_shared<RequestSpec>();
  request->request_id = request_id;
  request->prompt_ids = {1, 2, 3};
  auto cell = std::make_shared<SessionCell>();
  cell->request = request;
  return cell;
}

TEST(StatusBoardTest, ShowsWorkersAsTheyAreNow) {
  StatusBoard board;
  EXPECT_TRUE(board.workers().empty());
  const auto worker = NewWorker(WorkerRole::kDraft, "d");
  board.AddWorker(1, worker);
  SessionSet sessions(worker);
  for (const uint64_t id : {9, 4, 7}) sessions.insert(id);
  sessions.erase(7);
  EXPECT_THAT(sessions.InOrder(), ::testing::ElementsAre(4, 9));
  worker->ready = false;
  ASSERT_EQ(board.workers().size(), 1u);
  EXPECT_EQ(board.workers()[0].info.address, "d");
  EXPECT_EQ(board.workers()[0].sessions, 2);
  EXPECT_FALSE(board.workers()[0].ready);
  board.RemoveWorker(1);
  EXPECT_TRUE(board.workers().empty());
}

TEST(StatusBoardTest, TheModelIsThatOfTheFirstReadyTarget) {
  StatusBoard board;
  EXPECT_FALSE(board.last_target().has_value());
  board.AddWorker(1, NewWorker(WorkerRole::kDraft, "d"));
  EXPECT_FALSE(board.model().has_value());
  const auto first = NewWorker(WorkerRole::kTarget, "t0");
  board.AddWorker(2, first);
  board.AddWorker(3, NewWorker(WorkerRole::kTarget, "t1"));
  EXPECT_EQ(board.model()->address, "t0");
  first->ready = false;
  EXPECT_EQ(board.model()->address, "t1");
  board.RemoveWorker(3);
  EXPECT_FALSE(board.model().has_value());
  EXPECT_EQ(board.last_target()->address, "t1");
}

TEST(StatusBoardTest, TheModelHasTheKvOfTheLargestReadyTarget) {
  StatusBoard board;
  const auto add = [&board](uint64_t id, WorkerRole role, int64_t tokens) {
    WorkerInfo info;
    info.role = role;
    info.kv_capacity_tokens = tokens;
    const auto cell = std::make_shared<WorkerCell>(info);
    board.AddWorker(id, cell);
    return cell;
  };
  add(1, WorkerRole::kDraft, 4096);
  add(2, WorkerRole::kTarget, 128);
  const auto largest = add(3, WorkerRole::kTarget, 1030);
  EXPECT_EQ(board.model()->kv_capacity_tokens, 1024) << "not in whole blocks";
  largest->ready = false;
  EXPECT_EQ(board.model()->kv_capacity_tokens, 128);
  add(4, WorkerRole::kTarget, 0);
  EXPECT_EQ(board.model()->kv_capacity_tokens, 0) << "one takes any length";
}

TEST(StatusBoardTest, ShowsRequestsThatRunAndThoseThatWaitInOrder) {
  StatusBoard board;
  board.AddWorker(1, NewWorker(WorkerRole::kTarget, "t"));
  for (const uint64_t id : {5, 6, 7, 8}) {
    const auto session = NewSession(std::string(1, 'a' + id - 5));
    board.AddSession(id, session);
    if (id != 6) continue;
    session->running = true;
    session->generated = 12;
    session->target_worker = 1;
    session->draft_worker = 2;  // it is gone
  }
  board.RemoveSession(7);
  ASSERT_EQ(board.running().size(), 1u);
  const SessionStatus running = board.running()[0];
  EXPECT_EQ(running.id, 6u);
  EXPECT_EQ(running.request_id, "b");
  EXPECT_EQ(running.prompt_tokens, 3);
  EXPECT_EQ(running.generated_tokens, 12);
  EXPECT_EQ(running.target_address, "t");
  EXPECT_EQ(running.draft_address, "");
  EXPECT_FALSE(running.queue_position.has_value());
  ASSERT_EQ(board.waiting().size(), 2u);
  EXPECT_EQ(board.waiting()[0].request_id, "a");
  EXPECT_EQ(board.waiting()[1].request_id, "d");
  EXPECT_EQ(board.waiting()[1].queue_position, 1);
}

TEST(StatusBoardTest, RequestsThatResumeAnAnswerWaitAheadOfTheOthers) {
  StatusBoard board;
  for (const uint64_t id : {5, 6, 7, 8}) {
    auto request = std::make_shared<RequestSpec>();
    request->request_id = std::string(1, 'a' + id - 5);
    if (id == 6 || id == 8) {
      request->resume = std::make_shared<const std::vector<ResumedChoice>>(1);
    }
    auto cell = std::make_shared<SessionCell>();
    cell->request = std::move(request);
    board.AddSession(id, std::move(cell));
  }
  std::vector<std::string> queue;
  for (const SessionStatus& session : board.waiting()) {
    EXPECT_EQ(session.queue_position, static_cast<int>(queue.size()));
    queue.push_back(session.request_id);
  }
  EXPECT_THAT(queue, ::testing::ElementsAre("b", "d", "a", "c"));
}

TEST(StatusBoardTest, SaysWhatEachRequestIs) {
  StatusBoard board;
  for (const uint64_t id : {3, 4}) {
    auto request = std::make_shared<RequestSpec>();
    request->request_id = "r";
    request->choice = static_cast<int>(id);
    request->method = speculation::Method::kPearl;
    request->prompt_ids = {1, 2};
    auto cell = std::make_shared<SessionCell>();
    cell->request = request;
    cell->running = id == 4;
    cell->generated = 5;
    board.AddSession(id, cell);
  }
  ASSERT_EQ(board.running().size(), 1u);
  EXPECT_EQ(board.running()[0].choice, 4);
  EXPECT_EQ(board.running()[0].method, speculation::Method::kPearl);
  EXPECT_EQ(board.running()[0].target_address, "");
  ASSERT_EQ(board.waiting().size(), 1u);
  const SessionStatus waiting = board.waiting()[0];
  EXPECT_EQ(waiting.id, 3u);
  EXPECT_EQ(waiting.choice, 3);
  EXPECT_EQ(waiting.method, speculation::Method::kPearl);
  EXPECT_EQ(waiting.prompt_tokens, 2);
  EXPECT_EQ(waiting.generated_tokens, 0);
  EXPECT_EQ(waiting.queue_position, 0);
}

TEST(StatusBoardTest, SaysWhatRequestsLack) {
  StatusBoard board;
  EXPECT_EQ(board.demand().target_tokens, 0);
  const auto add = [&board](uint64_t id, int prompt_and_answer,
                            speculation::Method method) {
    auto request = std::make_shared<RequestSpec>();
    request->prompt_ids = {1, 2, 3};
    request->max_tokens = prompt_and_answer - 3;
    request->method = method;
    auto cell = std::make_shared<SessionCell>();
    cell->request = request;
    board.AddSession(id, cell);
    return cell;
  };
  add(1, 16, speculation::Method::kAsync);  // waits
  // Its target is lost.
  add(2, 17, speculation::Method::kSd)->running = true;
  for (const uint64_t id : {3, 4, 5}) {
    const auto cell = add(
        id, 100, id == 5 ? speculation::Method::kAr : speculation::Method::kSd);
    cell->running = true;
    cell->target_worker = 1;
    if (id == 4) cell->draft_worker = 2;
  }
  EXPECT_EQ(board.demand().target_tokens, 16 + 32);
  EXPECT_EQ(board.demand().draft_tokens, 112);
  EXPECT_EQ(board.demand().without_draft, 1);
}

TEST(StatusBoardTest, ADraftIsNoLastTarget) {
  StatusBoard board;
  board.AddWorker(1, NewWorker(WorkerRole::kTarget, "t"));
  board.AddWorker(2, NewWorker(WorkerRole::kDraft, "d"));
  board.RemoveWorker(1);
  ASSERT_TRUE(board.last_target().has_value());
  EXPECT_EQ(board.last_target()->address, "t");
  ASSERT_EQ(board.workers().size(), 1u);
  EXPECT_EQ(board.workers()[0].id, 2u);
}

TEST(StatusBoardTest, ADraftIsExpectedOnceOneCame) {
  StatusBoard board;
  board.AddWorker(1, NewWorker(WorkerRole::kTarget, "t"));
  EXPECT_FALSE(board.had_draft());
  EXPECT_FALSE(board.demand().expects_draft);
  board.AddWorker(2, NewWorker(WorkerRole::kDraft, "d"));
  board.RemoveWorker(2);
  EXPECT_TRUE(board.had_draft());
  EXPECT_TRUE(board.demand().expects_draft);
}

}  // namespace
}  // namespace nacre::coordinator
