// Both engines against each other, with a relay in the place of the coordinator
// that delays messages at random: whatever the plan and the draft, the tokens
// are the target's own.

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <string>

#include "draft_worker/draft_engine.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using draft_worker::DraftCommands;
using draft_worker::DraftEngine;
using draft_worker::DraftEvents;
using draft_worker::OpenDraft;
using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

struct Case {
  std::string name;
  speculation::DraftPlan draft;
  speculation::TargetPlan target;
};

std::vector<Case> Plans() {
  const int64_t timeout_ns = 1'000'000'000;
  return {
      {"sd", {4, 4}, {4, 4, 4, timeout_ns}},
      {"pearl", {4, 7}, {0, 3, 3, timeout_ns}},
      {"async", {13, 13}, {2, 0, 6, timeout_ns}},
      {"window1", {1, 1}, {1, 1, 1, timeout_ns}},
      {"hung", {0, 0}, {4, 4, 4, 500}},
  };
}

class Pair {
 public:
  Pair(const Case& plan, TableModelOptions draft_options, uint64_t seed)
      : plan_(plan),
        target_model_(TargetOptions(draft_options.draws_tokens)),
        draft_model_(std::move(draft_options)),
        random_(seed) {
    TargetEngine::Options target;
    target.model = &target_model_;
    target.now_ns = [this] { return now_ns_ += 10; };
    target.send = [this](worker::StreamId, const TargetEvents& events) {
      OnTargetEvents(events);
    };
    target_ = std::make_unique<TargetEngine>(std::move(target));
    DraftEngine::Options draft;
    draft.model = &draft_model_;
    draft.now_ns = [this] { return now_ns_ += 10; };
    draft.send = [this](worker::StreamId, const DraftEvents& events) {
      for (const auto& [id, tail] : events.tails) {
        TargetCommands commands;
        commands.stream = 1;
        commands.tails.push_back({id, tail});
        to_target_.push_back(std::move(commands));
      }
    };
    draft_ = std::make_unique<DraftEngine>(std::move(draft));
  }

  void Open(OpenTarget open) {
    open.plan = plan_.target;
    open.has_draft = true;
    open.epoch = 1;
    OpenDraft draft;
    draft.session_id = open.session_id;
    draft.epoch = 1;
    draft.token_ids = open.token_ids;
    draft.prompt_length = open.prompt_length;
    draft.max_length = open.prompt_length + open.max_tokens - 1;
    draft.sampling = open.sampling;
    draft.end_token_ids = target_model_.info().eos_token_ids;
    draft.plan = plan_.draft;
    tokens[open.session_id] = open.token_ids;
    ++open_sessions_;
    TargetCommands to_target;
    to_target.stream = 1;
    to_target.open.push_back(std::move(open));
    to_target_.push_back(std::move(to_target));
    DraftCommands to_draft;
    to_draft.stream = 1;
    to_draft.open.push_back(std::move(draft));
    to_draft_.push_back(std::move(to_draft));
  }

  // Delivers and steps in random order until every session has finished.
  void Run() {
    for (int i = 0; i < 200000 && open_sessions_ > 0; ++i) {
      switch (random_() % 4) {
        case 0:
          Deliver(to_target_, *target_);
          break;
        case 1:
          Deliver(to_draft_, *draft_);
          break;
        case 2:
          ASSERT_TRUE(target_->RunOnce().ok());
          break;
        case 3:
          ASSERT_TRUE(draft_->RunOnce().ok());
          break;
      }
    }
    EXPECT_EQ(open_sessions_, 0) << "the pipeline stands still";
  }

  const TableModel& target_model() const { return target_model_; }
  const TableModel& draft_model() const { return draft_model_; }
  int accepted() const { return accepted_; }

  std::map<uint64_t, std::vector<int32_t>> tokens;

