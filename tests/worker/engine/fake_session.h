// A session with KV of any length, for tests of an engine's parts.
//
// Owned by the test.

#ifndef TESTS_WORKER_ENGINE_FAKE_SESSION_H_
#define TESTS_WORKER_ENGINE_FAKE_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "model/language_model.h"
#include "worker/engine/engine_session.h"

namespace nacre::worker {

class FakeSequence final : public model::Sequence {
 public:
  FakeSequence(int length, int others_have)
      : length_(length), others_have_(others_have) {}

  int length() const override { return length_; }
  void Truncate(int length) override {
    if (length < length_) length_ = length;
  }
  // Half of it costs a copy for each four positions.
  model::TakenOver TakeOver(absl::Span<const int32_t>,
                            int most_blocks) override {
    const int wanted = others_have_ / 8;
    const int blocks = std::min(wanted, most_blocks);
    others_have_ -= 8 * blocks;
    length_ += 8 * blocks;
    return {8 * blocks, /*brought=*/4 * blocks, /*more=*/blocks < wanted,
            blocks};
  }

 private:
  int length_;
  int others_have_;
};

struct FakeSession : EngineSession {
  FakeSession(StreamId of, uint64_t number, int length = 0,
              int others_have = 0) {
    stream = of;
    id = number;
    sequence = std::make_unique<FakeSequence>(length, others_have);
  }
  int num_tokens() const override { return 100; }
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_ENGINE_FAKE_SESSION_H_
