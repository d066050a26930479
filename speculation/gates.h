// The gates of `async` where messages take time: how many tail tokens the
// target waits for after a mismatch, and in flow. The closed law (law.h) knows
// the first only, and a flow that the draft fills. With latency the first steps
// after a mismatch find few tokens. A short wait for those under way can save a
// step that would commit one token.
//
// Pure functions. alpha is clamped to [0.01, 0.99]; c must be > 0.

#ifndef SPECULATION_GATES_H_
#define SPECULATION_GATES_H_

namespace nacre::speculation {

struct Gates {
  int after_mismatch = 0;
  int in_flow = 0;
  bool operator==(const Gates&) const = default;
};

struct GateInputs {
  double alpha = 0.7;
  double cost_ratio = 5.0;
  int window = 0;  // the most tail tokens of a step
  // From a verdict to the arrival of the first token drafted upon it, beyond
  // T_draft, in T_target.
  double round_trip = 0.0;
};

// Speed-up over autoregressive decoding: follows the steps from one mismatch to
// the next, the draft making a token every T_draft from the verdict on.
double GatedSpeedup(const GateInputs& inputs, const Gates& gates);

// Those with the highest GatedSpeedup within the window; a gate that gains less
// than half a percent is not taken.
Gates BestGates(const GateInputs& inputs);

}  // namespace nacre::speculation

#endif  // SPECULATION_GATES_H_
