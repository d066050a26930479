// The flags of `nacre up` that it hands on, as they are, to the processes that
// it starts. Those know what they mean and refuse bad values.

#ifndef TOOLS_PASSED_FLAGS_H_
#define TOOLS_PASSED_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/flag_set.h"

namespace nacre::tools {

// Not thread-safe. Must outlive the FlagSet that it was registered with.
class PassedFlags {
 public:
  PassedFlags();
  PassedFlags(const PassedFlags&) = delete;
  PassedFlags& operator=(const PassedFlags&) = delete;

  void Register(FlagSet* flags);

  // What was given of it, each as "--name=value".
  std::vector<std::string> CoordinatorArgs() const;
  std::vector<std::string> WorkerArgs() const;

 private:
  // One for each flag of the table; unset: not given.
  std::vector<std::optional<std::string>> values_;
};

}  // namespace nacre::tools

#endif  // TOOLS_PASSED_FLAGS_H_
