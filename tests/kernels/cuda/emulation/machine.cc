#include "tests/kernels/cuda/emulation/machine.h"

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

#include "tests/kernels/cuda/emulation/held_stores.h"
#include "tests/kernels/cuda/emulation/machine_state.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/emulation/stack_switch.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr size_t kStackBytes = 32 << 10;
// Stacks of a warp end at different places of a page, so that what its threads
// work on does not take the same lines of a processor's cache.
constexpr size_t kStackStep = 9 * 64;
constexpr unsigned char kNotThereYet = 0xff;  // makes NaN
constexpr int kMostTurns = 40;  // of a warp before another has one
constexpr int kFewTurns = 3;    // before other blocks may have some

// Fibers of blocks that are done.
std::vector<std::vector<Fiber>> idle_fibers;

Turn scheduler;
std::mt19937 random_turns(1);

void Yield() { SwitchTurns(&CurrentFiber().turn, &scheduler); }

void Enter() {
  for (;;) {
    (*block->body)();
    CurrentFiber().done = true;
    Yield();
  }
}

// Runs the current thread until it yields.
void Resume() {
  Fiber& fiber = CurrentFiber();
  if (fiber.stack == nullptr) {
    const size_t bytes =
        kStackBytes + static_cast<size_t>(current % kWarp) * kStackStep;
    fiber.stack = std::make_unique<char[]>(bytes);
    PrepareTurn(fiber.stack.get(), bytes, Enter, &fiber.turn);
  }
  SwitchTurns(&scheduler, &fiber.turn);
}

// The number of arrivals at which the barrier that `arrived` just reached
// opens.
int64_t Target(int64_t arrived, int64_t threads) {
  return (arrived + threads - 1) / threads * threads;
}

void Land(const PendingCopy& copy) {
  if (copy.inside) {
    std::memcpy(copy.to, copy.has_read ? copy.bytes.data() : copy.from,
                copy.size);
  } else {
    std::memset(copy.to, 0, copy.size);
  }
}

// By a thread's own copies, not by the copy engine.
void LandOwn(const PendingCopy& copy) {
  Land(copy);
  for (int i = 0; i < copy.size / kWordBytes; ++i) {
    CopiedTo(copy.to)[i] = {block->number, current, CurrentFiber().shows};
  }
}

PendingCopy MakeCopy(void* to, const void* from, int size, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % size != 0 ||
      reinterpret_cast<uintptr_t>(from) % size != 0) {
    Die("a misaligned copy");
  }
  const bool reads_now = !block->previous_is_done ||
                         (block->rules.together && random_turns() % 2 == 0);
  PendingCopy copy = {to, from, size, inside, reads_now, {}};
  if (copy.has_read && inside) std::memcpy(copy.bytes.data(), from, size);
  return copy;
}

Barrier& BarrierAt(const uint64_t* barrier) {
  const auto found = block->barriers.find(barrier);
  if (found == block->barriers.end()) Die("a barrier that was not made");
  return found->second;
}

bool IsThere(const unsigned* count, unsigned least) {
  return static_cast<int>(*count - least) >= 0;
}

bool PhaseIsOver(const uint64_t* barrier, int parity) {
  Barrier& at = BarrierAt(barrier);
  if (at.phase % 2 == parity) at.TryEndPhase();
  return at.phase % 2 != parity;
}

// Runs every thread of `warp` that can; returns how many did.
int TakeTurn(int warp) {
  int ran = 0;
  const int first = random_turns() % kWarp;
  for (int lane = 0; lane < kWarp; ++lane) {
    const int thread = warp * kWarp + (first + lane) % kWarp;
    Fiber& fiber = block->fibers[thread];
    if (fiber.done || fiber.asks ||
        block->warps[warp].arrived < fiber.warp_target ||
        block->arrived < fiber.block_target ||
        block->groups[fiber.group].arrived < fiber.group_target ||
        (fiber.waits && !block->previous_is_done) ||
        (fiber.count != nullptr && !IsThere(fiber.count, fiber.least)) ||
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

// Lets those go on that wait for other devices.
void AskAgain() {
  for (Fiber& fiber : block->fibers) fiber.asks = false;
}

bool WaitsForDevices() {
  const auto begin = block->fibers.begin();
  return std::any_of(begin, begin + block->threads, [](const Fiber& fiber) {
    return !fiber.done && fiber.asks;
  });
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
    if (fiber.issued != block->issued[thread / kWarpgroup].size()) {
      Die("warps of a warpgroup that have different products");
    }
    if (block->rules.must_wait && !fiber.has_waited) {
      Die("a thread ended without WaitForPrevious");
    }
  }
}

}  // namespace

void Barrier::TryEndPhase() {
  if (arrived < arrivals || copied != announced) return;
  for (const PendingCopy& copy : copies) Land(copy);
  copies.clear();
  arrived = 0;
  announced = copied = 0;
  ++phase;
}

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
    fiber.shows = 0;
    fiber.shown = 0;
    fiber.issued = 0;
    fiber.barrier = nullptr;
    fiber.count = nullptr;
    fiber.asks = false;
  }
}

