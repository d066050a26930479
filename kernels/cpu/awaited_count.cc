#include "kernels/cpu/awaited_count.h"

#include <chrono>

#include "hwy/cache_control.h"

namespace nacre::kernels {
namespace {

constexpr std::chrono::microseconds kSpinTime{20};
constexpr int kPausesBetweenClockReads = 32;

}  // namespace

void AwaitedCount::Raise() {
  // In one order with the two in AwaitChange: either this sees that thread
  // parked, or that one sees the new value.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) value_.notify_all();
}

void AwaitedCount::AwaitChange(uint32_t old) {
  const auto changes_soon = [&] {
    for (int i = 0; i < kPausesBetweenClockReads; ++i) {
      if (value() != old) return true;
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
  parked_.fetch_add(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == old) {
    value_.wait(old, std::memory_order_acquire);
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace nacre::kernels
