#include <string>
#include <vector>

#include "common/files.h"
#include "common/flag_set.h"
#include "tools/commands.h"
#include "tools/generate/generation_json.h"
#include "tools/simulate/simulate_flags.h"
#include "tools/simulate/simulate_report.h"

namespace nacre::tools {

int SimulateCommand(const std::vector<std::string>& args,
                    const Terminal& terminal) {
  SimulateFlags flags;
  FlagSet flag_set("nacre simulate",
                   "Predicts how fast the methods would be: the same state "
                   "machines as the services, in virtual time.");
  flags.Register(&flag_set);
  if (const auto exit = terminal.ReadFlags(args, &flag_set)) return *exit;
  const absl::StatusOr<SimulatePlan> plan = flags.Build();
  if (!plan.ok()) return terminal.FailUsage(plan.status());
  const absl::StatusOr<std::vector<SimulatedRow>> rows = Simulate(*plan);
  if (!rows.ok()) return terminal.Fail(rows.status());
  terminal.out << SimulatedTable(*plan, *rows) << std::flush;
  if (!flags.json.empty()) {
    const absl::Status written =
        WriteFile(flags.json, JsonText(SimulatedJson(*plan, *rows), 2));
    if (!written.ok()) return terminal.Fail(written);
  }
  return kExitOk;
}

}  // namespace nacre::tools
