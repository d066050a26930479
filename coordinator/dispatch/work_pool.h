// A few threads that do what must not hold up gRPC's: parsing and tokenizing.
// Bounded by tasks and by the bytes that wait with them. Clients share it
// fairly.

#ifndef COORDINATOR_DISPATCH_WORK_POOL_H_
#define COORDINATOR_DISPATCH_WORK_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace nacre::coordinator {

// Thread-safe. Clients take turns: a client's tasks run in their order, one
// before each other client's next.
class WorkPool {
 public:
  struct Options {
    int threads = 2;  // >= 1
    // Of tasks that have not ended: waiting or running.
    int max_tasks = 1 << 14;
    int64_t max_bytes = int64_t{256} << 20;
    // A running task takes about a hundred times its bytes. Of two tasks as
    // large as this one waits, so that one of several threads stays free for
    // small ones.
    int64_t large_bytes = int64_t{1} << 20;
  };

  struct Task {
    std::string client;
    int64_t bytes = 0;
    std::function<void()> run;
    // Called in place of `run` where the task has to leave: its client had more
    // in the full pool than a client that came later. Without it, it stays.
    std::function<void()> refuse = nullptr;
    const void* owner = nullptr;  // for Withdraw
  };

  explicit WorkPool(Options options);
  // Runs what was submitted, then returns.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False, and neither function is ever called, where the pool is full and no
  // client has more in it than this one would. One task larger than max_bytes
  // is taken if nothing else is there. Never blocks.
  bool TrySubmit(Task task) ABSL_LOCKS_EXCLUDED(mu_);
  // A task of no client.
  bool TrySubmit(int64_t bytes, std::function<void()> run) {
    return TrySubmit({.client = "", .bytes = bytes, .run = std::move(run)});
  }
  // Takes back the owner's task, if it still waits; whether it did. Owners
  // that withdraw have one task at most.
  bool Withdraw(const void* owner) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What a client has waiting here.
  struct Share {
    std::list<Task> tasks;
    int64_t bytes = 0;
  };
  using Shares = absl::flat_hash_map<std::string, Share>;
  struct Place {
    std::string client;
    std::list<Task>::iterator task;
  };

  void Run();
  bool MayRun(const Task& task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsFull(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next one whose turn it is. HasWork().
  Task Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room by the last task of the client that has most; false: `client`
  // itself would have as much.
  bool Evict(const std::string& client, int64_t bytes, Task* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Task Remove(const std::string& client, std::list<Task>::iterator task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  absl::Mutex mu_;
  Shares shares_ ABSL_GUARDED_BY(mu_);  // of those with a task that waits
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);  // the same clients
  absl::flat_hash_map<const void*, Place> owners_ ABSL_GUARDED_BY(mu_);
  int num_tasks_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool large_runs_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_WORK_POOL_H_
