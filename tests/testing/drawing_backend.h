// The reference backend as a device that draws tokens would be, for tests of
// what is above the backends.
//
// Thread-compatible, as the reference.

#ifndef TESTS_TESTING_DRAWING_BACKEND_H_
#define TESTS_TESTING_DRAWING_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/token_drawer.h"
#include "tests/testing/draw_token.h"

namespace nacre::testing {

class DrawingBackend : public kernels::ReferenceBackend,
                       private kernels::TokenDrawer {
 public:
  DrawingBackend() : ReferenceBackend(kernels::WeightType::kAuto) {}

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateOnHost(
      size_t bytes) override {
    if (bytes > host_bytes) {
      return absl::ResourceExhaustedError("no room on the host");
    }
    return Allocate(bytes);
  }
  void QueueCopyToHost(const void* device, size_t bytes, void* host) override {
    copied_bytes += bytes;
    CopyToHost(device, bytes, host);
  }
  bool copies_to_host() const override { return copies; }
  kernels::TokenDrawer* token_drawer() override { return this; }

  size_t host_bytes = SIZE_MAX;  // that there is room for at a time
  size_t copied_bytes = 0;
  bool copies = true;

 private:
  void Draw(const float* logits, int cols,
            absl::Span<const kernels::RowDraw> draws, int32_t* ids) override {
    for (const kernels::RowDraw& draw : draws) {
      *ids++ = DrawToken(absl::MakeConstSpan(logits + draw.row * cols,
                                             static_cast<size_t>(cols)),
                         draw.draw);
    }
  }
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_DRAWING_BACKEND_H_
