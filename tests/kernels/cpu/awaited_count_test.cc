#include "kernels/cpu/awaited_count.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

// Whether a thread of this process sleeps in the kernel.
bool IsAsleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'S';
}

// Until it is at least that much.
void Await(uint32_t value, AwaitedCount* count) {
  for (;;) {
    const uint32_t now = count->value();
    if (now >= value) return;
    count->AwaitChange(now);
  }
}

TEST(AwaitedCountTest, WhatHasChangedIsNotAwaited) {
  AwaitedCount count;
  EXPECT_EQ(count.value(), 0u);
  count.Raise();
  count.AwaitChange(0);
  EXPECT_EQ(count.value(), 1u);
}

TEST(AwaitedCountTest, ParkedThreadsAreWoken) {
  constexpr uint32_t kTurns = 50;
  AwaitedCount turns;
  AwaitedCount done;
  std::vector<uint32_t> seen;  // without a lock: counts say whose turn it is
  std::atomic<pid_t> id{0};
  std::thread other([&] {
    id = gettid();
    for (uint32_t turn = 1; turn <= kTurns; ++turn) {
      Await(turn, &turns);
      seen.push_back(turn);
      done.Raise();
    }
  });
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    while (id == 0 || !IsAsleep(id)) std::this_thread::yield();
    turns.Raise();
    Await(turn, &done);
    ASSERT_EQ(seen.size(), turn);
    ASSERT_EQ(seen.back(), turn);
  }
  other.join();
}

TEST(AwaitedCountTest, AllThatWaitAreWoken) {
  constexpr uint32_t kTurns = 500;
  constexpr int kThreads = 5;
  AwaitedCount turns;
  AwaitedCount done;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (uint32_t turn = 1; turn <= kTurns; ++turn) {
        Await(turn, &turns);
        done.Raise();
      }
    });
  }
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    turns.Raise();
    Await(turn * kThreads, &done);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.value(), kTurns * kThreads);
}

}  // namespace
}  // namespace nacre::kernels
