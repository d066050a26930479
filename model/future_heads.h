// Heads beside a model's own that see one hidden state and guess several tokens
// ahead: the model's head says the next token from it, head 0 the one after
// that, head 1 the one after, and so on (Medusa, arXiv:2401.10774).
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
