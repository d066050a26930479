// A few threads that do what must not hold up gRPC's: tokenizing. Bounded by
// tasks and by the bytes that wait with them.

#ifndef COORDINATOR_WORK_POOL_H_
#define COORDINATOR_WORK_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace nacre::coordinator {

// Thread-safe.
class WorkPool {
 public:
  struct Options {
    int threads = 2;  // >= 1
    // Of tasks that have not ended: waiting or running.
    int max_tasks = 1024;
    int64_t max_bytes = int64_t{256} << 20;
  };

  explicit WorkPool(Options options);
  // Runs what was submitted, then returns.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `task`, in order with the others where there is one thread. False, and
  // it never runs, where the pool is full. One task larger than max_bytes is
  // taken if nothing else is there. Never blocks.
  bool TrySubmit(int64_t bytes, std::function<void()> task);

 private:
  struct Task {
    int64_t bytes = 0;
    std::function<void()> run;
  };

  void Run();

  const Options options_;
  absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  int num_tasks_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_WORK_POOL_H_
