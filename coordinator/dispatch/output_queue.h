// Tasks that run one at a time and in the order in which they were added, on
// whichever thread comes to run them. So what is decided under a lock is done
// without it.

#ifndef COORDINATOR_DISPATCH_OUTPUT_QUEUE_H_
#define COORDINATOR_DISPATCH_OUTPUT_QUEUE_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace nacre::coordinator {

// Thread-safe.
class OutputQueue {
 public:
  using Task = std::function<void()>;

  void Add(Task task) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }

  // Returns when all tasks have run, or at once where another thread runs them,
  // or this one further up. That one runs the new ones, too.
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<Task> tasks;
    {
      absl::MutexLock lock(&mu_);
      if (running_) return;
      running_ = true;
    }
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        if (tasks_.empty()) {
          running_ = false;
          return;
        }
        tasks.swap(tasks_);
      }
      for (const Task& task : tasks) task();
      tasks.clear();
    }
  }

 private:
  absl::Mutex mu_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_OUTPUT_QUEUE_H_
