// Sessions that begin alike at the same time, under the real engines and the
// bundled pair: what they have in common is computed about once, whichever of
// them goes, and the tokens are those of each alone.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft_worker/draft_engine.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "target_worker/target_engine.h"
#include "tests/testing/in_process_pair.h"

namespace nacre::worker {
namespace {

using model::LanguageModel;
using nacre::testing::GenerateAlone;
using nacre::testing::PairRequest;

constexpr int kSharedBlock = 16;
constexpr int kMaxTokens = 6;

// By the type of keys and values.
class PrefixSharingTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanguageModel> Load(const char* name, bool prefix_cache,
                                      int64_t kv_bytes = 64 << 20) {
    model::ModelOptions options;
    options.kv_cache_bytes = kv_bytes;
    options.prefix_cache = prefix_cache;
    auto model = LoadModel(std::string(NACRE_MODELS "/") + name, backend_.get(),
                           options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  static std::vector<int32_t> Prompt(int length, int kind = 0) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(300 + i * 7 + kind);
    return prompt;
  }

  std::unique_ptr<kernels::Backend> backend_ =
      *kernels::CreateBackend({.kv_type = GetParam()});
};
INSTANTIATE_TEST_SUITE_P(KvTypes, PrefixSharingTest,
                         ::testing::Values("f32", "bf16", "int8"),
                         [](const auto& info) { return info.param; });

// What one engine has said of its sessions, and done for them.
struct Told {
  std::map<uint64_t, std::vector<int32_t>> output;
  std::map<uint64_t, int> cached;
  std::map<uint64_t, int> prefilled;  // rows
  std::map<uint64_t, absl::Status> failures;

  void Take(const wire::SessionEvents& events) {
    for (const auto& opening : events.opened) {
      cached[opening.session_id] += opening.cached_tokens;
    }
    for (const auto& more : events.cached) {
      cached[more.session_id] += more.tokens;
    }
    for (const auto& failure : events.failures) {
      failures[failure.session_id] = failure.status;
    }
    for (const wire::Span& span : events.spans) {
      if (span.kind == wire::Span::Kind::kPrefill) {
        prefilled[span.session_id] += span.rows;
      }
    }
  }
  int all_prefilled() const {
    int sum = 0;
    for (const auto& [id, rows] : prefilled) sum += rows;
    return sum;
  }
};

class Target {
 public:
  Target(model::LanguageModel* model, StepBudget budget)
      : engine_({.model = model,
                 .send =
                     [this](StreamId, target_worker::TargetEvents events) {
                       for (const auto& each : events.verdicts) {
                         auto& output = told.output[each.session_id];
                         const auto& ids = each.verdict.token_ids;
                         output.insert(output.end(), ids.begin(), ids.end());
                       }
                       told.Take(events.common);
                     },
                 .now_ns = [this] { return now_ns_ += 10; },
                 .budget = budget}) {}

  static target_worker::OpenTarget Opening(uint64_t id,
                                           const PairRequest& request) {
    target_worker::OpenTarget open;
    open.session_id = id;
    open.token_ids = request.prompt;
    open.prompt_length = static_cast<int>(request.prompt.size());
    open.max_tokens = request.max_tokens;
    open.sampling = request.sampling;
    return open;
  }
  void Push(wire::TargetCommands message) {
    engine_.Push({std::move(message), /*stream=*/1});
  }
  bool Step() {
    const auto outcome = engine_.RunOnce();
    NACRE_CHECK(outcome.ok(), "the target failed");
    return outcome->stepped;
  }
  void Run() {
    while (Step()) {
    }
  }
  EngineStats stats() const { return engine_.stats(); }

  Told told;

