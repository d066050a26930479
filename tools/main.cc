// The `nacre` command.

#include <grpc/support/log.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "common/logging.h"
#include "common/mutex_checks.h"
#include "common/rpc/signals.h"
#include "tools/commands.h"

// What gRPC has to say of a failed call is in its status, which the command
// prints as one line.
static void Ignore(gpr_log_func_args*) {}

int main(int argc, char** argv) {
  nacre::DisableMutexChecks();
  nacre::rpc::BlockTerminationSignals();
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(Ignore);
  // On stderr: stdout is for results.
  const nacre::Logging logging("nacre", {.level = spdlog::level::warn});
  const nacre::tools::Terminal terminal{std::cout,
                                        std::cerr,
                                        isatty(STDERR_FILENO) == 1,
                                        &std::cin,
                                        isatty(STDIN_FILENO) == 1,
                                        isatty(STDOUT_FILENO) == 1};
  return nacre::tools::RunNacre({argv + 1, argv + argc}, terminal);
}
