// The real `nacre` command, as a user runs it.

#ifndef TESTS_INTEGRATION_COMMAND_LINE_H_
#define TESTS_INTEGRATION_COMMAND_LINE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/files.h"
#include "tools/cluster/child_process.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {

struct CommandResult {
  std::string end;  // "exit code 0"
  std::string out;
  std::string err;
};

// Runs build/bin/nacre until it ends; fails the test where it does not.
inline CommandResult RunNacre(const std::vector<std::string>& args) {
  const tools::TemporaryFolder folder;
  std::vector<std::string> argv = {"/bin/sh", "-c",
                                   "exec \"$@\" >\"$0/out\" 2>\"$0/err\"",
                                   folder.path(), NACRE_BIN "/nacre"};
  argv.insert(argv.end(), args.begin(), args.end());
  auto process = tools::ChildProcess::Start(
      {.argv = std::move(argv), .log_file = "", .sees_flags = true});
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    return {};
  }
  // Some commands run the service for a while, and the machine may be busy.
  EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(8)));
  return {(*process)->Poll().value_or("still running"),
          ReadFile(folder.path() + "/out").value_or(""),
          ReadFile(folder.path() + "/err").value_or("")};
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_COMMAND_LINE_H_
