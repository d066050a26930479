// Compute threads of one backend, pinned to given cores. The calling thread is
// one of them, so one core means no other thread and no synchronisation.
//
// Waiting threads spin for at most 20 microseconds and then park: an idle
// backend costs nothing, and a core shared with another process is not lost.
//
// Run and BindCaller belong to one thread, the backend's caller.

#ifndef KERNELS_CPU_THREAD_POOL_H_
#define KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/awaited_count.h"

namespace nacre::kernels {

class ThreadPool {
 public:
  // One thread for each core; kAnyCpu: an unpinned one; `cpus` empty: one
  // unpinned thread. Every core must be one this process may run on.
  explicit ThreadPool(std::vector<int> cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Pins the calling thread to the first core.
  void BindCaller();

  // Calls task(0) here and task(i) on thread i, for every i < size(); returns
  // when all have returned. `task` must not call Run.
  void Run(absl::FunctionRef<void(int thread)> task);

  // Calls task(begin, end) for ranges that are not empty and together are
  // [0, count), on all threads. Each thread has a near-equal share, in order,
  // and goes through it from the front. One that is through takes from the back
  // of the others': a core that other work or a slower memory holds up is not
  // waited for.
  void RunRanges(int count, absl::FunctionRef<void(int begin, int end)> task);

 private:
  // What is left of the share of a thread: [begin, end).
  class Share {
   public:
    void Set(uint32_t begin, uint32_t end);
    // Calls task with half of it, at least one item. False: it is empty.
    bool RunSome(bool from_back,
                 absl::FunctionRef<void(int begin, int end)> task);

   private:
    alignas(64) std::atomic<uint64_t> left_{0};  // end in the upper half
  };

  // What all threads have to do: one of both, or to end. One cache line: once
  // another core has it, nothing is missing that it would have to ask for. Only
  // the caller writes it, but for workers that park.
  struct alignas(64) Order {
    AwaitedCount posted;
    std::optional<absl::FunctionRef<void(int thread)>> each;
    std::optional<absl::FunctionRef<void(int begin, int end)>> ranges;
  };
  static_assert(sizeof(Order) == 64);
  // Orders that a worker has done. In a line of its own: it need not wait for
  // one that the other core is reading.
  struct alignas(64) Done {
    AwaitedCount count;
  };

  void WorkerLoop(int thread);
  // Posts `order_`, runs `own` and waits until all workers have done it.
  void RunOrder(absl::FunctionRef<void()> own);
  // The share of a thread, and then of others what is left.
  void RunShares(int thread, absl::FunctionRef<void(int, int)> task);

  const std::vector<int> cpus_;
  const int size_;
  Order order_;                // written between two tasks, read in them
  std::vector<Share> shares_;  // of RunRanges, one a thread
  std::vector<Done> done_;     // of each worker; the caller's is not used
  std::vector<std::thread> workers_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_THREAD_POOL_H_
