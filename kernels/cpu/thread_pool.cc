#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/cpu_quota.h"

namespace nacre::kernels {
namespace {

void PinThisThread(int core) {
  if (core == kAnyCpu) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  NACRE_CHECK(pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0,
              "cannot pin a compute thread to its core");
}

}  // namespace

ThreadPool::ThreadPool(std::vector<int> cpus)
    : cpus_(std::move(cpus)),
      size_(std::max(1, static_cast<int>(cpus_.size()))),
      shares_(static_cast<size_t>(size_)),
      done_(static_cast<size_t>(size_)) {
  workers_.reserve(size_ - 1);
  for (int thread = 1; thread < size_; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  order_.each.reset();
  order_.ranges.reset();
  order_.posted.Raise();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::BindCaller() {
  if (!cpus_.empty()) PinThisThread(cpus_[0]);
}

void ThreadPool::RunOrder(absl::FunctionRef<void()> own) {
  order_.posted.Raise();
  own();
  const uint32_t posted = order_.posted.value();
  for (size_t i = 1; i < done_.size(); ++i) {
    for (;;) {
      const uint32_t done = done_[i].count.value();
      if (done == posted) break;
      done_[i].count.AwaitChange(done);
    }
  }
}

void ThreadPool::Run(absl::FunctionRef<void(int thread)> task) {
  if (size_ == 1) {
    task(0);
    return;
  }
  order_.ranges.reset();
  order_.each.emplace(task);
  RunOrder([&] { task(0); });
}

void ThreadPool::Share::Set(uint32_t begin, uint32_t end) {
  left_.store(uint64_t{end} << 32 | begin, std::memory_order_relaxed);
}

bool ThreadPool::Share::RunSome(bool from_back,
                                absl::FunctionRef<void(int, int)> task) {
  uint64_t left = left_.load(std::memory_order_relaxed);
  for (;;) {
    const auto begin = static_cast<uint32_t>(left);
    const auto end = static_cast<uint32_t>(left >> 32);
    if (begin == end) return false;
    const uint32_t some = (end - begin + 1) / 2;
    const uint32_t middle = from_back ? end - some : begin + some;
    const uint64_t rest = from_back ? uint64_t{middle} << 32 | begin
                                    : uint64_t{end} << 32 | middle;
    // Items are numbers alone: what they stand for was there before Run.
    if (!left_.compare_exchange_weak(left, rest, std::memory_order_relaxed)) {
      continue;
    }
    task(static_cast<int>(from_back ? middle : begin),
         static_cast<int>(from_back ? end : middle));
    return true;
  }
}

void ThreadPool::RunRanges(int count,
                           absl::FunctionRef<void(int begin, int end)> task) {
  if (size_ == 1) {
    if (count > 0) task(0, count);
    return;
  }
  const uint64_t total = static_cast<uint64_t>(count);
  const size_t threads = shares_.size();
  for (size_t i = 0; i < threads; ++i) {
    shares_[i].Set(static_cast<uint32_t>(total * i / threads),
                   static_cast<uint32_t>(total * (i + 1) / threads));
  }
  order_.each.reset();
  order_.ranges.emplace(task);
  RunOrder([&] { RunShares(0, task); });
}

void ThreadPool::RunShares(int thread, absl::FunctionRef<void(int, int)> task) {
  const size_t own = static_cast<size_t>(thread);
  const size_t threads = shares_.size();
  while (shares_[own].RunSome(/*from_back=*/false, task)) {
  }
  for (size_t i = 1; i < threads; ++i) {
    Share& other = shares_[(own + i) % threads];
    while (other.RunSome(/*from_back=*/true, task)) {
    }
  }
}

void ThreadPool::WorkerLoop(int thread) {
  PinThisThread(cpus_[thread]);
  // The pool was made with nothing posted: a first task that came before this
  // thread ran is still seen as new.
  for (uint32_t seen = 0;; ++seen) {
    order_.posted.AwaitChange(seen);
    if (order_.ranges.has_value()) {
      RunShares(thread, *order_.ranges);
    } else if (order_.each.has_value()) {
      (*order_.each)(thread);
    } else {
      return;
    }
    done_[static_cast<size_t>(thread)].count.Raise();
  }
}

}  // namespace nacre::kernels
