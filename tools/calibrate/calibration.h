// Runs `nacre calibrate`. Real workers record what the draft's rows said and
// what became of their tokens. A network learns to tell them apart. Real
// workers measure which parameters are fastest, and the result is written for
// draft workers to load.

#ifndef TOOLS_CALIBRATE_CALIBRATION_H_
#define TOOLS_CALIBRATE_CALIBRATION_H_

#include "absl/status/status.h"
#include "tools/calibrate/calibration_plan.h"
#include "tools/terminal.h"

namespace nacre::tools {

// Starts and stops its own clusters, one at a time. Errors: of starting them,
// of requests, of the training (trainer.h), of the disk; CANCELLED after
// Ctrl-C. Nothing is written to plan.out before all has gone well.
absl::Status Calibrate(const CalibrationPlan& plan, const Terminal& terminal);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_CALIBRATION_H_
