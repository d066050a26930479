// Lets drafts read the target's hidden states. Of each session whose channel
// has readers: the state of the row that gave its last committed token.
//
// The engine's thread.

#ifndef TARGET_WORKER_HIDDEN_PUBLISHER_H_
#define TARGET_WORKER_HIDDEN_PUBLISHER_H_

#include "worker/engine/step_tap.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

class HiddenPublisher final : public worker::StepTap {
 public:
  // `tensors` outlives it.
  explicit HiddenPublisher(worker::TensorPublisher* tensors)
      : tensors_(tensors) {}

  Rows ReadsHidden(const worker::TapSession& session) const override;
  void OnRows(const worker::TapSession& session,
              const worker::TapRows& rows) override;

 private:
  worker::TensorPublisher* const tensors_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_HIDDEN_PUBLISHER_H_
