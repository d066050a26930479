#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flag_set.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/calibration_plan.h"
#include "tools/commands.h"

namespace nacre::tools {

int CalibrateCommand(const std::vector<std::string>& args,
                     const Terminal& terminal) {
  CalibrationFlags flags;
  FlagSet flag_set("nacre calibrate",
                   "Trains or tunes a draft-length policy for a pair of models "
                   "and writes the folder that draft workers load.");
  flags.Register(&flag_set);
  if (const auto exit = terminal.ReadFlags(args, &flag_set)) return *exit;
  flags.cluster.HandOn(flag_set);
  const absl::StatusOr<CalibrationPlan> plan = BuildCalibrationPlan(flags);
  if (!plan.ok()) return terminal.FailUsage(plan.status());
  const absl::Status status = Calibrate(*plan, terminal);
  if (status.ok()) return kExitOk;
  const int code = terminal.Fail(status);
  return absl::IsCancelled(status) ? kExitInterrupted : code;
}

}  // namespace nacre::tools
