#include "coordinator/dispatch/call_timers.h"

#include <vector>

namespace nacre::coordinator {

void CallTimers::Set(const void* key, int64_t at_ns,
                     std::function<void()> on_time) {
  std::function<void()> old;
  {
    absl::MutexLock lock(&mu_);
    old = Take(key);
    if (at_ns == kNever) return;
    timers_[key] = {at_ns, std::move(on_time)};
    order_.emplace(at_ns, key);
  }
  if (wake_at_ != nullptr) wake_at_(at_ns);
}

void CallTimers::Clear(const void* key) { Set(key, kNever, nullptr); }

int64_t CallTimers::Tick(int64_t now_ns) {
  std::vector<std::function<void()>> due;
  {
    absl::MutexLock lock(&mu_);
    while (!order_.empty() && order_.begin()->first <= now_ns) {
      due.push_back(Take(order_.begin()->second));
    }
  }
  for (const std::function<void()>& on_time : due) on_time();
  absl::MutexLock lock(&mu_);
  return order_.empty() ? kNever : order_.begin()->first;
}

std::function<void()> CallTimers::Take(const void* key) {
  const auto it = timers_.find(key);
  if (it == timers_.end()) return nullptr;
  std::function<void()> on_time = std::move(it->second.on_time);
  order_.erase({it->second.at_ns, key});
  timers_.erase(it);
  return on_time;
}

}  // namespace nacre::coordinator
