// What a process keeps in memory.

#ifndef TESTS_INTEGRATION_MEMORY_H_
#define TESTS_INTEGRATION_MEMORY_H_

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace nacre::integration {

inline int64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  EXPECT_GT(resident, 0) << "process " << pid;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_MEMORY_H_
