// A number that others cannot guess, from the system's source.

#ifndef COORDINATOR_DISPATCH_RANDOM_NUMBER_H_
#define COORDINATOR_DISPATCH_RANDOM_NUMBER_H_

#include <cstdint>
#include <random>

namespace nacre::coordinator {

// Never 0. Thread-safe.
inline uint64_t RandomNumber() {
  std::random_device device;
  uint64_t number = 0;
  while (number == 0) number = (uint64_t{device()} << 32) | device();
  return number;
}

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_RANDOM_NUMBER_H_
