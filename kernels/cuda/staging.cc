#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::kernels::cuda {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(Device* device) {
  std::unique_ptr<Staging> staging(new Staging(device));
  for (Piece& piece : staging->pieces_) {
    void* memory = nullptr;
    cudaError_t error = cudaMallocHost(&memory, kPieceBytes);
    if (error != cudaSuccess) {
      return ToStatus(error,
                      absl::StrCat(kPieceBytes, " bytes of pinned memory"));
    }
    piece.memory = static_cast<char*>(memory);
    error = cudaEventCreateWithFlags(&piece.sent, cudaEventDisableTiming);
    if (error != cudaSuccess) return ToStatus(error, "cudaEventCreate");
  }
  return staging;
}

Staging::~Staging() {
  device_->MakeCurrent();
  // Copies may still read the pieces.
  device_->Synchronize().IgnoreError();
  for (Piece& piece : pieces_) {
    if (piece.sent != nullptr) cudaEventDestroy(piece.sent);
    if (piece.memory != nullptr) cudaFreeHost(piece.memory);
  }
}

void* Staging::Reserve(size_t bytes) {
  NACRE_CHECK(bytes > 0 && bytes <= kPieceBytes, "no piece is that large");
  device_->stream();  // what queues recorded kernels may reserve, too
  if (bytes > kPieceBytes - used_) {
    Piece& full = pieces_[current_];
    full.is_under_way = device_->Check(
        cudaEventRecord(full.sent, device_->stream()), "cudaEventRecord");
    current_ = (current_ + 1) % kPieces;
    used_ = 0;
    Piece& next = pieces_[current_];
    if (next.is_under_way) {
      device_->Check(cudaEventSynchronize(next.sent), "the device");
      next.is_under_way = false;
    }
  }
  char* const memory = pieces_[current_].memory + used_;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  used_ = std::min(used_ + whole, kPieceBytes);
  return memory;
}

void Staging::Send(const void* staged, size_t bytes, void* to) {
  device_->Check(cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice,
                                 device_->stream()),
                 "a copy to the device");
}

void Staging::Upload(const void* host, size_t bytes, void* to) {
  const auto* from = static_cast<const char*>(host);
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const size_t part = std::min(bytes, kPieceBytes);
    void* const staged = Reserve(part);
    std::memcpy(staged, from, part);
    Send(staged, part, out);
    from += part;
    out += part;
    bytes -= part;
  }
}

}  // namespace nacre::kernels::cuda
