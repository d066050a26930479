#include "tests/kernels/cuda/emulation/machine.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/emulation/tensor_core.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 32 << 10;
constexpr int kCopyBytes = 16;
constexpr unsigned char kNotThereYet = 0xff;  // makes NaN
constexpr int kMostGroups = 2;                // of GroupBarrier
constexpr int kMostTurns = 40;  // of a warp before another has one
constexpr int kFewTurns = 3;    // before other blocks may have some

struct PendingCopy {
  void* to;
  const void* from;
  bool inside;
  // Of one that was issued while the kernel before still ran, and of some where
  // other blocks do: what it read.
  bool has_read;
  std::array<char, kCopyBytes> bytes;
};

struct PendingProduct {
  float* d;
  int row_tiles;
  const char* weights;  // in shared memory, or null
  std::array<uint32_t, 4> a;
  const char* rows;
  int step;
  bool keep;
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
  int64_t group_target = 0;
  int group = 0;
  bool waits = false;
  bool has_waited = false;
  int shuffles = 0;
  std::vector<PendingCopy> open;
  std::deque<std::vector<PendingCopy>> groups;
  const uint64_t* barrier = nullptr;  // that it waits for
  int parity = 0;
  const unsigned* count = nullptr;  // that it waits for, until it is `least`
  unsigned least = 0;
  std::vector<PendingProduct> open_products;
  std::deque<std::vector<PendingProduct>> product_groups;
};

struct Warp {
  int64_t arrived = 0;
  Factors rows[16];    // of a tensor core's left matrix
  Factors columns[8];  // of its right one
  uint64_t shuffled[2][kWarp];
  const void* sources[kWarp];  // of lanes
};

// A barrier of a number of threads that may be another each time.
struct Group {
  int64_t arrived = 0;
  int64_t target = 0;  // arrivals at which it opens
  int threads = 0;

  int64_t Arrive(int of_threads) {
    if (arrived == target) {
      threads = of_threads;
      target += threads;
    }
    if (threads != of_threads) Die("a barrier that others are to open");
    ++arrived;
    return target;
  }
};

// In shared memory. A phase with copies ends when a thread waits for it.
struct Barrier {
  int arrivals = 0;
  int arrived = 0;
  int64_t announced = 0;  // bytes
  int64_t copied = 0;
  int64_t phase = 0;
  std::vector<PendingCopy> copies = {};

  void TryEndPhase();
};

// What StoreForOthers has not brought to memory yet.
struct HeldStore {
  const void* block;
  int thread;
  // Barriers that the thread had passed: of its warp, its group and its block.
  int64_t passed[3];
  int group;
  void* to;
  std::array<char, 8> value;
  int bytes;
  bool late = false;  // until the launch is over
};
std::deque<HeldStore> held_stores;

// Fibers of blocks that are done.
std::vector<std::vector<Fiber>> idle_fibers;

}  // namespace

struct BlockState {
  const std::function<void()>* body;
  BlockRules rules;
  int threads;
  bool previous_is_done = false;
  int64_t arrived = 0;
  std::array<Group, kMostGroups> groups = {};
  std::vector<Warp> warps;
  std::map<const uint64_t*, Barrier> barriers;
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

PendingCopy MakeCopy(void* to, const void* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % kCopyBytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % kCopyBytes != 0) {
    Die("a misaligned copy");
  }
  const bool reads_now = !block->previous_is_done ||
                         (block->rules.together && random_turns() % 2 == 0);
  PendingCopy copy = {to, from, inside, reads_now, {}};
  if (copy.has_read && inside) {
    std::memcpy(copy.bytes.data(), from, kCopyBytes);
  }
  return copy;
}

Barrier& BarrierAt(const uint64_t* barrier) {
  const auto found = block->barriers.find(barrier);
  if (found == block->barriers.end()) Die("a barrier that was not made");
  return found->second;
}

bool HasCome(const unsigned* count, unsigned least) {
  return static_cast<int>(*count - least) >= 0;
}

bool PhaseIsOver(const uint64_t* barrier, int parity) {
  Barrier& at = BarrierAt(barrier);
  if (at.phase % 2 == parity) at.TryEndPhase();
  return at.phase % 2 != parity;
}

