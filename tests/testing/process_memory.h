// Memory of this process, as Linux says it in /proc/self/status.

#ifndef TESTS_TESTING_PROCESS_MEMORY_H_
#define TESTS_TESTING_PROCESS_MEMORY_H_

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace nacre::testing {

// "VmRSS", "VmHWM", ...: bytes; -1 where there is no such line.
inline int64_t ProcessMemory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  const std::string format = name + ": %lld";
  std::string line;
  while (std::getline(status, line)) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), format.c_str(), &kilobytes) == 1) {
      return kilobytes * 1024;
    }
  }
  return -1;
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_PROCESS_MEMORY_H_
