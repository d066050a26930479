// What the engines do about logits that no sound forward gives (NaN, +inf, or
// no finite one). The session fails, so that it goes on elsewhere, and its KV
// of that step is not shared. Where that happens step after step, either the
// device computes wrongly or a client sends the same bad prompt again and
// again. A canary tells them apart: only if it fails, the worker is to get no
// more sessions.
//
// The engine's thread.

#ifndef WORKER_ENGINE_SOUNDNESS_H_
#define WORKER_ENGINE_SOUNDNESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "model/language_model.h"
#include "worker/engine/canary.h"
#include "worker/engine/engine.h"

namespace nacre::worker {

// INTERNAL: what a session fails with whose logits after `num_tokens` tokens
// are unsound.
absl::Status UnsoundLogits(int num_tokens);

class Soundness {
 public:
  // Steps in a row in which no session had sound logits, before the canary is
  // asked.
  static constexpr int kMaxUnsoundSteps = 3;

  // `model` outlives it. Null: there is no canary; unsound steps are counted.
  explicit Soundness(model::LanguageModel* model) {
    if (model != nullptr) canary_.emplace(model);
  }

  // Before the first step: what the canary says while the device is known to be
  // well. DATA_LOSS if it is not; errors of Canary::Ask.
  absl::Status Remember();

  // One session of the running step.
  void Add(bool is_sound) { ++(is_sound ? sound_in_step_ : unsound_in_step_); }
  void EndStep();
  // After the step, when its outputs are of no more use: asks the canary if
  // there is reason to. The error is the device's.
  absl::Status Judge();

  void FillStats(EngineStats* stats) const {
    stats->nonfinite_logits = unsound_;
    stats->computes_wrongly = computes_wrongly_;
  }

 private:
  absl::optional<Canary> canary_;
  int sound_in_step_ = 0;
  int unsound_in_step_ = 0;
  int unsound_steps_ = 0;          // in a row
  bool computes_wrongly_ = false;  // for good
  uint64_t unsound_ = 0;           // of all sessions
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SOUNDNESS_H_
