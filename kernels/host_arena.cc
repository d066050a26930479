#include "kernels/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace nacre::kernels {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// Pages of its own, which begin where a huge one does.
class HostArena::Mapping {
 public:
  // Null when the system has no room.
  static std::shared_ptr<Mapping> Create(size_t bytes) {
    const size_t size = RoundUp(bytes, kHugePage);
    void* const pages =
        mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (pages == MAP_FAILED) return nullptr;
    char* const first = static_cast<char*>(pages);
    const size_t skipped =
        -reinterpret_cast<uintptr_t>(first) & (kHugePage - 1);
    if (skipped > 0) munmap(first, skipped);
    munmap(first + skipped + size, kHugePage - skipped);
    return std::shared_ptr<Mapping>(new Mapping(first + skipped, size));
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  size_t room() const {
    absl::MutexLock lock(&mutex_);
    return size_ - used_;
  }

  // `bytes`, a multiple of the alignment, after the last piece; there is room.
  char* Take(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    char* const piece = data_ + used_;
    used_ += bytes;
    ++pieces_;
    if (!is_advised_ && used_ > kHugePage) {
      // Not before: a tiny model takes no huge page. Only a wish: the system
      // may refuse.
      madvise(data_, size_, MADV_HUGEPAGE);
      is_advised_ = true;
    }
    return piece;
  }

  // Where it was the last piece, or the only one, memory is used again, and
  // zeroed for that: whole huge pages go back to the system.
  void GiveBack(char* piece, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    const size_t end = used_;
    if (--pieces_ == 0) {
      used_ = 0;
    } else if (piece + bytes == data_ + end) {
      used_ -= bytes;
    } else {
      return;
    }
    const size_t first = std::min(RoundUp(used_, kHugePage), end);
    std::memset(data_ + used_, 0, first - used_);
    // Locked memory stays.
    if (first < end &&
        madvise(data_ + first, size_ - first, MADV_DONTNEED) != 0) {
      std::memset(data_ + first, 0, end - first);
    }
  }

 private:
  Mapping(char* data, size_t size) : data_(data), size_(size) {}

  char* const data_;
  const size_t size_;
  mutable absl::Mutex mutex_;
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  int pieces_ ABSL_GUARDED_BY(mutex_) = 0;  // that are not freed
  bool is_advised_ ABSL_GUARDED_BY(mutex_) = false;
};

class HostArena::Piece : public Buffer {
 public:
  Piece(std::shared_ptr<Mapping> mapping, char* data, size_t bytes)
      : mapping_(std::move(mapping)), data_(data), bytes_(bytes) {}
  ~Piece() override {
    // The whole mapping goes with its last piece.
    if (mapping_.use_count() > 1) {
      mapping_->GiveBack(data_, RoundUp(bytes_, kLineBytes));
    }
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void* data() override { return data_; }
  size_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<Mapping> mapping_;
  char* const data_;
  const size_t bytes_;
};

HostArena::HostArena() = default;
HostArena::~HostArena() = default;

absl::StatusOr<std::unique_ptr<Buffer>> HostArena::Allocate(size_t bytes) {
  const auto no_room = [bytes] {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", bytes, " bytes of host memory"));
  };
  if (bytes > std::numeric_limits<ptrdiff_t>::max() - 2 * kHugePage) {
    return no_room();
  }
  const size_t size = RoundUp(bytes, kLineBytes);
  std::shared_ptr<Mapping> mapping = current_;
  if (mapping == nullptr || mapping->room() < size) {
    mapping = Mapping::Create(std::max(size, kMappingBytes));
    // A limit of the address space may leave room for the piece alone.
    if (mapping == nullptr) mapping = Mapping::Create(size);
    if (mapping == nullptr) return no_room();
  }
  char* const data = mapping->Take(size);
  auto piece = std::make_unique<Piece>(mapping, data, bytes);
  if (current_ == nullptr || mapping->room() > current_->room()) {
    current_ = std::move(mapping);
  }
  return piece;
}

}  // namespace nacre::kernels
