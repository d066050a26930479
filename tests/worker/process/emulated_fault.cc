// Linked into a worker on the emulated device: SIGUSR1 breaks the device, as a
// fault in a kernel would.

#include <signal.h>

#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::worker {
namespace {

void BreakDevice(int) {
  kernels::cuda::emulation::settings.fault = cudaErrorIllegalAddress;
}

const auto previous = signal(SIGUSR1, BreakDevice);

}  // namespace
}  // namespace nacre::worker
