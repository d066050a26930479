// Any bytes as the messages of two coordinators to one worker: its engine, over
// a table model, must survive them, keep its word about the sessions it has
// accepted, and have all of its KV back when both streams have ended.

#ifndef TESTS_FUZZ_WORKER_STREAM_H_
#define TESTS_FUZZ_WORKER_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "tests/fuzz/chunks.h"
#include "tests/testing/table_model.h"
#include "wire/session_codec.h"
#include "worker/engine/engine.h"

namespace nacre::fuzz {

inline constexpr uint64_t kStreams = 2;
inline constexpr int kMaxSteps = 4096;

inline testing::TableModelOptions SmallModel() {
  testing::TableModelOptions options;
  options.context_length = 128;
  options.kv_capacity_tokens = 512;
  options.eos_token_ids = {3};
  return options;
}

// Runs up to `steps` steps, jumping to the time that an idle engine waits for.
// Whether it is idle.
inline bool RunSteps(worker::Engine* engine, int steps, int64_t* now_ns) {
  for (int i = 0; i < steps; ++i) {
    const absl::StatusOr<worker::StepOutcome> outcome = engine->RunOnce();
    NACRE_CHECK(outcome.ok(), outcome.status().ToString().c_str());
    if (outcome->stepped) continue;
    if (!outcome->deadline_ns.has_value()) return true;
    *now_ns = std::max(*now_ns, *outcome->deadline_ns);
  }
  return false;
}

// `Control` is the protobuf message of one direction, `Commands` what the
// engine takes of it.
//   op: bit 0 the stream, bits 1-3 all set: the stream ends, else a message;
//   bits 4-7: steps that follow.
template <typename Control, typename Commands, typename Engine>
void FeedWorker(const uint8_t* data, size_t size, testing::TableModel* model,
                Engine* engine, int64_t* now_ns) {
  ChunkReader reader(data, size);
  Chunk chunk;
  while (reader.Next(&chunk)) {
    const uint64_t stream = 1 + chunk.op % kStreams;
    if ((chunk.op >> 1) % 8 == 7) {
      Commands end;
      end.stream = stream;
      end.stream_ended = true;
      engine->Push(std::move(end));
    } else {
      Control control;
      if (!ChunkReader::Parse(chunk, &control)) continue;
      Commands commands;
      static_cast<decltype(wire::Decode(control))&>(commands) =
          wire::Decode(control);
      commands.stream = stream;
      engine->Push(std::move(commands));
    }
    RunSteps(engine, chunk.op >> 4, now_ns);
  }
  for (uint64_t stream = 1; stream <= kStreams; ++stream) {
    Commands end;
    end.stream = stream;
    end.stream_ended = true;
    engine->Push(std::move(end));
  }
  NACRE_CHECK(RunSteps(engine, kMaxSteps, now_ns), "the engine never rests");
  NACRE_CHECK(engine->stats().sessions == 0, "a session outlives its stream");
  NACRE_CHECK(model->kv_free_tokens() == model->info().kv_capacity_tokens,
              "KV is lost");
}

}  // namespace nacre::fuzz

#endif  // TESTS_FUZZ_WORKER_STREAM_H_
