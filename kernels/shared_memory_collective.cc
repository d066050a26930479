#include "kernels/shared_memory_collective.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cpu/awaited_count.h"

namespace nacre::kernels {
namespace {

// Values that are summed together: in the level-1 cache of any CPU.
constexpr size_t kSumTogether = 512;
// Pieces begin at whole cache lines, if the values do.
constexpr size_t kLineValues = 64 / sizeof(float);

// What a rank is in, for the others to read.
struct RankCall {
  const char* name = nullptr;
  const float* from = nullptr;
  float* to = nullptr;
  size_t count = 0;
};

// The state that all ranks share.
class RankGroup {
 public:
  explicit RankGroup(int ranks) : ranks_(static_cast<size_t>(ranks)) {
    NACRE_CHECK(ranks >= 1 && ranks <= kMostRanks &&
                    std::has_single_bit(static_cast<unsigned>(ranks)),
                "ranks are no power of two, or too many");
  }

  size_t ranks() const { return ranks_; }

  // Shows a rank's call to the others, and waits for theirs.
  absl::Status Begin(size_t rank, const RankCall& call) {
    // Of a rank that has failed, others may still read the call before.
    NACRE_RETURN_IF_ERROR(reason());
    calls_[rank] = call;
    NACRE_RETURN_IF_ERROR(Meet());
    NACRE_CHECK(std::strcmp(calls_[0].name, call.name) == 0 &&
                    calls_[0].count == call.count,
                "ranks call different collectives");
    return absl::OkStatus();
  }
  const RankCall& call(size_t rank) const { return calls_[rank]; }
  // Waits until all ranks are done with the memory that the calls show.
  absl::Status End() { return Meet(); }

  // Why the first rank that failed did so; OK where none has failed.
  absl::Status reason() {
    if (!aborted_.load(std::memory_order_acquire)) return absl::OkStatus();
    const absl::MutexLock lock(&mutex_);
    return reason_;
  }

  void Abort(const absl::Status& reason) {
    {
      const absl::MutexLock lock(&mutex_);
      if (!reason_.ok()) return;
      reason_ = reason;
    }
    aborted_.store(true, std::memory_order_release);
    meetings_.Raise();
  }

 private:
  absl::Status Meet() {
    // First: of two that come at once, an abort either changes it afterwards or
    // is seen here.
    const uint32_t meeting = meetings_.value();
    if (!aborted_.load(std::memory_order_acquire)) {
      if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
        arrived_.store(0, std::memory_order_relaxed);
        meetings_.Raise();
      } else {
        meetings_.AwaitChange(meeting);
      }
    }
    return reason();
  }

  const size_t ranks_;
  RankCall calls_[kMostRanks];  // each written by its rank, between meetings
  AwaitedCount meetings_;
  std::atomic<size_t> arrived_{0};  // at the next one
  std::atomic<bool> aborted_{false};
  absl::Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
};

// Values [begin, begin + count) of ranks [first, first + ranks), in pairs.
//   count <= kSumTogether
void SumRanks(const RankGroup& group, size_t first, size_t ranks, size_t begin,
              size_t count, float* sum) {
  if (ranks == 1) {
    std::memcpy(sum, group.call(first).from + begin, count * sizeof(float));
    return;
  }
  if (ranks == 2) {
    const float* const a = group.call(first).from + begin;
    const float* const b = group.call(first + 1).from + begin;
    for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
    return;
  }
  float right[kSumTogether];
  SumRanks(group, first, ranks / 2, begin, count, sum);
  SumRanks(group, first + ranks / 2, ranks / 2, begin, count, right);
  for (size_t i = 0; i < count; ++i) sum[i] += right[i];
}

class SharedMemoryCollective : public Collective {
 public:
  SharedMemoryCollective(std::shared_ptr<RankGroup> group, int rank)
      : group_(std::move(group)), rank_(static_cast<size_t>(rank)) {}
  ~SharedMemoryCollective() override {
    group_->Abort(absl::AbortedError(absl::StrCat("rank ", rank_, " ended")));
  }
  SharedMemoryCollective(const SharedMemoryCollective&) = delete;
  SharedMemoryCollective& operator=(const SharedMemoryCollective&) = delete;

  int rank() const override { return static_cast<int>(rank_); }
  int ranks() const override { return static_cast<int>(group_->ranks()); }

  absl::Status AllReduce(const float* part, size_t count, float* sum) override {
    NACRE_RETURN_IF_ERROR(
        group_->Begin(rank_, {"all-reduce", part, sum, count}));
    const size_t ranks = group_->ranks();
    const size_t end = PieceBegin(rank_ + 1, count);
    float values[kSumTogether];
    for (size_t i = PieceBegin(rank_, count); i < end; i += kSumTogether) {
      const size_t size = std::min(kSumTogether, end - i);
      SumRanks(*group_, 0, ranks, i, size, values);
      for (size_t rank = 0; rank < ranks; ++rank) {
        std::memcpy(group_->call(rank).to + i, values, size * sizeof(float));
      }
    }
    return group_->End();
  }

  absl::Status Outcome() override { return group_->reason(); }

  absl::Status Broadcast(float* values, size_t count) override {
    NACRE_RETURN_IF_ERROR(
        group_->Begin(rank_, {"broadcast", values, nullptr, count}));
    if (rank_ > 0 && count > 0) {
      std::memcpy(values, group_->call(0).from, count * sizeof(float));
    }
    return group_->End();
  }

  absl::Status Gather(const float* part, int rows, int cols,
                      float* whole) override {
    const size_t width = static_cast<size_t>(cols);
    const size_t height = static_cast<size_t>(rows);
    NACRE_RETURN_IF_ERROR(
        group_->Begin(rank_, {"gather", part, whole, height * width}));
    float* to = group_->call(0).to + rank_ * width;
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(to, part + row * width, width * sizeof(float));
      to += group_->ranks() * width;
    }
    return group_->End();
  }

  void Abort(const absl::Status& reason) override {
    NACRE_CHECK(!reason.ok(), "an abort without a reason");
    group_->Abort(reason);
  }

 private:
  // The first value of a rank's piece.
  size_t PieceBegin(size_t rank, size_t count) const {
    if (rank == group_->ranks()) return count;
    return count * rank / group_->ranks() / kLineValues * kLineValues;
  }

  const std::shared_ptr<RankGroup> group_;
  const size_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeSharedMemoryCollectives(
    int ranks) {
  const auto group = std::make_shared<RankGroup>(ranks);
  std::vector<std::unique_ptr<Collective>> collectives;
  collectives.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    collectives.push_back(
        std::make_unique<SharedMemoryCollective>(group, rank));
  }
  return collectives;
}

}  // namespace nacre::kernels
