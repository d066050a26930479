#include "tests/kernels/cuda/emulation/grid.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "tests/kernels/cuda/emulation/held_stores.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda::emulation {
namespace {

// A block finds garbage in shared memory and may touch what it asked for.
constexpr unsigned char kUntouched = 0xff;  // NaN
constexpr int kEarlyBlocks = 2;             // of a grid, at most
constexpr uint32_t kMostTimes = 8;    // that a block goes on before others
constexpr uint32_t kMostRounds = 16;  // before kernels after it start

std::mt19937 random_overlap(1);
std::mt19937 random_order(1);

// That a block goes on before another one does: once, a few times, or as often
// as it can.
uint32_t TimesToGoOn() {
  const uint32_t times = random_order() % kMostTimes + 1;
  const uint32_t kind = random_order() % 4;
  return kind < 2 ? 1 : kind == 2 ? times : UINT32_MAX;
}

}  // namespace

void SeedOverlap(uint32_t seed) {
  random_overlap.seed(seed);
  random_order.seed(seed);
}

uint32_t GridRun::NumBlocks() const {
  return launch_.blocks.x * launch_.blocks.y * launch_.blocks.z;
}

void GridRun::Enter(uint32_t index) {
  const dim3& blocks = launch_.blocks;
  running_launch = this;
  grid_shape = blocks;
  block_shape = dim3(static_cast<unsigned>(launch_.threads));
  block_index = dim3(index % blocks.x, index / blocks.x % blocks.y,
                     index / blocks.x / blocks.y);
}

void GridRun::CheckShared() const {
  // Each byte is what the one before it is.
  const unsigned char* const rest = launch_.shared + launch_.shared_bytes;
  const size_t count = launch_.shared_size - launch_.shared_bytes;
  if (count > 0 &&
      (rest[0] != kUntouched || std::memcmp(rest, rest + 1, count - 1) != 0)) {
    Die("a kernel wrote past its shared memory");
  }
}

BlockRules GridRun::Rules() const {
  return {launch_.overlaps, launch_.kernel == settings.late_wait,
          settings.late_count, launch_.together};
}

void GridRun::StartEarly() {
  if (std::exchange(has_started_, true)) return;
  counts.early_kernels.insert(launch_.kernel);
  std::memset(launch_.shared, kUntouched, launch_.shared_size);
  for (int i = 0; i < kEarlyBlocks; ++i) {
    const auto index = static_cast<uint32_t>(random_overlap() % NumBlocks());
    if (early_.count(index) > 0) continue;
    WaitingBlock& early = early_[index];
    Enter(index);
    early.block =
        std::make_unique<Block>(launch_.threads, launch_.thread, Rules());
    early.block->Start();
    early.shared.assign(launch_.shared, launch_.shared + launch_.shared_bytes);
    std::memset(launch_.shared, kUntouched, launch_.shared_bytes);
  }
  CheckShared();
}

std::vector<uint32_t> GridRun::BlocksInSomeOrder() const {
  std::vector<uint32_t> order(NumBlocks());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_order);
  return order;
}

void GridRun::RunTogether(const std::function<void()>& start_others) {
  std::vector<WaitingBlock> blocks(NumBlocks());
  for (WaitingBlock& each : blocks) {
    each.block =
        std::make_unique<Block>(launch_.threads, launch_.thread, Rules());
    each.shared.assign(launch_.shared_bytes, kUntouched);
  }
  uint32_t others_in = random_overlap() % kMostRounds;
  // Goes on only where no other can, at times.
  const uint32_t slowest = random_order() % (2 * NumBlocks());
  for (size_t running = blocks.size(); running > 0;) {
    if (others_in-- == 0) start_others();
    std::memset(launch_.shared, kUntouched, launch_.shared_size);
    bool progress = false;
    std::vector<uint32_t> order = BlocksInSomeOrder();
    const auto slow = std::find(order.begin(), order.end(), slowest);
    if (slow != order.end()) std::rotate(slow, slow + 1, order.end());
    for (const uint32_t index : order) {
      WaitingBlock& each = blocks[index];
      if (each.block->is_done() || (index == slowest && progress)) continue;
      Enter(index);
      std::memcpy(launch_.shared, each.shared.data(), launch_.shared_bytes);
      for (uint32_t times = TimesToGoOn(); times > 0; --times) {
        if (!each.block->Advance()) break;
        progress = true;
      }
      if (each.block->is_done()) --running;
      each.shared.assign(launch_.shared, launch_.shared + launch_.shared_bytes);
    }
    CheckShared();
    if (!progress) Die("blocks of a launch wait for each other for ever");
  }
  start_others();
  LandStores(this);
}

void GridRun::RunBlock(uint32_t index) {
  Enter(index);
  WaitingBlock run;
  if (const auto found = early_.find(index); found != early_.end()) {
    run = std::move(found->second);
    early_.erase(found);
  } else if (const auto stood = waiting_.find(index); stood != waiting_.end()) {
    run = std::move(stood->second);
    waiting_.erase(stood);
  } else {
    run.block =
        std::make_unique<Block>(launch_.threads, launch_.thread, Rules());
    std::memset(launch_.shared, kUntouched, launch_.shared_bytes);
  }
  std::copy(run.shared.begin(), run.shared.end(), launch_.shared);
  if (run.block->Finish()) return;
  run.shared.assign(launch_.shared, launch_.shared + launch_.shared_bytes);
  waiting_.emplace(index, std::move(run));
}

bool GridRun::Run(const std::function<void()>& start_others) {
  if (launch_.together) {
    RunTogether(start_others);
    return true;
  }
  has_started_ = true;
  std::memset(launch_.shared, kUntouched, launch_.shared_size);
  if (!std::exchange(runs_, true)) {
    others_at_ = random_overlap() % (NumBlocks() + 1);
    left_ = BlocksInSomeOrder();
    std::reverse(left_.begin(), left_.end());
  }
  std::vector<uint32_t> stood;
  for (const auto& [index, block] : waiting_) stood.push_back(index);
  for (const uint32_t index : stood) RunBlock(index);
  while (!left_.empty()) {
    if (NumBlocks() - left_.size() == others_at_) {
      CheckShared();
      start_others();
      std::memset(launch_.shared, kUntouched, launch_.shared_size);
    }
    const uint32_t index = left_.back();
    left_.pop_back();
    RunBlock(index);
  }
  CheckShared();
  if (!waiting_.empty()) return false;
  if (others_at_ == NumBlocks()) start_others();
  LandStores(this);
  return true;
}

}  // namespace nacre::kernels::cuda::emulation
