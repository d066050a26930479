#include "tests/kernels/cuda/emulation/machine.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 32 << 10;
constexpr int kCopyBytes = 16;
constexpr unsigned char kNotThereYet = 0xff;  // makes NaN
constexpr int kMostTurns = 40;  // of a warp before another has one

struct PendingCopy {
  void* to;
  const void* from;
  bool inside;
};

// Lives on: the next block's thread runs on its stack. Switched by _setjmp and
// _longjmp, which, unlike swapcontext, ask nothing of the kernel.
struct Fiber {
  std::unique_ptr<char[]> stack;
  jmp_buf at;
  bool started = false;
  bool done = false;
  // Runs again when so many threads have arrived at the barriers.
  int64_t warp_target = 0;
  int64_t block_target = 0;
  int shuffles = 0;
  std::vector<PendingCopy> open;
  std::deque<std::vector<PendingCopy>> groups;
};

struct Warp {
  int64_t arrived = 0;
  uint32_t a[kWarp][4];
  uint32_t b[kWarp][2];
  uint64_t shuffled[2][kWarp];
};

std::vector<Fiber> fibers;  // as many as the largest block had
int block_threads = 0;
std::vector<Warp> warps;
int64_t block_arrived = 0;
int current = 0;
jmp_buf scheduler;
const std::function<void(int)>* block_body = nullptr;
std::mt19937 random_turns(1);

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::exit(1);
}

void Yield() {
  if (_setjmp(fibers[current].at) == 0) _longjmp(scheduler, 1);
}

void Enter() {
  for (;;) {
    (*block_body)(current);
    fibers[current].done = true;
    Yield();
  }
}

// Runs the current thread until it yields.
void Resume() {
  if (_setjmp(scheduler) != 0) return;
  Fiber& fiber = fibers[current];
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  fiber.stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, Enter, 0);
  setcontext(&context);
}

// The number of arrivals at which the barrier that `arrived` just reached
// opens.
int64_t Target(int64_t arrived, int64_t threads) {
  return (arrived + threads - 1) / threads * threads;
}

void Land(const PendingCopy& copy) {
  if (copy.inside) {
    std::memcpy(copy.to, copy.from, kCopyBytes);
  } else {
    std::memset(copy.to, 0, kCopyBytes);
  }
}

// Runs every thread of `warp` that can; returns how many did.
int TakeTurn(int warp) {
  int ran = 0;
  const int first = random_turns() % kWarp;
  for (int lane = 0; lane < kWarp; ++lane) {
    const int thread = warp * kWarp + (first + lane) % kWarp;
    Fiber& fiber = fibers[thread];
    if (fiber.done || warps[warp].arrived < fiber.warp_target ||
        block_arrived < fiber.block_target) {
      continue;
    }
    current = thread;
    Resume();
    ++ran;
  }
  return ran;
}

float Bf16Of(const uint32_t word, int half) {
  return Bf16ToFloat(static_cast<uint16_t>(word >> (16 * half)));
}

}  // namespace

void RunBlock(int threads, const std::function<void(int)>& body) {
  block_body = &body;
  block_arrived = 0;
  warps.assign(threads / kWarp, {});
  block_threads = threads;
  // Nobody is on these stacks: between blocks no thread is under way.
  if (fibers.size() < static_cast<size_t>(threads)) fibers.resize(threads);
  for (int thread = 0; thread < threads; ++thread) {
    Fiber& fiber = fibers[thread];
    fiber.done = false;
    fiber.warp_target = 0;
    fiber.block_target = 0;
    fiber.shuffles = 0;
  }
  std::vector<int> order(warps.size());
  std::iota(order.begin(), order.end(), 0);
  const auto running = [](const Fiber& fiber) { return !fiber.done; };
  while (std::any_of(fibers.begin(), fibers.begin() + threads, running)) {
    std::shuffle(order.begin(), order.end(), random_turns);
    bool progress = false;
    for (const int warp : order) {
      int turns = random_turns() % kMostTurns;
      while (turns-- > 0 && TakeTurn(warp) > 0) progress = true;
    }
    // All may have had no turn by chance.
    for (const int warp : order) {
      if (!progress) progress = TakeTurn(warp) > 0;
    }
    if (!progress) Die("threads wait at a barrier that not all reach");
  }
  for (const Fiber& fiber : fibers) {
    if (!fiber.open.empty() || !fiber.groups.empty()) {
      Die("a block ended with copies under way");
    }
  }
}

int Thread() { return current; }

void WarpBarrier() {
  Warp& warp = warps[current / kWarp];
  fibers[current].warp_target = Target(++warp.arrived, kWarp);
  Yield();
}

void BlockBarrier() {
  fibers[current].block_target = Target(++block_arrived, block_threads);
  Yield();
}

uint64_t ShuffleXor(uint64_t value, int distance) {
  // No lane is two ahead of another: it waits for all at each. So two rows do.
  uint64_t* const row =
      warps[current / kWarp].shuffled[fibers[current].shuffles++ % 2];
  row[current % kWarp] = value;
  WarpBarrier();
  return row[current % kWarp ^ distance];
}

void Copy(void* to, const void* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % kCopyBytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % kCopyBytes != 0) {
    Die("a misaligned copy");
  }
  const PendingCopy copy = {to, from, inside};
  if (copies == Copies::kEarly) {
    Land(copy);
  } else {
    std::memset(to, kNotThereYet, kCopyBytes);
    fibers[current].open.push_back(copy);
  }
}

void Commit() {
  Fiber& fiber = fibers[current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void Wait(int pending) {
  auto& groups = fibers[current].groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const PendingCopy& copy : groups.front()) Land(copy);
    groups.pop_front();
  }
}

// PTX ISA, "Matrix fragments for mma.m16n8k16": with g = lane / 4 and
// t = lane % 4, A's registers hold rows g, g + 8, g, g + 8 at inputs
// 2t, 2t + 1 (the last two registers: 8 more); B's column g likewise; D's rows
// g, g, g + 8, g + 8 at columns 2t, 2t + 1 in turn.
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  const int lane = current % kWarp;
  Warp& warp = warps[current / kWarp];
  std::copy_n(a, 4, warp.a[lane]);
  std::copy_n(b, 2, warp.b[lane]);
  WarpBarrier();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8;
    const int column = lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (int k = 0; k < 16; ++k) {
      const int t = k % 8 / 2;
      sum +=
          double{Bf16Of(warp.a[row % 8 * 4 + t][row / 8 + k / 8 * 2], k % 2)} *
          Bf16Of(warp.b[column * 4 + t][k / 8], k % 2);
    }
    d[i] = static_cast<float>(sum);
  }
  WarpBarrier();
}

}  // namespace nacre::kernels::cuda::emulation
