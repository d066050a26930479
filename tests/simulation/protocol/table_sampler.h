// Draws after a growing sequence of tokens, by a table and as a request asks:
// what an engine has to do for it, without the engine.
//
// Thread-compatible.

#ifndef TESTS_SIMULATION_PROTOCOL_TABLE_SAMPLER_H_
#define TESTS_SIMULATION_PROTOCOL_TABLE_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "coordinator/dispatch/request.h"
#include "model/sampler.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {

class TableSampler {
 public:
  // `table` outlives it.
  TableSampler(const LogitTable* table,
               const coordinator::RequestSpec& request);

  void Push(int32_t token_id);

  // For the position after what was pushed: the token drawn with the request's
  // noise, and the law of it.
  int32_t Sample();
  const model::TokenWeights& Weights();
  // What a draft ranks for that position, the best first: by the request's
  // noise, and by the table alone.
  std::vector<int32_t> Ranked();
  // Likewise of other logits; empty: none is possible.
  std::vector<int32_t> RankedOf(absl::Span<const float> logits);
  std::vector<int32_t> Likeliest() const;
  // Whether that law gives the token a probability at all.
  bool CanDraw(int32_t token_id);

 private:
  absl::Span<const float> Row() const { return table_->Row(before_, last_); }

  const LogitTable* table_;
  model::Sampler sampler_;
  model::TokenHistory history_;
  model::TokenWeights weights_;  // none: not asked for yet
  int32_t before_ = -1;
  int32_t last_ = -1;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_TABLE_SAMPLER_H_