 private:
  static TableModelOptions TargetOptions(bool draws_tokens) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    return options;
  }

  template <typename Commands, typename Engine>
  void Deliver(std::deque<Commands>& queue, Engine& engine) {
    if (queue.empty()) return;
    engine.Push(std::move(queue.front()));
    queue.pop_front();
  }

  void OnTargetEvents(const TargetEvents& events) {
    for (const auto& [id, verdict, logprobs] : events.verdicts) {
      std::vector<int32_t>& committed = tokens[id];
      ASSERT_EQ(verdict.base_length, static_cast<int>(committed.size()));
      committed.insert(committed.end(), verdict.token_ids.begin(),
                       verdict.token_ids.end());
      accepted_ += verdict.accepted;
      if (verdict.finish != speculation::FinishReason::kNone) --open_sessions_;
      DraftCommands commit;
      commit.stream = 1;
      commit.commits.push_back({id, {verdict.base_length, verdict.token_ids}});
      to_draft_.push_back(std::move(commit));
      TargetCommands acknowledge;
      acknowledge.stream = 1;
      acknowledge.acknowledged.push_back(
          {id, static_cast<int>(committed.size())});
      to_target_.push_back(std::move(acknowledge));
    }
    EXPECT_TRUE(events.common.failures.empty());
  }

  const Case plan_;
  TableModel target_model_;
  TableModel draft_model_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 0;
  std::unique_ptr<TargetEngine> target_;
  std::unique_ptr<DraftEngine> draft_;
  std::deque<TargetCommands> to_target_;
  std::deque<DraftCommands> to_draft_;
  int open_sessions_ = 0;
  int accepted_ = 0;
};

TEST(PairTest, TokensAreTheTargetsOwnWhateverThePlanAndTheDraft) {
  TableModelOptions equal;
  TableModelOptions good;
  good.disturbance = 0.5f;
  TableModelOptions adversarial;
  adversarial.adversarial = true;
  for (const Case& plan : Plans()) {
    for (const TableModelOptions& draft : {equal, good, adversarial}) {
      for (const float temperature : {0.0f, 0.8f}) {
        Pair pair(plan, draft, /*seed=*/17);
        std::vector<OpenTarget> opens;
        for (uint64_t id = 1; id <= 3; ++id) {
          opens.push_back(MakeOpen(id, {1, static_cast<int32_t>(id), 3}, 70));
          opens.back().sampling.temperature = temperature;
          opens.back().sampling.seed = id;
          opens.back().sampling.repetition_penalty = 1.1f;
          pair.Open(opens.back());
        }
        pair.Run();
        for (const OpenTarget& open : opens) {
          EXPECT_EQ(pair.tokens[open.session_id],
                    Autoregressive(pair.target_model(), open))
              << plan.name;
        }
        if (plan.name != "hung" && !draft.adversarial) {
          EXPECT_GT(pair.accepted(), 30) << plan.name;
        }
      }
    }
  }
}

// Beside sessions that need their logits.
TEST(PairTest, TokensAreTheTargetsOwnWhereBothModelsDraw) {
  TableModelOptions good;
  good.disturbance = 0.5f;
  good.draws_tokens = true;
  for (const Case& plan : Plans()) {
    for (const float temperature : {0.0f, 0.8f}) {
      Pair pair(plan, good, /*seed=*/18);
      std::vector<OpenTarget> opens;
      for (uint64_t id = 1; id <= 4; ++id) {
        opens.push_back(MakeOpen(id, {1, static_cast<int32_t>(id), 3}, 70));
        opens.back().sampling.temperature = temperature;
        opens.back().sampling.seed = id;
        if (id == 2) opens.back().sampling.repetition_penalty = 1.1f;
        pair.Open(opens.back());
      }
      pair.Run();
      for (const OpenTarget& open : opens) {
        EXPECT_EQ(pair.tokens[open.session_id],
                  Autoregressive(pair.target_model(), open))
            << plan.name;
      }
      EXPECT_GT(pair.target_model().num_draws(), 0);
      EXPECT_GT(pair.target_model().num_logit_rows(), 0);
      if (plan.name != "hung") {
        EXPECT_GT(pair.accepted(), 30) << plan.name;
        EXPECT_GT(pair.draft_model().num_draws(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace nacre::target_worker
