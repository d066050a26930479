// What an engine has learnt of its drafter's scores of children, by kind of
// temperature, of all sessions.
//
// Owned by the engine, used by its thread.

#ifndef DRAFT_WORKER_SCORE_CALIBRATIONS_H_
#define DRAFT_WORKER_SCORE_CALIBRATIONS_H_

#include <array>

#include "speculation/ranks.h"

namespace nacre::draft_worker {

class ScoreCalibrations {
 public:
  speculation::ScoreCalibration& At(float temperature) {
    return calibrations_[speculation::TemperatureKind(temperature)];
  }

 private:
  std::array<speculation::ScoreCalibration, speculation::kTemperatureKinds>
      calibrations_;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_SCORE_CALIBRATIONS_H_
