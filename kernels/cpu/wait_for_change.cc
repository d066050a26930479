#include "kernels/cpu/wait_for_change.h"

#include <chrono>

#include "hwy/cache_control.h"

namespace nacre::kernels {
namespace {

constexpr std::chrono::microseconds kSpinTime{20};
constexpr int kPausesBetweenClockReads = 32;

}  // namespace

void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto changes_soon = [&] {
    for (int i = 0; i < kPausesBetweenClockReads; ++i) {
      if (value.load(std::memory_order_acquire) != old) return true;
      hwy::Pause();
    }
    return false;
  };
  // The clock is read after that: most waits end before.
  if (changes_soon()) return;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    if (changes_soon()) return;
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace nacre::kernels
