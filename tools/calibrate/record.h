// Records with real workers what a policy is trained on.

#ifndef TOOLS_CALIBRATE_RECORD_H_
#define TOOLS_CALIBRATE_RECORD_H_

#include "absl/status/statusor.h"
#include "tools/calibrate/calibration_plan.h"
#include "tools/calibrate/recording.h"
#include "tools/terminal.h"

namespace nacre::tools {

inline constexpr int kMaxRecordingRuns = 6;

// The longest chunks of the run with this number, from 0: others in each, so
// that they leave out other positions.
int RecordingWindow(const CalibrationPlan& plan, int run);

// Of all prompts, in runs of a cluster each: again those that have gaps, until
// there is none, a run has recorded nothing, or kMaxRecordingRuns. Prints what
// is still missing. Errors: of starting clusters, of requests, of the recording
// (recording.h), of the disk; CANCELLED after Ctrl-C; DATA_LOSS where more than
// half is missing: the disk was full or the worker died.
absl::StatusOr<Recording> RecordAnswers(const CalibrationPlan& plan,
                                        const Terminal& terminal);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_RECORD_H_
