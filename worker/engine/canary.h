// Tells a device that computes wrongly from tokens that make it compute no
// numbers. It is a forward over a fixed prompt of the worker's own, in a fresh
// sequence that shares nothing with others.
//
// The engine's thread, between steps: the logits of the last one are lost.

#ifndef WORKER_ENGINE_CANARY_H_
#define WORKER_ENGINE_CANARY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "model/language_model.h"

namespace nacre::worker {

class Canary {
 public:
  explicit Canary(model::LanguageModel* model) : model_(model) {}

  // Whether its logits are sound, and the same bits as when it was first asked;
  // of a model that draws tokens, also what that draws. Errors:
  // RESOURCE_EXHAUSTED (there was no room to ask), and what Forward says.
  absl::StatusOr<bool> Ask();

 private:
  model::LanguageModel* const model_;
  absl::optional<uint64_t> first_;  // a hash of what it said at first
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_CANARY_H_
