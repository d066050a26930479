// TokenDrawer of the cuda backend: sends what is to be drawn and queues the
// kernels.
//
// Thread-compatible, on the device's current thread. `device`, `staging` and
// `step` outlive it.

#ifndef KERNELS_CUDA_CUDA_TOKEN_DRAWER_H_
#define KERNELS_CUDA_CUDA_TOKEN_DRAWER_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/draw_tokens.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/token_drawer.h"

namespace nacre::kernels::cuda {

class CudaTokenDrawer : public TokenDrawer {
 public:
  CudaTokenDrawer(Device* device, Staging* staging, StepUpload* step)
      : device_(device), staging_(staging), step_(step) {}

  // Adds draws to those of the step that comes next.
  void AddToStep(absl::Span<const RowDraw> draws);

  void Draw(const float* logits, int cols, absl::Span<const RowDraw> draws,
            int32_t* ids) override;

 private:
  Device* const device_;
  Staging* const staging_;
  StepUpload* const step_;
  std::vector<DeviceDraw> step_draws_;  // that were added to it last
  std::vector<DeviceDraw> host_draws_;  // scratch
  std::unique_ptr<Buffer> draws_;
  std::unique_ptr<Buffer> keys_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_TOKEN_DRAWER_H_
