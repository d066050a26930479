#include "coordinator/work_pool.h"

#include <utility>

namespace nacre::coordinator {

WorkPool::WorkPool(Options options) : options_(options) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WorkPool::~WorkPool() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkPool::TrySubmit(int64_t bytes, std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (num_tasks_ >= options_.max_tasks ||
      (num_tasks_ > 0 && bytes > options_.max_bytes - num_bytes_)) {
    return false;
  }
  ++num_tasks_;
  num_bytes_ += bytes;
  tasks_.push_back({bytes, std::move(task)});
  return true;
}

void WorkPool::Run() {
  const auto is_due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !tasks_.empty();
  };
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&is_due));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task.run();
    task.run = nullptr;  // before its place is free: it may own much
    absl::MutexLock lock(&mu_);
    --num_tasks_;
    num_bytes_ -= task.bytes;
  }
}

}  // namespace nacre::coordinator
