// What a forward brings to the host: the logits of the rows that want them, and
// the tokens of those that the device draws from.
//
// Used in the order of its methods, once a forward: one Plan, then the others.
// Thread-compatible, as the backend, which outlives it.

#ifndef MODEL_HEAD_OUTPUTS_H_
#define MODEL_HEAD_OUTPUTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/token_drawer.h"
#include "model/language_model.h"
#include "model/queued_step.h"

namespace nacre::model {

class HeadOutputs {
 public:
  HeadOutputs(kernels::Backend* backend, int vocab_size)
      : backend_(backend), vocab_size_(static_cast<size_t>(vocab_size)) {}
  ~HeadOutputs();
  HeadOutputs(const HeadOutputs&) = delete;
  HeadOutputs& operator=(const HeadOutputs&) = delete;

  // Takes in which rows want what, and makes room. RESOURCE_EXHAUSTED. Fatal:
  // draws of a backend that draws none, or not one for each row.
  absl::Status Plan(absl::Span<const SequenceRows> batch);
  // The same of a step whose rows are all drawn from.
  absl::Status Plan(absl::Span<const QueuedStep::Row> rows);

  // What Queue will draw.
  absl::Span<const kernels::RowDraw> draws() const { return draws_; }
  // Queues the draws and the copies.   logits [logit rows, vocab_size], the
  // device's
  void Queue(const float* logits);

  // The tokens where they are drawn [draws], for what is queued after Queue
  // and before the next Plan.
  const int32_t* device_ids() const {
    return static_cast<const int32_t*>(device_ids_->data());
  }

  // Valid once what Queue queued was waited for, until the next Plan.
  absl::Span<const float> logits() const;
  absl::Span<const int32_t> drawn_tokens() const;

 private:
  // Rows, one after the other, whose logits are copied.
  struct Run {
    size_t first = 0;
    size_t count = 0;
  };

  absl::Status MakeRoom();

  kernels::Backend* const backend_;
  const size_t vocab_size_;
  std::vector<kernels::RowDraw> draws_;
  std::vector<Run> runs_;
  size_t num_copied_ = 0;                         // rows
  std::unique_ptr<kernels::Buffer> device_ids_;   // [draws]
  std::unique_ptr<kernels::Buffer> host_ids_;     // [draws]
  std::unique_ptr<kernels::Buffer> host_logits_;  // [rows, vocab_size]
};

}  // namespace nacre::model

#endif  // MODEL_HEAD_OUTPUTS_H_
