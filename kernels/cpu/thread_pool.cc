#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/cpu_quota.h"
#include "kernels/cpu/wait_for_change.h"

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
      size_(std::max(1, static_cast<int>(cpus_.size()))) {
  workers_.reserve(size_ - 1);
  for (int thread = 1; thread < size_; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  task_ = nullptr;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::BindCaller() {
  if (!cpus_.empty()) PinThisThread(cpus_[0]);
}

void ThreadPool::Run(absl::FunctionRef<void(int thread)> task) {
  if (size_ == 1) {
    task(0);
    return;
  }
  task_ = &task;
  unfinished_.store(size_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  task(0);
  for (;;) {
    const uint32_t left = unfinished_.load(std::memory_order_acquire);
    if (left == 0) return;
    WaitForChange(unfinished_, left);
  }
}

void ThreadPool::RunRanges(int count,
                           absl::FunctionRef<void(int begin, int end)> task) {
  Run([&](int thread) {
    const int64_t total = count;
    const int begin = static_cast<int>(total * thread / size_);
    const int end = static_cast<int>(total * (thread + 1) / size_);
    if (begin < end) task(begin, end);
  });
}

void ThreadPool::WorkerLoop(int thread) {
  PinThisThread(cpus_[thread]);
  // The pool was made at generation 0: a first task that came before this
  // thread ran is still seen as new.
  for (uint32_t seen = 0;; ++seen) {
    WaitForChange(generation_, seen);
    if (task_ == nullptr) return;
    (*task_)(thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      unfinished_.notify_one();
    }
  }
}

}  // namespace nacre::kernels
