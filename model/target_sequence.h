// How a draft reads what a target computes that runs elsewhere: keys and values
// (GliDe), or features (EAGLE), a row for each position.
//
// The thread of the draft's model.

#ifndef MODEL_TARGET_SEQUENCE_H_
#define MODEL_TARGET_SEQUENCE_H_

#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace nacre::model {

// What a row has.
struct TargetRowShape {
  // Keys and values of the target's last layers, as they are kept, in the
  // target's order.
  int num_layers = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;
  // In place of these: features, projected at the target as this draft does
  // it. 0: keys and values.
  int num_features = 0;

  bool is_features() const { return num_features > 0; }
  // Numbers of a position. Of keys and values: each layer's key of all heads,
  // turned by its position, then its value.
  int row_size() const {
    return is_features() ? num_features
                         : num_layers * 2 * num_key_value_heads * head_dim;
  }
  bool operator==(const TargetRowShape&) const = default;
};

// What there is of the target's rows of one text: of positions 0..length()-1.
// Of features the first ones may be lost. Must not outlive the draft's model.
class TargetSequence {
 public:
  virtual ~TargetSequence() = default;
  virtual int length() const = 0;
  // Whether there is none at all.
  virtual bool empty() const { return length() == 0; }
  // Of the next positions; what passes the reserved length is left out.
  //                                            rows [any, shape.row_size()]
  virtual void Append(absl::Span<const float> rows) = 0;
  // Those of positions length() to `position` - 1 will never come, and the next
  // are of `position`. False: the draft cannot go on so, and nothing changed.
  virtual bool SkipTo(int position) { return position == length(); }
};

// The part of a model that takes them. With less of them than the text has it
// says what it would say of less, never nonsense.
class RowReader {
 public:
  static constexpr int kAnyLag = std::numeric_limits<int>::max();

  virtual ~RowReader() = default;
  virtual const TargetRowShape& shape() const = 0;
  // Of features: the fingerprint of the draft that they are projected for.
  virtual std::string draft_fingerprint() const { return ""; }
  // How many tokens it can say after the one that its newest row is of. Below
  // kAnyLag it reads the rows of its own text alone, a token those before it,
  // and what it is fed beyond the rows it is fed one at a time.
  virtual int max_lag() const { return kAnyLag; }
  // Room for so many positions. RESOURCE_EXHAUSTED where there is none.
  virtual absl::StatusOr<std::unique_ptr<TargetSequence>> NewTargetSequence(
      int max_length) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_TARGET_SEQUENCE_H_
