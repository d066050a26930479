// What a draft says of each position, the positions before it being right. It
// is decided by position alone, so that every method is tried on the same luck.
// No threads.

#ifndef SIMULATION_MATCH_SOURCE_H_
#define SIMULATION_MATCH_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "simulation/random.h"
#include "speculation/ranks.h"

namespace nacre::simulation {

// The draft's candidates for one position.
struct Guess {
  Guess() = default;
  // Whether the first is the target's token; nothing is known of others.
  // NOLINTNEXTLINE(google-explicit-constructor): traces once were of bools
  Guess(bool matches) : rank(matches ? 1 : speculation::kBeyond) {}
  Guess(int the_rank, std::vector<float> the_scores)
      : rank(the_rank), scores(std::move(the_scores)) {}

  // Of the target's token among them, 1 to speculation::kBeyond.
  int rank = 1;
  // Their perturbed scores (model/drafter.h) less that of the first: they fall
  // from 0. At most speculation::kRanks; empty: not known.
  std::vector<float> scores;

  bool matches() const { return rank == 1; }
  bool operator==(const Guess&) const = default;
};

// One recorded sequence, position by position.
using MatchTrace = std::vector<Guess>;

// Gives all positions the scores that the frequencies of its ranks stand for.
void FillScores(MatchTrace* trace);

class MatchSource {
 public:
  virtual ~MatchSource() = default;
  // For generated token `index` >= 0, all before it being right. The same
  // answer each time; valid until the next call.
  virtual const Guess& GuessAt(int64_t index) = 0;
  // A guess after a wrong token, which is never compared: one like the others,
  // chosen by `bits`. Likewise.
  virtual const Guess& GuessElsewhere(uint64_t bits) = 0;
  // Whether the first candidate is the target's token.
  bool At(int64_t index) { return GuessAt(index).matches(); }
};

// Independent with probability alpha. The lengths of the runs of matches are
// drawn by stratified sampling. Each is geometric, and of every 1,000 in a row
// one comes from each thousandth of the distribution. So a short simulation has
// an alpha near the one asked for, and little noise. The ranks of mismatches
// are drawn likewise, with these shares. All positions have the same scores:
// those that the probabilities of ranks stand for. alpha in [0, 1].
std::unique_ptr<MatchSource> IndependentMatches(
    double alpha, uint64_t seed,
    const speculation::MismatchShares& shares = speculation::kMismatchShares);

// A recorded one from `first` on; begins again where it ends. Not empty.
std::unique_ptr<MatchSource> RecordedMatches(
    std::shared_ptr<const MatchTrace> trace, size_t first);

}  // namespace nacre::simulation

#endif  // SIMULATION_MATCH_SOURCE_H_
