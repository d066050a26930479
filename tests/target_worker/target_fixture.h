// A target engine over a table model, stepped by the test: no threads, a clock
// that only moves when it is read or told to.

#ifndef TESTS_TARGET_WORKER_TARGET_FIXTURE_H_
#define TESTS_TARGET_WORKER_TARGET_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/sampler.h"
#include "target_worker/target_engine.h"
#include "tests/testing/table_model.h"
#include "worker/engine/step_budget.h"

namespace nacre::target_worker {

// The tokens that the model, asked one token at a time, says after `prompt`.
inline std::vector<int32_t> Autoregressive(
    const nacre::testing::TableModel& model, const OpenTarget& open) {
  std::vector<int32_t> tokens(open.token_ids.begin(),
                              open.token_ids.begin() + open.prompt_length);
  model::EndRule end_rule{open.prompt_length + open.min_tokens,
                          open.stop_token_ids};
  if (!open.ignore_eos) {
    end_rule.token_ids.insert(end_rule.token_ids.end(),
                              model.info().eos_token_ids.begin(),
                              model.info().eos_token_ids.end());
  }
  model::Sampler sampler(open.sampling, model.info().vocab_size, end_rule);
  model::TokenHistory history(open.prompt_length);
  for (const int32_t id : tokens) history.Push(id);
  const auto is_in = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (int i = 0; i < open.max_tokens; ++i) {
    const int32_t id = sampler.Sample(model.Logits(tokens),
                                      static_cast<int>(tokens.size()), history);
    tokens.push_back(id);
    history.Push(id);
    if (is_in(open.stop_token_ids, id) ||
        (!open.ignore_eos && is_in(model.info().eos_token_ids, id))) {
      break;
    }
  }
  return tokens;
}

class TargetFixture {
 public:
  explicit TargetFixture(
      nacre::testing::TableModelOptions model_options = {},
      worker::StepBudget budget = {},
      worker::TensorPublisher* tensors = nullptr,
      worker::FeatureFile* features = nullptr, bool gate_timeouts = true,
      int64_t suffix_cache_bytes = 0,
      const std::function<void(TargetEngine::Options*)>& change = nullptr)
      : model(std::move(model_options)) {
    TargetEngine::Options options;
    options.model = &model;
    options.now_ns = [this] { return now_ns += 10; };
    options.budget = budget;
    options.tensors = tensors;
    options.features = features;
    options.gate_timeouts = gate_timeouts;
    options.suffix_cache_bytes = suffix_cache_bytes;
    options.send = [this](worker::StreamId stream, TargetEvents events) {
      Record(stream, events);
    };
    if (change) change(&options);
    engine = std::make_unique<TargetEngine>(std::move(options));
  }

  // Steps until nothing is ready; returns what the last call said.
  worker::StepOutcome Drain() {
    while (true) {
      const absl::StatusOr<worker::StepOutcome> outcome = engine->RunOnce();
      if (!outcome.ok() || !outcome->stepped) {
        return outcome.value_or(worker::StepOutcome());
      }
    }
  }

  void Open(OpenTarget open, worker::StreamId stream = 1) {
    tokens[open.session_id].assign(
        open.token_ids.begin(), open.token_ids.begin() + open.token_ids.size());
    TargetCommands commands;
    commands.stream = stream;
    commands.open.push_back(std::move(open));
    engine->Push(std::move(commands));
  }

  void Acknowledge(uint64_t session_id, worker::StreamId stream = 1) {
    TargetCommands commands;
    commands.stream = stream;
    commands.acknowledged.push_back(
        {session_id, static_cast<int>(tokens[session_id].size())});
    engine->Push(std::move(commands));
  }

  // Until the session has finished or failed.
  void RunToEnd(uint64_t session_id) {
    while (finish[session_id] == speculation::FinishReason::kNone &&
           failures.count(session_id) == 0) {
      Acknowledge(session_id);
      Drain();
    }
  }

  // Session 1 to its end, beside a draft of epoch 1 that comes and goes: after
  // most steps it sends up to four tokens of what the target will have `said`,
  // some of them wrong. An assertion fails where a step does.
  void RunWithTails(const std::vector<int32_t>& said, std::mt19937_64& random) {
    while (finish[1] == speculation::FinishReason::kNone) {
      Acknowledge(1);
      ASSERT_TRUE(engine->RunOnce().ok());
      const size_t length = tokens[1].size();
      if (random() % 3 == 0 || length >= said.size()) continue;
      speculation::Tail tail;
      tail.epoch = 1;
      tail.base_length = tail.first_position = static_cast<int>(length);
      for (size_t i = length; i < length + 1 + random() % 4 && i < said.size();
           ++i) {
        tail.token_ids.push_back(
            random() % 6 == 0 ? static_cast<int32_t>(random() % 16) : said[i]);
      }
      TargetCommands commands;
      commands.stream = 1;
      commands.tails.push_back({1, std::move(tail)});
      engine->Push(std::move(commands));
    }
  }

  int64_t now_ns = 1000;
  nacre::testing::TableModel model;
  std::unique_ptr<TargetEngine> engine;

  // What the engine has said.
  std::map<uint64_t, std::vector<int32_t>> tokens;  // committed, by session
  std::map<uint64_t, speculation::FinishReason> finish;
  std::map<uint64_t, absl::Status> failures;
  std::vector<uint64_t> opened;
  int cached_tokens = 0;  // of all opened
  std::vector<uint64_t> closed;
  std::vector<wire::Span> spans;
  std::vector<speculation::Verdict> verdicts;
  std::map<uint64_t, std::vector<TokenLogprobs>> logprobs;
  std::map<uint64_t, std::vector<wire::PromptLogprobs>> of_prompts;
  int num_messages = 0;

 private:
  void Record(worker::StreamId, const TargetEvents& events) {
    ++num_messages;
    for (const wire::PromptLogprobs& told : events.prompt_logprobs) {
      NACRE_CHECK(logprobs.count(told.session_id) == 0,
                  "the prompt's come before the first verdict");
      of_prompts[told.session_id].push_back(told);
    }
    for (const auto& [id, verdict, logprobs] : events.verdicts) {
      // Contiguous: nothing repeated, nothing missing.
      NACRE_CHECK(verdict.base_length == static_cast<int>(tokens[id].size()),
                  "verdicts are contiguous");
      tokens[id].insert(tokens[id].end(), verdict.token_ids.begin(),
                        verdict.token_ids.end());
      finish[id] = verdict.finish;
      verdicts.push_back(verdict);
      this->logprobs[id].insert(this->logprobs[id].end(), logprobs.begin(),
                                logprobs.end());
    }
    for (const auto& failure : events.common.failures) {
      failures[failure.session_id] = failure.status;
    }
    const wire::SessionEvents& common = events.common;
    for (const auto& opening : common.opened) {
      opened.push_back(opening.session_id);
      cached_tokens += opening.cached_tokens;
    }
    closed.insert(closed.end(), common.closed.begin(), common.closed.end());
    spans.insert(spans.end(), common.spans.begin(), common.spans.end());
  }
};

inline OpenTarget MakeOpen(uint64_t session_id, std::vector<int32_t> prompt,
                           int max_tokens) {
  OpenTarget open;
  open.session_id = session_id;
  open.prompt_length = static_cast<int>(prompt.size());
  open.token_ids = std::move(prompt);
  open.max_tokens = max_tokens;
  return open;
}

// `length` ids below 16, a function of the seed.
inline std::vector<int32_t> Prompt(int length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 16);
  return prompt;
}

}  // namespace nacre::target_worker

#endif  // TESTS_TARGET_WORKER_TARGET_FIXTURE_H_