void Barrier::TryEndPhase() {
  if (arrived < arrivals || copied != announced) return;
  for (const PendingCopy& copy : copies) Land(copy);
  copies.clear();
  arrived = 0;
  announced = copied = 0;
  ++phase;
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
        block->groups[fiber.group].arrived < fiber.group_target ||
        (fiber.waits && !block->previous_is_done) ||
        (fiber.count != nullptr && !HasCome(fiber.count, fiber.least)) ||
        (fiber.barrier != nullptr &&
         !PhaseIsOver(fiber.barrier, fiber.parity))) {
      continue;
    }
    current = thread;
    Resume();
    ++ran;
  }
  return ran;
}

void SetPair(Factors& factors, int first, uint32_t word) {
  factors.Set(first, static_cast<uint16_t>(word));
  factors.Set(first + 1, static_cast<uint16_t>(word >> 16));
}

// This lane's share of the left matrix.
void SetRows(Warp& warp, const uint32_t a[4]) {
  const int group = current % kWarp / 4;
  const int pair = current % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    SetPair(warp.rows[group + i % 2 * 8], pair + i / 2 * 8, a[i]);
  }
}

// Of a row of 64 inputs in the swizzle of 128 bytes: those of a step.
Factors SharedRow(const char* rows, int row, int step) {
  Factors factors;
  for (int half = 0; half < 2; ++half) {
    uint32_t words[4];
    std::memcpy(words, rows + 128 * row + 16 * ((2 * step + half) ^ row % 8),
                sizeof(words));
    for (int i = 0; i < 4; ++i) SetPair(factors, 8 * half + 2 * i, words[i]);
  }
  return factors;
}

// By all lanes of a warp.
void RunProduct(const PendingProduct& product) {
  const int group = current % kWarp / 4;
  const int of_group = current / kWarp % 4;
  Warp& warp = block->warps[current / kWarp];
  const bool shared = product.weights != nullptr;
  if (!shared) SetRows(warp, product.a.data());
  WarpBarrier();
  Factors weights[2];
  for (int i = 0; i < 2; ++i) {
    const int output = group + 8 * i;
    weights[i] = shared ? SharedRow(product.weights, 16 * of_group + output,
                                    product.step)
                        : warp.rows[output];
  }
  for (int i = 0; i < 2 * product.row_tiles; ++i) {
    const int row = i / 2 * 8 + current % 4 * 2 + i % 2;
    const Factors inputs = SharedRow(product.rows, row, product.step);
    for (int j = 0; j < 2; ++j) {
      float& d = product.d[i / 2 * 4 + 2 * j + i % 2];
      d = std::bit_cast<float>(FusedSum(
          weights[j], inputs, std::bit_cast<uint32_t>(product.keep ? d : 0)));
    }
  }
  WarpBarrier();
}

bool IsDone(const BlockState& state) {
  const auto begin = state.fibers.begin();
  return std::all_of(begin, begin + state.threads,
                     [](const Fiber& fiber) { return fiber.done; });
}

// Runs threads of the block for a while, a warp up to so many times. False:
// none can go on.
bool TakeTurns(int most_turns) {
  std::vector<int> order(block->warps.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_turns);
  bool progress = false;
  for (const int warp : order) {
    int turns = random_turns() % most_turns;
    while (turns-- > 0 && TakeTurn(warp) > 0) progress = true;
  }
  // All may have had no turn by chance.
  for (const int warp : order) {
    if (!progress) progress = TakeTurn(warp) > 0;
  }
  return progress;
}

// Runs the threads of the block until all are done, or none can go on.
void RunThreads() {
  while (!IsDone(*block) && TakeTurns(kMostTurns)) {
  }
}

