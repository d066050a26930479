#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/cpu_quota.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

TEST(ThreadPoolTest, OneThreadRunsOnTheCaller) {
  for (std::vector<int> cpus : {std::vector<int>{}, AllowedCores(1)}) {
    ThreadPool pool(std::move(cpus));
    EXPECT_EQ(pool.size(), 1);
    std::thread::id ran_on;
    pool.Run([&](int thread) {
      EXPECT_EQ(thread, 0);
      ran_on = std::this_thread::get_id();
    });
    EXPECT_EQ(ran_on, std::this_thread::get_id());
  }
}

TEST(ThreadPoolTest, EveryThreadRunsEveryTaskOnce) {
  const auto cores = AllowedCores(4);
  ThreadPool pool(cores);
  std::vector<int> calls(cores.size());
  constexpr int kTasks = 2000;
  for (int i = 0; i < kTasks; ++i) {
    // Without a lock: a task is over before Run returns.
    pool.Run([&](int thread) { ++calls[thread]; });
  }
  for (const int count : calls) EXPECT_EQ(count, kTasks);
}

TEST(ThreadPoolTest, ThreadsOfAnyCoreStayUnbound) {
  std::vector<int> calls(3);
  std::vector<int> allowed(3);
  const auto num_allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    return pthread_getaffinity_np(pthread_self(), sizeof(set), &set) == 0
               ? CPU_COUNT(&set)
               : 0;
  };
  ThreadPool pool({kAnyCpu, kAnyCpu, kAnyCpu});
  EXPECT_EQ(pool.size(), 3);
  const int before = num_allowed();
  pool.BindCaller();
  pool.Run([&](int thread) {
    ++calls[thread];
    allowed[thread] = num_allowed();
  });
  EXPECT_EQ(calls, std::vector<int>(3, 1));
  EXPECT_EQ(allowed, std::vector<int>(3, before));
}

TEST(ThreadPoolTest, ThreadsRunOnTheirCores) {
  const auto cores = AllowedCores(4);
  std::vector<int> ran_on(cores.size(), -1);
  // In a thread of its own: BindCaller stays for its life.
  std::thread caller([&] {
    ThreadPool pool(cores);
    pool.BindCaller();
    pool.Run([&](int thread) { ran_on[thread] = sched_getcpu(); });
  });
  caller.join();
  EXPECT_EQ(ran_on, cores);
}

TEST(ThreadPoolTest, WithoutCoresTheCallerIsNotPinned) {
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  ThreadPool pool({});
  pool.BindCaller();
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPoolTest, RangesCoverEveryItemOnce) {
  ThreadPool pool(AllowedCores(4));
  for (const int count : {0, 1, 2, 3, 7, 100, 101}) {
    std::vector<int> visits(count);
    pool.RunRanges(count, [&](int begin, int end) {
      EXPECT_LT(begin, end);
      for (int i = begin; i < end; ++i) ++visits[i];
    });
    EXPECT_EQ(visits, std::vector<int>(count, 1));
  }
}

TEST(ThreadPoolTest, OthersTakeOverTheShareOfAThreadThatIsHeldUp) {
  for (const size_t threads : {2u, 3u}) {
    ThreadPool pool(std::vector<int>(threads, kAnyCpu));
    constexpr int kCount = 24;
    absl::Mutex mutex;
    int left = kCount;
    bool is_first = true;
    bool is_held = false;
    std::vector<int> visits(kCount);
    pool.RunRanges(kCount, [&](int begin, int end) {
      const absl::MutexLock lock(&mutex);
      for (int i = begin; i < end; ++i) ++visits[i];
      left -= end - begin;
      if (!is_first) return;
      is_first = false;
      const auto is_all_done = [&left] { return left == 0; };
      is_held = mutex.AwaitWithTimeout(absl::Condition(&is_all_done),
                                       absl::Seconds(30));
    });
    EXPECT_TRUE(is_held) << threads << " threads";
    EXPECT_EQ(visits, std::vector<int>(kCount, 1));
  }
}

TEST(ThreadPoolTest, RangesOfManyThreadsCoverEveryItemOnce) {
  ThreadPool pool(std::vector<int>(6, kAnyCpu));
  std::vector<std::atomic<int>> visits(1000);
  for (int turn = 0; turn < 200; ++turn) {
    const int count = turn * 5;
    pool.RunRanges(count, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) ++visits[i];
    });
    for (int i = 0; i < count; ++i) ASSERT_EQ(visits[i].exchange(0), 1);
  }
}

TEST(ThreadPoolTest, EndsWithoutHavingRun) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(AllowedCores(4));
}

}  // namespace
}  // namespace nacre::kernels
