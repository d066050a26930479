#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/calibration_plan.h"
#include "tools/commands.h"
#include "tools/flag_set.h"

namespace nacre::tools {

int CalibrateCommand(const std::vector<std::string>& args,
                     const Terminal& terminal) {
  CalibrationFlags flags;
  FlagSet flag_set("nacre calibrate",
                   "Trains or tunes a draft-length policy for a pair of models "
                   "and writes the folder that draft workers load.");
  flags.Register(&flag_set);
  if (absl::Status status = flag_set.Parse(args); !status.ok()) {
    return terminal.FailUsage(status);
  }
  if (flag_set.help_requested()) {
    terminal.out << flag_set.Help();
    return kExitOk;
  }
  const absl::StatusOr<CalibrationPlan> plan = BuildCalibrationPlan(flags);
  if (!plan.ok()) return terminal.FailUsage(plan.status());
  const absl::Status status = Calibrate(*plan, terminal);
  if (status.ok()) return kExitOk;
  const int code = terminal.Fail(status);
  return absl::IsCancelled(status) ? kExitInterrupted : code;
}

}  // namespace nacre::tools
