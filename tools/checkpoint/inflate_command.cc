#include <optional>
#include <string>
#include <vector>

#include "common/flag_set.h"
#include "tools/checkpoint/inflate.h"
#include "tools/commands.h"

namespace nacre::tools {

int InflateCommand(const std::vector<std::string>& args,
                   const Terminal& terminal) {
  InflateOptions options;
  FlagSet flags("nacre inflate",
                "Copies a checkpoint with more layers and columns that change "
                "its speed but not one bit of its output.");
  flags.Add("in", "DIR", &options.in_dir, "checkpoint to read");
  flags.Add("out", "DIR", &options.out_dir, "checkpoint to write");
  flags.Add("layers", "N", &options.num_layers,
            "layers in all, not fewer than now");
  flags.Add("intermediate-size", "M", &options.intermediate_size,
            "feed-forward columns in all; adds whole groups of 64");
  flags.Add("seed", "S", &options.seed, "of the added random weights");
  if (const auto exit = terminal.ReadFlags(args, &flags)) return *exit;
  if (options.in_dir.empty() || options.out_dir.empty() ||
      options.num_layers <= 0) {
    return terminal.FailUsage(absl::InvalidArgumentError(
        "flags --in, --out and --layers (> 0) are needed"));
  }
  options.progress = terminal.PercentProgress();
  const absl::Status status = InflateCheckpoint(options);
  terminal.EndProgress();
  if (!status.ok()) return terminal.Fail(status);
  terminal.out << options.out_dir << ": " << options.num_layers << " layers"
               << std::endl;
  return kExitOk;
}

}  // namespace nacre::tools