// Of the block, which does nothing more.
void CheckEnd() {
  for (const auto& [at, barrier] : block->barriers) {
    if (!barrier.copies.empty()) Die("a block ended with copies under way");
  }
  for (int thread = 0; thread < block->threads; ++thread) {
    const Fiber& fiber = block->fibers[thread];
    if (!fiber.done) Die("threads wait at a barrier that not all reach");
    if (!fiber.open.empty() || !fiber.groups.empty()) {
      Die("a block ended with copies under way");
    }
    if (!fiber.open_products.empty() || !fiber.product_groups.empty()) {
      Die("a block ended with products under way");
    }
    if (block->rules.must_wait && !fiber.has_waited) {
      Die("a thread ended without WaitForPrevious");
    }
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
  // No fiber is on these stacks.
  if (state.fibers.size() < static_cast<size_t>(threads)) {
    state.fibers.resize(threads);
  }
  for (int thread = 0; thread < threads; ++thread) {
    Fiber& fiber = state.fibers[thread];
    fiber.done = false;
    fiber.warp_target = 0;
    fiber.block_target = 0;
    fiber.group_target = 0;
    fiber.group = 0;
    fiber.waits = false;
    fiber.has_waited = false;
    fiber.shuffles = 0;
    fiber.barrier = nullptr;
    fiber.count = nullptr;
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
  CheckEnd();
}

bool Block::Advance() {
  block = state_.get();
  block->previous_is_done = true;
  const int most_turns =
      random_turns() % 2 == 0 ? random_turns() % kFewTurns + 1 : kMostTurns;
  if (is_done() || !TakeTurns(most_turns)) return false;
  if (is_done()) CheckEnd();
  return true;
}

bool Block::is_done() const { return IsDone(*state_); }

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

void GroupBarrier(int group, int threads) {
  if (group < 0 || group >= kMostGroups || current / threads != group) {
    Die("a thread at the barrier of a group that is not its own");
  }
  Fiber& fiber = CurrentFiber();
  fiber.group = group;
  fiber.group_target = block->groups[group].Arrive(threads);
  Yield();
}

namespace {

void LandStore(const HeldStore& store) {
  std::memcpy(store.to, store.value.data(), store.bytes);
}

// Whether the current thread comes behind it.
bool IsBehind(const HeldStore& store) {
  if (store.block != block || store.late) return false;
  const Fiber& fiber = CurrentFiber();
  return store.thread == current ||
         (store.thread / kWarp == current / kWarp &&
          store.passed[0] < fiber.warp_target) ||
         (store.group == fiber.group && store.passed[1] < fiber.group_target) ||
         store.passed[2] < fiber.block_target;
}

}  // namespace

void StoreForOthers(void* to, const void* value, int bytes) {
  const Fiber& fiber = CurrentFiber();
  HeldStore store = {
      block,
      current,
      {fiber.warp_target, fiber.group_target, fiber.block_target},
      fiber.group,
      to,
      {},
      bytes};
  std::memcpy(store.value.data(), value, bytes);
  held_stores.push_back(store);
}

void Fence() {
  for (const HeldStore& store : held_stores) {
    if (IsBehind(store)) LandStore(store);
  }
  std::erase_if(held_stores, IsBehind);
}

void Announce() {
  for (HeldStore& store : held_stores) {
    if (store.block == block) store.late = true;
  }
}

void LandStores() {
  std::for_each(held_stores.begin(), held_stores.end(), LandStore);
  held_stores.clear();
}

void CountBlock(unsigned* count) {
  Fence();
  Announce();
  ++*count;
}

void WaitForBlocks(const unsigned* count, unsigned least) {
  counts.waited_for.insert(count);
  if (block->rules.late_count == count) return;
  Fiber& fiber = CurrentFiber();
  fiber.count = count;
  fiber.least = least;
  // Others may come first even where it need not wait.
  Yield();
  fiber.count = nullptr;
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
  const PendingCopy copy = MakeCopy(to, from, inside);
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

namespace {

// Where the lanes of this warp find rows of matrices.
const void* const* ShareRows(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % kCopyBytes != 0) {
    Die("a misaligned row of a matrix");
  }
  Warp& warp = block->warps[current / kWarp];
  warp.sources[current % kWarp] = row;
  WarpBarrier();
  return warp.sources;
}

uint16_t ElementOf(const void* row, int i) {
  uint16_t element;
  std::memcpy(&element, static_cast<const uint16_t*>(row) + i, sizeof(element));
  return element;
}

}  // namespace

void LoadMatrices(uint32_t words[4], const void* row) {
  const void* const* const rows = ShareRows(row);
  const int lane = current % kWarp;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const void* const from = rows[8 * matrix + lane / 4];
    words[matrix] = ElementOf(from, lane % 4 * 2) |
                    uint32_t{ElementOf(from, lane % 4 * 2 + 1)} << 16;
  }
  WarpBarrier();
}

void LoadTransposed(const void* row, uint32_t words[4]) {
  const void* const* const rows = ShareRows(row);
  const int lane = current % kWarp;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const void* const* const from = rows + 8 * matrix + lane % 4 * 2;
    words[matrix] = ElementOf(from[0], lane / 4) |
                    uint32_t{ElementOf(from[1], lane / 4)} << 16;
  }
  WarpBarrier();
}

