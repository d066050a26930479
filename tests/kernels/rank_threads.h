// Ranks for tests: a thread for each, as a worker has them.

#ifndef TESTS_KERNELS_RANK_THREADS_H_
#define TESTS_KERNELS_RANK_THREADS_H_

#include <functional>
#include <thread>
#include <vector>

namespace nacre::kernels {

// Calls task(rank) for each rank on a thread of its own; returns when all have
// returned.
inline void OnEveryRank(int ranks, const std::function<void(int)>& task) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(task, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_RANK_THREADS_H_