 private:
  int64_t now_ns_ = 1;
  target_worker::TargetEngine engine_;
};

// Choices 1 to n of one prompt, as a request with n > 1 has them.
std::map<uint64_t, PairRequest> Choices(const std::vector<int32_t>& prompt,
                                        int n) {
  std::map<uint64_t, PairRequest> choices;
  for (int i = 1; i <= n; ++i) {
    PairRequest request;
    request.prompt = prompt;
    request.max_tokens = kMaxTokens;
    request.sampling.temperature = 0.9f;
    request.sampling.seed = static_cast<uint64_t>(i);
    choices[static_cast<uint64_t>(i)] = request;
  }
  return choices;
}

target_worker::TargetCommands OpenAll(
    const std::map<uint64_t, PairRequest>& choices) {
  target_worker::TargetCommands commands;
  for (const auto& [id, request] : choices) {
    commands.open.push_back(Target::Opening(id, request));
  }
  return commands;
}

TEST_P(PrefixSharingTest, ChoicesOfAColdPromptCostAboutOnePrefill) {
  const auto plain = Load("target", false);
  const std::vector<int32_t> prompt = Prompt(6 * kSharedBlock + 5);
  const int rows = static_cast<int>(prompt.size()) - 1;
  const auto choices = Choices(prompt, 4);
  for (const StepBudget& budget :
       {StepBudget{}, StepBudget{.max_rows = 24, .prefill_chunk = 24},
        StepBudget{.max_rows = 7, .prefill_chunk = 3}}) {
    SCOPED_TRACE(budget.max_rows);
    for (const bool cache : {true, false}) {
      const auto model = Load("target", cache);
      const int64_t free = model->kv_free_tokens();
      Target target(model.get(), budget);
      target.Push(OpenAll(choices));
      target.Run();
      for (const auto& [id, request] : choices) {
        EXPECT_EQ(target.told.output[id], GenerateAlone(*plain, request)) << id;
        EXPECT_EQ(target.told.cached[id] + target.told.prefilled[id], rows);
      }
      // The oldest computes all, the others what is no full block.
      EXPECT_EQ(target.told.all_prefilled(),
                cache ? rows + 3 * (rows % kSharedBlock) : 4 * rows);
      EXPECT_EQ(target.stats().prefix_hits,
                cache ? 3u * 6u * static_cast<unsigned>(kSharedBlock) : 0u);
      target.Push({.close = {1, 2, 3, 4}});
      target.Run();
      EXPECT_EQ(model->kv_free_tokens(), free);
    }
  }
}

// At any step of its prefill: the next one goes on where it was.
TEST_P(PrefixSharingTest, WhenTheOneThatComputesGoesTheOthersLoseNothing) {
  const auto plain = Load("target", false);
  const std::vector<int32_t> prompt = Prompt(5 * kSharedBlock + 3);
  const int rows = static_cast<int>(prompt.size()) - 1;
  const auto choices = Choices(prompt, 3);
  for (int steps = 0; steps <= 5; ++steps) {
    SCOPED_TRACE(steps);
    const auto model = Load("target", true);
    const int64_t free = model->kv_free_tokens();
    Target target(model.get(), {.max_rows = 20, .prefill_chunk = 20});
    target.Push(OpenAll(choices));
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(target.Step());
    target.Push({.close = {1}});
    target.Run();
    for (const uint64_t id : {2, 3}) {
      EXPECT_EQ(target.told.output[id], GenerateAlone(*plain, choices.at(id)));
      EXPECT_EQ(target.told.cached[id] + target.told.prefilled[id], rows);
    }
    // Once, but for what was no full block when the first one went.
    EXPECT_LE(target.told.all_prefilled(), rows + 2 * kSharedBlock);
    target.Push({.close = {2, 3}});
    target.Run();
    EXPECT_EQ(model->kv_free_tokens(), free);
  }
}

// The first one goes and its blocks are evicted for another session before the
// second one takes them over.
TEST_P(PrefixSharingTest, WhatWasEvictedIsComputedAgain) {
  const auto plain = Load("target", false);
  const std::vector<int32_t> prompt = Prompt(3 * kSharedBlock + 3);
  const auto choices = Choices(prompt, 2);
  PairRequest other;
  other.prompt = Prompt(3 * kSharedBlock + 3, /*kind=*/1);
  other.max_tokens = kMaxTokens;
  // Room for two of them.
  constexpr int kBlocks = 4;
  const auto probe = Load("target", true);
  const int64_t bytes_per_token = (int64_t{64} << 20) / probe->kv_free_tokens();
  const auto model =
      Load("target", true, 2 * kBlocks * kSharedBlock * bytes_per_token);
  ASSERT_EQ(model->kv_free_tokens(), 2 * kBlocks * kSharedBlock);
  Target target(model.get(), {});
  target.Push(OpenAll(choices));
  ASSERT_TRUE(target.Step());
  EXPECT_GT(target.told.prefilled[1], 0);
  EXPECT_EQ(target.told.prefilled[2], 0);
  target.Push({.close = {1}});
  target.Push({.open = {Target::Opening(9, other)}});
  target.Run();
  EXPECT_TRUE(target.told.failures.empty());
  EXPECT_EQ(target.told.cached[2], 0);
  EXPECT_EQ(target.told.output[2], GenerateAlone(*plain, choices.at(2)));
  EXPECT_EQ(target.told.output[9], GenerateAlone(*plain, other));
}

// One that has begun on its own comes upon what another has computed.
TEST_P(PrefixSharingTest, AYoungerOneThatIsFasterHelpsTheOlder) {
  const auto plain = Load("target", false);
  const auto model = Load("target", true);
  // The first two differ from each other at once: both are computed.
  std::map<uint64_t, PairRequest> choices =
      Choices(Prompt(9 * kSharedBlock + 2), 3);
  choices[1].prompt = Prompt(9 * kSharedBlock + 2, /*kind=*/1);
  choices[3].prompt.resize(4 * kSharedBlock + 2);
  Target target(model.get(), {.max_rows = 40, .prefill_chunk = 40});
  target.Push(OpenAll(choices));
  target.Run();
  for (const auto& [id, request] : choices) {
    EXPECT_EQ(target.told.output[id], GenerateAlone(*plain, request)) << id;
    EXPECT_EQ(target.told.cached[id] + target.told.prefilled[id],
              static_cast<int>(request.prompt.size()) - 1);
  }
  EXPECT_EQ(target.told.cached[1], 0);
  EXPECT_GE(target.told.cached[2] + target.told.cached[3], 4 * kSharedBlock);
}

// As after the loss of a target: another computes at once what was computed row
// by row, and goes on where that one was.
TEST_P(PrefixSharingTest, AReopenedSessionGoesOnWithTheSameTokens) {
  const auto plain = Load("target", false);
  const auto requests = Choices(Prompt(4 * kSharedBlock + 1), 1);
  const PairRequest& request = requests.at(1);
  const std::vector<int32_t> whole = GenerateAlone(*plain, request);
  const auto model = Load("target", true);
  for (size_t emitted = 1; emitted < whole.size(); ++emitted) {
    Target target(model.get(), {.max_rows = 19, .prefill_chunk = 19});
    target_worker::OpenTarget open = Target::Opening(1, request);
    open.token_ids.insert(open.token_ids.end(), whole.begin(),
                          whole.begin() + emitted);
    target.Push({.open = {open}});
    target.Run();
    EXPECT_EQ(target.told.output[1],
              std::vector<int32_t>(whole.begin() + emitted, whole.end()))
        << emitted;
    target.Push({.close = {1}});
    target.Run();
  }
}

TEST_P(PrefixSharingTest, DraftsComputeACommonPromptOnceToo) {
  const std::vector<int32_t> prompt = Prompt(6 * kSharedBlock + 5);
  const int rows = static_cast<int>(prompt.size()) - 1;
  std::map<bool, std::map<uint64_t, std::vector<int32_t>>> drafted;
  for (const bool cache : {true, false}) {
    const auto model = Load("draft", cache);
    Told told;
    int64_t now_ns = 1;
    draft_worker::DraftEngine engine(
        {.model = model.get(),
         .send =
             [&](StreamId, draft_worker::DraftEvents events) {
               for (const auto& [id, tail] : events.tails) {
                 auto& ids = drafted[cache][id];
                 ids.insert(ids.end(), tail.token_ids.begin(),
                            tail.token_ids.end());
               }
               told.Take(events.common);
             },
         .now_ns = [&] { return now_ns += 10; },
         .budget = {.max_rows = 24, .prefill_chunk = 24}});
    draft_worker::DraftCommands commands;
    commands.stream = 1;
    for (uint64_t id = 1; id <= 4; ++id) {
      draft_worker::OpenDraft open;
      open.session_id = id;
      open.token_ids = prompt;
      open.prompt_length = static_cast<int>(prompt.size());
      open.max_length = open.prompt_length + kMaxTokens;
      open.sampling.temperature = 0.9f;
      open.sampling.seed = id;
      open.plan = {4, 4};
      commands.open.push_back(std::move(open));
    }
    engine.Push(std::move(commands));
    while (engine.RunOnce()->stepped) {
    }
    for (uint64_t id = 1; id <= 4; ++id) {
      EXPECT_EQ(drafted[cache][id].size(), 4u);
      // What is less than a block shares a forward with the first token.
      EXPECT_GE(told.cached[id] + told.prefilled[id],
                cache ? 6 * kSharedBlock : rows);
    }
    EXPECT_LE(told.all_prefilled(), cache ? rows + 3 * kSharedBlock : 4 * rows);
    EXPECT_EQ(engine.stats().prefix_hits, cache ? 3u * 6u * 16u : 0u);
  }
  EXPECT_EQ(drafted[true], drafted[false]);
}

}  // namespace
}  // namespace nacre::worker
