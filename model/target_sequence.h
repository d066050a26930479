// How a draft reads keys and values of a target that runs elsewhere.
//
// The thread of the draft's model.

#ifndef MODEL_TARGET_SEQUENCE_H_
#define MODEL_TARGET_SEQUENCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace nacre::model {

// What a draft reads of a target that runs elsewhere: keys and values of its
// last layers, as they are kept.
struct TargetRowShape {
  int num_layers = 0;  // the target's last ones, in the target's order
  int num_key_value_heads = 0;
  int head_dim = 0;

  // Of a position: each layer's key of all heads, turned by its position, then
  // its value.
  int row_size() const {
    return num_layers * 2 * num_key_value_heads * head_dim;
  }
  bool operator==(const TargetRowShape&) const = default;
};

// What there is of the target's keys and values of one text: its positions
// 0..length()-1. Must not outlive the draft's model.
class TargetSequence {
 public:
  virtual ~TargetSequence() = default;
  virtual int length() const = 0;
  // Of the next positions; what passes the reserved length is left out.
  //                                            rows [any, shape.row_size()]
  virtual void Append(absl::Span<const float> rows) = 0;
};

// The part of a model that takes them. With less of them than the text has it
// says what it would say of less, never nonsense.
class RowReader {
 public:
  virtual ~RowReader() = default;
  virtual const TargetRowShape& shape() const = 0;
  // Room for so many positions. RESOURCE_EXHAUSTED where there is none.
  virtual absl::StatusOr<std::unique_ptr<TargetSequence>> NewTargetSequence(
      int max_length) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_TARGET_SEQUENCE_H_