// PTX ISA, "Matrix fragments for mma.m16n8k16": with g = lane / 4 and
// t = lane % 4, A's registers hold rows g, g + 8, g, g + 8 at inputs
// 2t, 2t + 1 (the last two registers: 8 more); B's column g likewise; D's rows
// g, g, g + 8, g + 8 at columns 2t, 2t + 1 in turn.
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  const int group = current % kWarp / 4;
  const int pair = current % 4 * 2;
  Warp& warp = block->warps[current / kWarp];
  SetRows(warp, a);
  for (int i = 0; i < 2; ++i) {
    SetPair(warp.columns[group], pair + i * 8, b[i]);
  }
  WarpBarrier();
  for (int i = 0; i < 4; ++i) {
    d[i] = std::bit_cast<float>(FusedSum(warp.rows[group + i / 2 * 8],
                                         warp.columns[pair + i % 2],
                                         std::bit_cast<uint32_t>(d[i])));
  }
  WarpBarrier();
}

void MakeBarrier(uint64_t* barrier, int arrivals) {
  block->barriers[barrier] = {arrivals};
}

void Arrive(uint64_t* barrier, int bytes) {
  Barrier& at = BarrierAt(barrier);
  at.TryEndPhase();
  if (++at.arrived > at.arrivals) Die("too many arrivals at a barrier");
  at.announced += bytes;
  if (at.copies.empty()) at.TryEndPhase();
}

void WaitPhase(uint64_t* barrier, int parity) {
  Fiber& fiber = CurrentFiber();
  fiber.barrier = barrier;
  fiber.parity = parity;
  while (!PhaseIsOver(barrier, parity)) Yield();
  fiber.barrier = nullptr;
}

void CopyBulk(void* to, const void* from, int bytes, int inside, int row,
              uint64_t* barrier) {
  if (bytes % kCopyBytes != 0 || inside % kCopyBytes != 0) {
    Die("a bulk copy of a part of 16 bytes");
  }
  Barrier& at = BarrierAt(barrier);
  at.copied += bytes;
  for (int i = 0; i < bytes / kCopyBytes; ++i) {
    const PendingCopy copy =
        MakeCopy(static_cast<char*>(to) + kCopyBytes * (i ^ row % 8),
                 static_cast<const char*>(from) + kCopyBytes * i,
                 kCopyBytes * i < inside);
    if (copies == Copies::kEarly) {
      Land(copy);
    } else {
      std::memset(copy.to, kNotThereYet, kCopyBytes);
      at.copies.push_back(copy);
    }
  }
}

void MultiplyAddWide(float* d, int row_tiles, const void* weights,
                     const uint32_t* a, const void* rows, int step, bool keep) {
  constexpr uintptr_t kAlign = 1024;
  if (reinterpret_cast<uintptr_t>(weights) % kAlign != 0 ||
      reinterpret_cast<uintptr_t>(rows) % kAlign != 0) {
    Die("a misaligned operand of a product");
  }
  PendingProduct product = {d,
                            row_tiles,
                            static_cast<const char*>(weights),
                            {},
                            static_cast<const char*>(rows),
                            step,
                            keep};
  if (a != nullptr) std::copy_n(a, 4, product.a.begin());
  CurrentFiber().open_products.push_back(product);
}

void CommitProducts() {
  Fiber& fiber = CurrentFiber();
  fiber.product_groups.push_back(std::move(fiber.open_products));
  fiber.open_products.clear();
}

void WaitProducts(int pending) {
  while (static_cast<int>(CurrentFiber().product_groups.size()) > pending) {
    for (const PendingProduct& product :
         CurrentFiber().product_groups.front()) {
      RunProduct(product);
    }
    CurrentFiber().product_groups.pop_front();
  }
}

}  // namespace nacre::kernels::cuda::emulation
