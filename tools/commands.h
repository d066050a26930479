// The sub-commands of `nacre`, one file each. `args` is what follows the
// sub-command's name; the result is the exit code (tools/terminal.h).

#ifndef TOOLS_COMMANDS_H_
#define TOOLS_COMMANDS_H_

#include <string>
#include <vector>

#include "tools/terminal.h"

namespace nacre::tools {

// Generates from one prompt through a running coordinator.
int GenerateCommand(const std::vector<std::string>& args,
                    const Terminal& terminal);

// Talks with the model through a running coordinator.
int ChatCommand(const std::vector<std::string>& args, const Terminal& terminal);

// Measures methods against each other and checks that they agree.
int BenchCommand(const std::vector<std::string>& args,
                 const Terminal& terminal);

// Runs a coordinator and its workers on this machine.
int UpCommand(const std::vector<std::string>& args, const Terminal& terminal);

// Trains or tunes a length policy on two models.
int CalibrateCommand(const std::vector<std::string>& args,
                     const Terminal& terminal);

// Makes a checkpoint slower without changing its output.
int InflateCommand(const std::vector<std::string>& args,
                   const Terminal& terminal);

// Measures how well a model predicts texts.
int PerplexityCommand(const std::vector<std::string>& args,
                      const Terminal& terminal);

// Prints which checkpoints this build reads.
int ModelsCommand(const std::vector<std::string>& args,
                  const Terminal& terminal);

// Predicts the speed of methods, in virtual time.
int SimulateCommand(const std::vector<std::string>& args,
                    const Terminal& terminal);

// Dispatches on args[0].
int RunNacre(const std::vector<std::string>& args, const Terminal& terminal);

}  // namespace nacre::tools

#endif  // TOOLS_COMMANDS_H_