Block::~Block() { idle_fibers.push_back(std::move(state_->fibers)); }

void Block::Start() {
  block = state_.get();
  RunThreads();
}

bool Block::Finish() {
  block = state_.get();
  block->previous_is_done = true;
  AskAgain();
  RunThreads();
  if (WaitsForDevices()) return false;
  CheckEnd();
  return true;
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

bool Toss() { return random_turns() % 2 == 0; }

int Thread() { return current; }

void WarpBarrier() {
  Warp& warp = block->warps[current / kWarp];
  CurrentFiber().shown = CurrentFiber().shows;
  CurrentFiber().warp_target = Target(++warp.arrived, kWarp);
  Yield();
}

void BlockBarrier() {
  CurrentFiber().shown = CurrentFiber().shows;
  CurrentFiber().block_target = Target(++block->arrived, block->threads);
  Yield();
}

bool BlockBarrierOr(bool predicate) {
  const int64_t target = Target(block->arrived + 1, block->threads);
  BlockState::Vote& vote = block->votes[target / block->threads % 2];
  if (vote.target != target) vote = {target, false};
  vote.any |= predicate;
  BlockBarrier();
  return vote.any;
}

void GroupBarrier(int group, int threads) {
  if (group < 0 || group >= kMostGroups || current / threads != group) {
    Die("a thread at the barrier of a group that is not its own");
  }
  Fiber& fiber = CurrentFiber();
  fiber.shown = fiber.shows;
  fiber.group = group;
  fiber.group_target = block->groups[group].Arrive(threads);
  Yield();
}

namespace {

StorePlace CurrentPlace() {
  const Fiber& fiber = CurrentFiber();
  return {running_launch,
          block,
          current,
          current / kWarp,
          fiber.group,
          {fiber.warp_target, fiber.group_target, fiber.block_target}};
}

}  // namespace

void StoreForOthers(void* to, const void* value, int bytes) {
  HoldStore(CurrentPlace(), to, value, bytes);
}

void Fence() { LandStoresBehind(CurrentPlace()); }

void Announce() { HoldStoresBack(CurrentPlace()); }

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

bool HasCome(const unsigned* flag, unsigned least) {
  if (IsThere(flag, least)) return true;
  CurrentFiber().asks = true;
  Yield();
  return IsThere(flag, least);
}

uint64_t ShuffleXor(uint64_t value, int distance) {
  // No lane is two ahead of another: it waits for all at each. So two rows do.
  uint64_t* const row =
      block->warps[current / kWarp].shuffled[CurrentFiber().shuffles++ % 2];
  row[current % kWarp] = value;
  WarpBarrier();
  return row[current % kWarp ^ distance];
}

void Copy(void* to, const void* from, int bytes, bool inside) {
  const PendingCopy copy = MakeCopy(to, from, bytes, inside);
  if (copies == Copies::kEarly) {
    LandOwn(copy);
  } else {
    std::memset(to, kNotThereYet, static_cast<size_t>(bytes));
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
    for (const PendingCopy& copy : groups.front()) LandOwn(copy);
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

void MakeBarrier(uint64_t* barrier, int arrivals) {
  block->barriers[barrier] = {arrivals};
}

void Arrive(uint64_t* barrier, int bytes) {
  CurrentFiber().shown = CurrentFiber().shows;
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
                 static_cast<const char*>(from) + kCopyBytes * i, kCopyBytes,
                 kCopyBytes * i < inside);
    if (copies == Copies::kEarly) {
      Land(copy);
    } else {
      std::memset(copy.to, kNotThereYet, kCopyBytes);
      at.copies.push_back(copy);
    }
  }
}

}  // namespace nacre::kernels::cuda::emulation
