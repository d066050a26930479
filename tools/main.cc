// The `nacre` command.

#include <unistd.h>

#include <iostream>

#include "common/rpc/signals.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  nacre::rpc::BlockTerminationSignals();
  const nacre::tools::Terminal terminal{std::cout, std::cerr,
                                        isatty(STDERR_FILENO) == 1};
  return nacre::tools::RunNacre({argv + 1, argv + argc}, terminal);
}
