// NACRE_CHECK: for our own bugs only. Prints the condition and a message, then
// aborts. Anything a user, a file or a peer can cause is an absl::Status.

#ifndef COMMON_CHECK_H_
#define COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define NACRE_CHECK(condition, message)                               \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__, \
                   __LINE__, #condition, message);                    \
      std::abort();                                                   \
    }                                                                 \
  } while (false)

#endif  // COMMON_CHECK_H_
