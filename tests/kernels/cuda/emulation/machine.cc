#include "tests/kernels/cuda/emulation/machine.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
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
  // Of one that was issued while the kernel before still ran: what it read.
  bool has_read;
  std::array<char, kCopyBytes> bytes;
};

// Lives on: the next block's thread runs on its stack. Switched by _setjmp and
// _longjmp, which, unlike swapcontext, ask nothing of the kernel.
struct Fiber {
  std::unique_ptr<char[]> stack;
  jmp_buf at;
  bool started = false;
  bool done = false;
  // Runs again when so many threads have arrived at the barriers, and, if it
  // waits for the kernel before, when that is done.
  int64_t warp_target = 0;
  int64_t block_target = 0;
  bool waits = false;
  bool has_waited = false;
  int shuffles = 0;
  std::vector<PendingCopy> open;
  std::deque<std::vector<PendingCopy>> groups;
};

struct Warp {
  int64_t arrived = 0;
  uint32_t a[kWarp][4];
  uint32_t b[kWarp][2];
  uint64_t shuffled[2][kWarp];
  const void* rows[kWarp];
};

// Fibers of blocks that are done.
std::vector<std::vector<Fiber>> idle_fibers;

}  // namespace

struct BlockState {
  const std::function<void()>* body;
  BlockRules rules;
  int threads;
  bool previous_is_done = false;
  int64_t arrived = 0;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;  // as many as the largest block had on them
};

namespace {

BlockState* block = nullptr;  // that runs
int current = 0;              // thread of it
jmp_buf scheduler;
std::mt19937 random_turns(1);

Fiber& CurrentFiber() { return block->fibers[current]; }

void Yield() {
  if (_setjmp(CurrentFiber().at) == 0) _longjmp(scheduler, 1);
}

void Enter() {
  for (;;) {
    (*block->body)();
    CurrentFiber().done = true;
    Yield();
  }
}

// Runs the current thread until it yields.
void Resume() {
  if (_setjmp(scheduler) != 0) return;
  Fiber& fiber = CurrentFiber();
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
    std::memcpy(copy.to, copy.has_read ? copy.bytes.data() : copy.from,
                kCopyBytes);
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
    Fiber& fiber = block->fibers[thread];
    if (fiber.done || block->warps[warp].arrived < fiber.warp_target ||
        block->arrived < fiber.block_target ||
        (fiber.waits && !block->previous_is_done)) {
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

bool IsRunning(const Fiber& fiber) { return !fiber.done; }

// Runs the threads of the block until all are done, or none can go on.
void RunThreads() {
  const auto begin = block->fibers.begin();
  const auto end = begin + block->threads;
  std::vector<int> order(block->warps.size());
  std::iota(order.begin(), order.end(), 0);
  while (std::any_of(begin, end, IsRunning)) {
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
    if (!progress) return;
  }
}

}  // namespace

void Die(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::exit(1);
}

Block::Block(int threads, const std::function<void()>& body, BlockRules rules)
    : state_(new BlockState) {
  BlockState& state = *state_;
  state.body = &body;
  state.rules = rules;
  state.threads = threads;
  state.warps.assign(threads / kWarp, {});
  if (!idle_fibers.empty()) {
    state.fibers = std::move(idle_fibers.back());
    idle_fibers.pop_back();
  }
  // Nobody is on these stacks.
  if (state.fibers.size() < static_cast<size_t>(threads)) {
    state.fibers.resize(threads);
  }
  for (int thread = 0; thread < threads; ++thread) {
    Fiber& fiber = state.fibers[thread];
    fiber.done = false;
    fiber.warp_target = 0;
    fiber.block_target = 0;
    fiber.waits = false;
    fiber.has_waited = false;
    fiber.shuffles = 0;
  }
}

Block::~Block() { idle_fibers.push_back(std::move(state_->fibers)); }

void Block::Start() {
  block = state_.get();
  RunThreads();
}

void Block::Finish() {
  block = state_.get();
  block->previous_is_done = true;
  RunThreads();
  for (int thread = 0; thread < block->threads; ++thread) {
    const Fiber& fiber = block->fibers[thread];
    if (!fiber.done) Die("threads wait at a barrier that not all reach");
    if (!fiber.open.empty() || !fiber.groups.empty()) {
      Die("a block ended with copies under way");
    }
    if (block->rules.must_wait && !fiber.has_waited) {
      Die("a thread ended without WaitForPrevious");
    }
  }
}

int Thread() { return current; }

void WarpBarrier() {
  Warp& warp = block->warps[current / kWarp];
  CurrentFiber().warp_target = Target(++warp.arrived, kWarp);
  Yield();
}

void BlockBarrier() {
  CurrentFiber().block_target = Target(++block->arrived, block->threads);
  Yield();
}

uint64_t ShuffleXor(uint64_t value, int distance) {
  // No lane is two ahead of another: it waits for all at each. So two rows do.
  uint64_t* const row =
      block->warps[current / kWarp].shuffled[CurrentFiber().shuffles++ % 2];
  row[current % kWarp] = value;
  WarpBarrier();
  return row[current % kWarp ^ distance];
}

void Copy(void* to, const void* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % kCopyBytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % kCopyBytes != 0) {
    Die("a misaligned copy");
  }
  PendingCopy copy = {to, from, inside, !block->previous_is_done, {}};
  if (copy.has_read && inside) {
    std::memcpy(copy.bytes.data(), from, kCopyBytes);
  }
  if (copies == Copies::kEarly) {
    Land(copy);
  } else {
    std::memset(to, kNotThereYet, kCopyBytes);
    CurrentFiber().open.push_back(copy);
  }
}

void Commit() {
  Fiber& fiber = CurrentFiber();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void Wait(int pending) {
  auto& groups = CurrentFiber().groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const PendingCopy& copy : groups.front()) Land(copy);
    groups.pop_front();
  }
}

void WaitForPrevious() {
  Fiber& fiber = CurrentFiber();
  fiber.has_waited = true;
  if (block->rules.waits_late) return;
  fiber.waits = true;
  if (!block->previous_is_done) Yield();
}

void LoadTransposed(const void* row, uint32_t words[4]) {
  if (reinterpret_cast<uintptr_t>(row) % kCopyBytes != 0) {
    Die("a misaligned row of a matrix");
  }
  const int lane = current % kWarp;
  Warp& warp = block->warps[current / kWarp];
  warp.rows[lane] = row;
  WarpBarrier();
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int row_lane = 8 * matrix + 2 * (lane % 4) + i;
      std::memcpy(&pair[i],
                  static_cast<const char*>(warp.rows[row_lane]) +
                      sizeof(uint16_t) * (lane / 4),
                  sizeof(uint16_t));
    }
    words[matrix] = pair[0] | uint32_t{pair[1]} << 16;
  }
  WarpBarrier();
}

// PTX ISA, "Matrix fragments for mma.m16n8k16": with g = lane / 4 and
// t = lane % 4, A's registers hold rows g, g + 8, g, g + 8 at inputs
// 2t, 2t + 1 (the last two registers: 8 more); B's column g likewise; D's rows
// g, g, g + 8, g + 8 at columns 2t, 2t + 1 in turn.
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  const int lane = current % kWarp;
  Warp& warp = block->warps[current / kWarp];
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
