// Heads beside a model's own (Medusa, arXiv:2401.10774). All see one hidden
// state. The model's head predicts the next token, head 0 the token after that,
// head 1 the token after head 0's, and so on.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_FUTURE_HEADS_H_
#define MODEL_FUTURE_HEADS_H_

#include "absl/types/span.h"

namespace nacre::model {

class FutureHeads {
 public:
  virtual ~FutureHeads() = default;

  // How many heads; each says one token.
  virtual int count() const = 0;

  // Most rows of a call: their logits are many.
  static constexpr int kMaxRows = 8;
  // What all heads say of hidden states after the model's final norm:
  // logits [count(), rows, vocab_size], valid until the next call. -inf: a
  // token that the heads never say. A row does not depend on the others.
  //                      hidden [rows, hidden_size], 1 to kMaxRows rows
  virtual absl::Span<const float> Run(absl::Span<const float> hidden) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_FUTURE_HEADS_H_
