// Floats that a backend has computed, where they lie: in memory of the host or
// of its device. A caller reads them here, or copies them
// to the host.
//
// A view: it owns nothing. The memory and the backend outlive it.
//
// Thread-compatible. Of a device only the thread that calls the backend's ops
// may copy them.

#ifndef KERNELS_FLOAT_VIEW_H_
#define KERNELS_FLOAT_VIEW_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace nacre::kernels {

class MemoryOps;  // kernels/memory_ops.h

enum class Location { kHost, kDevice };

class FloatView {
 public:
  FloatView() = default;  // none
  // Memory of the host.
  explicit FloatView(absl::Span<const float> values)
      : data_(values.data()), size_(values.size()) {}
  // Memory of `backend`, which lies where MemoryOps::location says.
  FloatView(MemoryOps* backend, const float* data, size_t size);

  Location location() const {
    return device_ == nullptr ? Location::kHost : Location::kDevice;
  }
  MemoryOps* device() const { return device_; }  // null: the host
  // An address of location().
  const float* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Fatal where it passes the end.
  FloatView subview(size_t first, size_t count) const;

  // Fatal unless it lies on the host.
  absl::Span<const float> host() const;
  // Copies to host memory. Of a device it waits for queued ops and is good if
  // MemoryOps::Synchronize says so afterwards.                        out
  // [size()]
  void CopyTo(float* out) const;
  // host(), or, of a device, a copy in *scratch, which grows.
  absl::Span<const float> OnHost(std::vector<float>* scratch) const;

 private:
  MemoryOps* device_ = nullptr;
  const float* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_FLOAT_VIEW_H_
