// Closed laws of overlapped speculation under independent acceptance. A token
// is accepted with probability alpha. The draft makes one in T_draft, a target
// step takes T_target; cost_ratio c = T_target / T_draft. They choose windows
// and gates and stand beside every measurement. Derivations: PEARL (Liu et al.,
// arXiv:2408.11850, section 3 and its Theorem 2, which is off by one),
// Leviathan et al. (arXiv:2211.17192, eq. 1), and docs/scheduling.md.
//
// Pure functions. alpha is clamped to [0.01, 0.99]; c must be > 0.

#ifndef SPECULATION_LAW_H_
#define SPECULATION_LAW_H_

#include <functional>

namespace nacre::speculation {

double ClampAlpha(double alpha);

// Tokens a verification of `window` tail tokens commits on average, its own
// included: (1 - alpha^(window + 1)) / (1 - alpha).
double ExpectedCommitted(double alpha, int window);

// Speed-up over autoregressive decoding.
double SdSpeedup(double alpha, double cost_ratio, int window);
double PearlSpeedup(double alpha, double cost_ratio, int window);

// What a step commits, and its rows, on average over all steps. The step never
// waits and takes at most `window` tail tokens. In flow the draft has them
// there, right after a mismatch it has none.
double OverlappedCommitted(double alpha, int window);
double OverlappedRows(double alpha, int window);
// Streaming draft, target waits for `gate` tokens after a mismatch.
// `round_trip` is the time from a verdict to the arrival of the first token
// drafted upon it beyond T_draft, in T_target. A wait pays it, a step at once
// hides it.
double AsyncSpeedup(double alpha, double cost_ratio, int gate,
                    double round_trip = 0.0);

// The same with branches: the draft's target steps beside it `cost_ratio`,
// which counts all rows of a draft's step. `caught` of the mismatches go on
// where a branch was prepared, about cost_ratio tokens deep, without a wait.
double BranchSpeedup(double alpha, double cost_ratio, double caught, int gate,
                     double round_trip = 0.0);
// P(a mismatch has a prepared branch) where a step of the draft expands so many
// branches, as measured on a distilled pair: 1 - 0.75 / sqrt(branches). `next`:
// P(the target's token is among the draft's next three | its first was not) of
// this pair, 0.69 there.
double CaughtByBranches(int branches, double next);

// The window in 1..max_window with the highest SdSpeedup.
int BestSdWindow(double alpha, double cost_ratio, int max_window);

// round(c), at least 1: PEARL's optimum.
int PearlWindow(double cost_ratio, int max_window);

// w*: how many tokens `async` waits for after a mismatch, in 0..max_gate: the
// gate with the highest AsyncSpeedup. Its derivative is zero at
// ln((1 - alpha^c) / (-c ln alpha)) / ln alpha - 1. (The factor 1 - alpha^c is
// near 1 only where c is large. Without it the gate comes out too low: 0
// instead of 4 at alpha 0.9, c 10.)
int BestGate(double alpha, double cost_ratio, int max_gate,
             double round_trip = 0.0);

// m*: the most tail tokens worth verifying in one step, the m in 0..max_window
// with the highest ExpectedCommitted / step_time(m + 1). `step_time(rows)` is
// the time of a step with that many rows, any unit, > 0.
int BestWindow(double alpha, int max_window,
               const std::function<double(int rows)>& step_time);

}  // namespace nacre::speculation

#endif  // SPECULATION_LAW_H_
