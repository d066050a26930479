#include "absl/strings/str_cat.h"
#include "telemetry/build_info.h"
#include "tools/commands.h"

namespace nacre::tools {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args, const Terminal& terminal);
};

constexpr Command kCommands[] = {
    {"up", "run a coordinator and its workers on this machine", UpCommand},
    {"generate", "generate from one prompt through a running coordinator",
     GenerateCommand},
    {"chat", "talk with the model through a running coordinator", ChatCommand},
    {"bench", "measure methods against each other and check that they agree",
     BenchCommand},
    {"simulate", "predict the speed of methods in virtual time",
     SimulateCommand},
    {"calibrate", "train or tune a draft-length policy on two models",
     CalibrateCommand},
    {"inflate", "make a checkpoint slower without changing its output",
     InflateCommand},
    {"perplexity", "measure how well a model predicts texts",
     PerplexityCommand},
    {"models", "print which checkpoints this build reads", ModelsCommand},
};

std::string Usage() {
  std::string text =
      "nacre: speculative decoding on two models, token for token what the "
      "large one says\n\nusage: nacre COMMAND [flags]\n\n";
  for (const Command& command : kCommands) {
    std::string head = absl::StrCat("  ", command.name);
    head.resize(14, ' ');
    absl::StrAppend(&text, head, command.summary, "\n");
  }
  absl::StrAppend(&text,
                  "\n\"nacre COMMAND --help\" lists the flags of one.\n");
  return text;
}

}  // namespace

int RunNacre(const std::vector<std::string>& args, const Terminal& terminal) {
  if (args.empty()) {
    terminal.err << Usage();
    return kExitUsage;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    terminal.out << Usage();
    return kExitOk;
  }
  if (args[0] == "--version") {
    terminal.out << telemetry::VersionText("nacre") << "\n";
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    if (args[0] == command.name) {
      return command.run({args.begin() + 1, args.end()}, terminal);
    }
  }
  return terminal.FailUsage(absl::InvalidArgumentError(
      absl::StrCat("unknown command \"", args[0], "\"; see \"nacre --help\"")));
}

}  // namespace nacre::tools
