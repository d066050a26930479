// What a step of an engine allocates: its messages, a few hundred bytes a
// session. The forward and the drawing of tokens allocate nothing
// (tests/model/decode_allocation_test.cc).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft_worker/draft_engine.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "target_worker/target_engine.h"
#include "tests/testing/allocation_counter.h"

namespace nacre::worker {
namespace {

using nacre::testing::Allocations;
using nacre::testing::AllocationsSoFar;

constexpr int kPromptLength = 40;
constexpr int kMaxTokens = 200;
constexpr int kSteps = 60;
constexpr int kSessions = 5;
// A verdict's or a tail's token ids for each session, and the growth of two
// lists of events for all of them.
constexpr int kMessageAllocations = kSessions + 2 * 4 + 1;
constexpr int kMessageBytes = kSessions * 600 + 1200;

std::vector<int32_t> Prompt(int session) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < kPromptLength; ++i) {
    prompt.push_back(300 + (i + session) * 7);
  }
  return prompt;
}

SamplingParams Sampling(int session) {
  SamplingParams sampling;
  sampling.temperature = session % 2 == 0 ? 0.0f : 0.9f;
  sampling.top_p = session == 3 ? 0.9f : 1.0f;
  sampling.repetition_penalty = session == 4 ? 1.2f : 1.0f;
  return sampling;
}

std::unique_ptr<model::LanguageModel> Load(const char* name,
                                           kernels::Backend* backend) {
  model::ModelOptions options;
  options.kv_cache_bytes = 64 << 20;
  options.prefix_cache = true;
  auto model =
      model::LoadModel(std::string(NACRE_MODELS "/") + name, backend, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// What RunOnce allocates once what is kept has grown.
template <class Engine, class Prepare>
void ExpectOnlyMessages(Engine& engine, const Prepare& prepare) {
  // Prompts, and the first steps.
  for (int i = 0; i < 8; ++i) {
    prepare();
    ASSERT_TRUE(engine.RunOnce().ok());
  }
  for (int i = 0; i < kSteps; ++i) {
    prepare();
    const Allocations before = AllocationsSoFar();
    const auto outcome = engine.RunOnce();
    const Allocations after = AllocationsSoFar();
    ASSERT_TRUE(outcome.ok() && outcome->stepped) << "step " << i;
    EXPECT_LE(after.count - before.count, kMessageAllocations) << "step " << i;
    EXPECT_LE(after.bytes - before.bytes, kMessageBytes) << "step " << i;
  }
}

TEST(EngineAllocationTest, AStepOfTheTargetAllocatesItsMessagesOnly) {
  if (!nacre::testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer";
  const auto backend = *kernels::CreateBackend({});
  const auto model = Load("target", backend.get());
  std::vector<int> lengths(kSessions, kPromptLength);
  target_worker::TargetEngine engine(
      {.model = model.get(),
       .send = [&](StreamId, const target_worker::TargetEvents& events) {
         for (const auto& each : events.verdicts) {
           lengths[each.session_id] +=
               static_cast<int>(each.verdict.token_ids.size());
         }
       }});
  target_worker::TargetCommands commands;
  commands.stream = 1;
  for (int i = 0; i < kSessions; ++i) {
    target_worker::OpenTarget open;
    open.session_id = static_cast<uint64_t>(i);
    open.token_ids = Prompt(i);
    open.prompt_length = kPromptLength;
    open.max_tokens = kMaxTokens;
    open.ignore_eos = true;
    open.sampling = Sampling(i);
    commands.open.push_back(std::move(open));
  }
  engine.Push(std::move(commands));
  ExpectOnlyMessages(engine, [&] {
    target_worker::TargetCommands acknowledge;
    acknowledge.stream = 1;
    for (int i = 0; i < kSessions; ++i) {
      acknowledge.acknowledged.push_back(
          {static_cast<uint64_t>(i), lengths[static_cast<size_t>(i)]});
    }
    engine.Push(std::move(acknowledge));
  });
}

TEST(EngineAllocationTest, AStepOfTheDraftAllocatesItsMessagesOnly) {
  if (!nacre::testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer";
  const auto backend = *kernels::CreateBackend({});
  const auto model = Load("draft", backend.get());
  draft_worker::DraftEngine engine(
      {.model = model.get(),
       .send = [](StreamId, const draft_worker::DraftEvents&) {}});
  draft_worker::DraftCommands commands;
  commands.stream = 1;
  for (int i = 0; i < kSessions; ++i) {
    draft_worker::OpenDraft open;
    open.session_id = static_cast<uint64_t>(i);
    open.token_ids = Prompt(i);
    open.prompt_length = kPromptLength;
    open.max_length = kPromptLength + kMaxTokens;
    open.sampling = Sampling(i);
    open.plan = {100, 100};  // no commit is needed to go on
    commands.open.push_back(std::move(open));
  }
  engine.Push(std::move(commands));
  ExpectOnlyMessages(engine, [] {});
}

}  // namespace
}  // namespace nacre::worker
