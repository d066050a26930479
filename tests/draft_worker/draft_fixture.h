// A draft engine over a table model, stepped by the test: no threads, a clock
// that only moves when it is read or told to.

#ifndef TESTS_DRAFT_WORKER_DRAFT_FIXTURE_H_
#define TESTS_DRAFT_WORKER_DRAFT_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "draft_worker/draft_engine.h"
#include "model/sampler.h"
#include "tests/testing/table_model.h"
#include "worker/engine/step_budget.h"

namespace nacre::draft_worker {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

class DraftFixture {
 public:
  explicit DraftFixture(TableModelOptions model_options = {},
                        worker::StepBudget budget = {},
                        PolicyLibrary* policies = nullptr,
                        worker::FeatureFile* features = nullptr,
                        worker::TensorReader* tensors = nullptr)
      : model(std::move(model_options)) {
    DraftEngine::Options options;
    options.model = &model;
    options.now_ns = [this] { return now_ns += 10; };
    options.budget = budget;
    options.policies = policies;
    options.features = features;
    options.tensors = tensors;
    options.send = [this](worker::StreamId, const DraftEvents& events) {
      for (const auto& [id, tail] : events.tails) tails[id].push_back(tail);
      for (const auto& each : events.ranks) ranks.push_back(each);
      for (const auto& failure : events.common.failures) {
        failures[failure.session_id] = failure.status;
        failure_epochs[failure.session_id] = failure.epoch;
      }
      const wire::SessionEvents& common = events.common;
      for (const auto& opening : common.opened) {
        opened.push_back(opening.session_id);
        cached_tokens += opening.cached_tokens;
        policy_notes.push_back(opening.policy_note);
      }
      for (const wire::PolicyNote& note : events.policy_notes) {
        later_notes.emplace_back(note.session_id, note.note);
      }
      closed.insert(closed.end(), common.closed.begin(), common.closed.end());
      spans.insert(spans.end(), common.spans.begin(), common.spans.end());
    };
    engine = std::make_unique<DraftEngine>(std::move(options));
  }

  void Drain() {
    while (true) {
      const absl::StatusOr<worker::StepOutcome> outcome = engine->RunOnce();
      if (!outcome.ok() || !outcome->stepped) return;
    }
  }

  void Open(const OpenDraft& open, worker::StreamId stream = 1) {
    DraftCommands commands;
    commands.stream = stream;
    commands.open.push_back(open);
    engine->Push(std::move(commands));
  }

  void Commit(uint64_t id, int first_position, std::vector<int32_t> token_ids) {
    DraftCommands commands;
    commands.stream = 1;
    commands.commits.push_back({id, {first_position, std::move(token_ids)}});
    engine->Push(std::move(commands));
  }

  // The session's drafted tokens since the last call, checked to be contiguous.
  std::vector<int32_t> TakeDrafted(uint64_t id) {
    std::vector<int32_t> drafted;
    int next = -1;
    for (const speculation::Tail& tail : tails[id]) {
      if (next >= 0) {
        EXPECT_EQ(tail.first_position, next);
      }
      next = tail.first_position + static_cast<int>(tail.token_ids.size());
      drafted.insert(drafted.end(), tail.token_ids.begin(),
                     tail.token_ids.end());
    }
    tails[id].clear();
    return drafted;
  }

  int64_t now_ns = 1000;
  TableModel model;
  std::unique_ptr<DraftEngine> engine;
  std::map<uint64_t, std::vector<speculation::Tail>> tails;
  std::vector<wire::SessionRanks> ranks;
  std::map<uint64_t, absl::Status> failures;
  std::map<uint64_t, uint32_t> failure_epochs;
  std::vector<uint64_t> opened;
  int cached_tokens = 0;                  // of all opened
  std::vector<std::string> policy_notes;  // of all opened
  std::vector<std::pair<uint64_t, std::string>> later_notes;
  std::vector<uint64_t> closed;
  std::vector<wire::Span> spans;
};

inline OpenDraft MakeOpen(uint64_t id, std::vector<int32_t> token_ids,
                          int lead) {
  OpenDraft open;
  open.session_id = id;
  open.epoch = 3;
  open.prompt_length = static_cast<int>(token_ids.size());
  open.token_ids = std::move(token_ids);
  open.max_length = 500;
  open.sampling.temperature = 0.8f;
  open.sampling.seed = 5;
  open.sampling.repetition_penalty = 1.2f;
  open.plan = {lead, lead};
  return open;
}

// What the model itself says after `tokens`.
inline std::vector<int32_t> Continue(const TableModel& model,
                                     const OpenDraft& open,
                                     std::vector<int32_t> tokens, int count) {
  model::Sampler sampler(open.sampling, model.info().vocab_size);
  std::vector<int32_t> result;
  for (int i = 0; i < count; ++i) {
    model::TokenHistory history(open.prompt_length);
    for (const int32_t id : tokens) history.Push(id);
    result.push_back(sampler.Sample(model.Logits(tokens),
                                    static_cast<int>(tokens.size()), history));
    tokens.push_back(result.back());
  }
  return result;
}

inline std::vector<int32_t> Prompt(int length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 16);
  return prompt;
}

inline std::vector<int32_t> Joined(std::vector<int32_t> a,
                                   const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace nacre::draft_worker

#endif  // TESTS_DRAFT_WORKER_DRAFT_FIXTURE_H_
