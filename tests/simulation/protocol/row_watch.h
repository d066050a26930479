// What the world sees of a draft that reads its target: whether each row is the
// target's, and of features whether the draft keeps to what a model over them
// relies on (model/target_sequence.h).
//
// One of each for an opening of a draft's session. Used by one thread.

#ifndef TESTS_SIMULATION_PROTOCOL_ROW_WATCH_H_
#define TESTS_SIMULATION_PROTOCOL_ROW_WATCH_H_

#include <cstdint>
#include <string>

#include "model/language_model.h"
#include "speculation/pipeline.h"
#include "tests/simulation/protocol/simulated_rows.h"

namespace nacre::protocol {

struct SessionOnWorker;

// Each call says what is wrong; empty: nothing.
class RowWatch {
 public:
  struct Counts {
    int64_t rows = 0;      // that drafts saw in their steps
    int64_t features = 0;  // of these
    int64_t skipped = 0;   // steps that saw features, but not the first
    int64_t behind = 0;    // tokens that were fed beyond their features
  };

  // A step is about to feed these rows.
  std::string OnForward(const SessionOnWorker& session,
                        const model::SequenceRows& rows, Counts* counts);
  // What the step gave leaves.
  std::string OnTail(const SessionOnWorker& session,
                     const speculation::Tail& tail) const;

 private:
  std::string CheckRows(const SessionOnWorker& session,
                        const SimulatedTargetSequence& target) const;
  std::string CheckOwnText(const SessionOnWorker& session,
                           const model::SequenceRows& rows,
                           const SimulatedTargetSequence& target) const;

  int horizon_ = 0;  // of the last step: from there on it knows nothing
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_ROW_WATCH_H_
