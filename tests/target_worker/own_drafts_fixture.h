// What tests of the target's own drafts over its hidden states have in common.

#ifndef TESTS_TARGET_WORKER_OWN_DRAFTS_FIXTURE_H_
#define TESTS_TARGET_WORKER_OWN_DRAFTS_FIXTURE_H_

#include <cstdint>
#include <utility>

#include "target_worker/target_messages.h"
#include "tests/target_worker/target_fixture.h"
#include "tests/testing/table_model_options.h"

namespace nacre::target_worker {

// A row says where it stands only where no other has the same two tokens before
// it: with more tokens hardly any has.
inline nacre::testing::TableModelOptions ShowingModel(uint64_t seed,
                                                      int vocab_size = 16) {
  nacre::testing::TableModelOptions model;
  model.vocab_size = vocab_size;
  model.seed = seed;
  model.scale = seed % 2 == 0 ? 2.0f : 6.0f;
  model.shows_hidden = true;
  return model;
}

// A request that allows them.
inline OpenTarget OwnDraftsOpen(uint64_t id, uint64_t seed,
                                int max_tokens = 60) {
  OpenTarget open = MakeOpen(id, Prompt(12, 100 * seed + id), max_tokens);
  open.suffixes.emplace();
  open.sampling.seed = seed + id;
  return open;
}

// To its end, and closes it.
inline void RunAndClose(TargetFixture* fixture, uint64_t id) {
  fixture->RunToEnd(id);
  TargetCommands commands;
  commands.stream = 1;
  commands.close.push_back(id);
  fixture->engine->Push(std::move(commands));
  fixture->Drain();
}

inline constexpr float kOwnDraftsTemperatures[] = {0.0f, 0.8f, 1.0f};
// As many as nodes, fewer, and none: then they are chains.
inline constexpr int kOwnDraftsSlots[] = {64, 16, 3, 0};

}  // namespace nacre::target_worker

#endif  // TESTS_TARGET_WORKER_OWN_DRAFTS_FIXTURE_H_
