// How the target's taps are shown its hidden states: those of the rows that
// gave committed tokens, after the verdict that commits them.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_HIDDEN_TAPS_H_
#define TARGET_WORKER_HIDDEN_TAPS_H_

#include "model/language_model.h"
#include "worker/engine/step_tap.h"
#include "worker/recording/feature_file.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class HiddenTaps {
 public:
  // All outlive it. Null `tensors`: no draft reads any; null `features`:
  // nothing is recorded.
  HiddenTaps(model::LanguageModel* model, worker::TensorPublisher* tensors,
             worker::FeatureFile* features);

  // The model's hidden states are those of another step from now on.
  void BeginStep() { hidden_ = {}; }

  // That of a row to be shown when its step has ended; empty: it is not read.
  kernels::FloatView RowToHold(const EngineSession& session, int row);
  // After the verdict: those of the step's first rows, which have committed so
  // many tokens.
  void ShowStep(const EngineSession& session, int num_tokens, bool is_held);
  // Those that gave the last committed tokens.
  void ShowRows(const EngineSession& session, const kernels::FloatView& hidden,
                int num_tokens, bool is_held);

 private:
  kernels::FloatView HiddenRows(const EngineSession& session, int row,
                                int count);

  model::LanguageModel* const model_;
  worker::StepTaps taps_;
  kernels::FloatView hidden_;  // of all logits, once a tap reads them
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_HIDDEN_TAPS_H_
