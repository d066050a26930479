#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/flag_set.h"
#include "tools/generation_json.h"
#include "tools/simulate_flags.h"
#include "tools/simulate_report.h"
#include "tools/trace_writer.h"

namespace nacre::tools {

int SimulateCommand(const std::vector<std::string>& args,
                    const Terminal& terminal) {
  SimulateFlags flags;
  FlagSet flag_set("nacre simulate",
                   "Predicts how fast the methods would be: the same state "
                   "machines as the services, in virtual time.");
  flags.Register(&flag_set);
  const absl::Status parsed = flag_set.Parse(args);
  if (!parsed.ok()) return terminal.FailUsage(parsed);
  if (flag_set.help_requested()) {
    terminal.out << flag_set.Help();
    return kExitOk;
  }
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
