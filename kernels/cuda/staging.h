// The way from host to device: pinned memory that copies are queued from, so
// that neither side waits for the other. A few pieces take turns; the host
// waits only when it is all of them ahead.
//
// Thread-compatible, on the device's current thread. `device` outlives it.

#ifndef KERNELS_CUDA_STAGING_H_
#define KERNELS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"

namespace nacre::kernels::cuda {

class Staging {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // RESOURCE_EXHAUSTED when the system has no pinned memory.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(Device* device);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // `bytes` of pinned memory, 1 to kPieceBytes, aligned to 64, to be filled and
  // given to Send before the next Reserve.
  void* Reserve(size_t bytes);
  // Queues the copy of what Reserve gave.
  void Send(const void* staged, size_t bytes, void* to);

  // Copies what any host memory holds now.
  void Upload(const void* host, size_t bytes, void* to);

 private:
  static constexpr int kPieces = 4;

  struct Piece {
    char* memory = nullptr;
    cudaEvent_t sent = nullptr;  // the stream is past its copies
    bool is_under_way = false;
  };

  explicit Staging(Device* device) : device_(device) {}

  Device* const device_;
  Piece pieces_[kPieces];
  int current_ = 0;
  size_t used_ = 0;  // of the current piece
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_STAGING_H_
