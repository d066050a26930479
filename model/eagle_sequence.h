// What an EAGLE draft keeps of one text: keys and values of its rows, and what
// its layer gave for those that others may build on. Of the text those are the
// last kKeptRows rows that had logits; of slots all.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_EAGLE_SEQUENCE_H_
#define MODEL_EAGLE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/feature_step.h"
#include "model/kv_pool.h"

namespace nacre::model {

class EagleSequence final : public OwnKvSequence {
 public:
  static constexpr size_t kKeptRows = 64;

  EagleSequence(std::unique_ptr<KvSequence> kv, size_t hidden_size);

  // [hidden_size]; zeros where it is not known. Of a row of the text, or of the
  // node in a slot.
  const float* TextOutput(int row) const;
  const float* SlotOutput(int32_t slot) const {
    return slots_.data() + static_cast<size_t>(slot) * hidden_size_;
  }
  void KeepTextOutput(int row, const float* output);
  void KeepSlotOutput(int32_t slot, const float* output);

  // As of model::Sequence, in rows.
  void Clear() override { Truncate(0); }
  void Truncate(int length);
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots);

 private:
  const size_t hidden_size_;
  const std::vector<float> zeros_;
  int first_row_ = 0;        // of text_
  std::vector<float> text_;  // rows one after the other
  std::vector<float> slots_;
};

}  // namespace nacre::model

#endif  // MODEL_EAGLE_SEQUENCE_H_
