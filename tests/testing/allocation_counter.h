// Counts what a test's process allocates: the program's malloc, calloc, realloc
// and their aligned kin, which operator new calls too, are replaced by ones
// that count and pass on to glibc's.
//
// Thread-safe: allocations of all threads count.

#ifndef TESTS_TESTING_ALLOCATION_COUNTER_H_
#define TESTS_TESTING_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace nacre::testing {

// Whether this build counts: sanitizers bring a malloc of their own.
bool CountsAllocations();

// Since the process began.
struct Allocations {
  int64_t count = 0;
  int64_t bytes = 0;
};
Allocations AllocationsSoFar();

}  // namespace nacre::testing

#endif  // TESTS_TESTING_ALLOCATION_COUNTER_H_
