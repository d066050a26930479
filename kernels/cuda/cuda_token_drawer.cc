#include "kernels/cuda/cuda_token_drawer.h"

#include "common/check.h"

namespace nacre::kernels::cuda {

void CudaTokenDrawer::Draw(const float* logits, int cols,
                           absl::Span<const RowDraw> draws, int32_t* ids) {
  host_draws_.clear();
  for (const RowDraw& draw : draws) {
    NACRE_CHECK(draw.draw.vocab_limit >= 1 && draw.draw.vocab_limit <= cols,
                "a draw from more ids than there are, or from none");
    host_draws_.push_back({draw.draw, draw.row});
  }
  if (draws.empty() || !device_->ok()) return;
  const size_t bytes = host_draws_.size() * sizeof(DeviceDraw);
  const size_t num_keys = draws.size() * static_cast<size_t>(DrawParts(cols));
  if (!device_->Grow(bytes, &draws_) ||
      !device_->Grow(num_keys * sizeof(uint64_t), &keys_)) {
    return;
  }
  staging_->Upload(host_draws_.data(), bytes, draws_->data());
  DrawArgs args;
  args.logits = logits;
  args.cols = cols;
  args.draws = static_cast<const DeviceDraw*>(draws_->data());
  args.count = static_cast<int>(draws.size());
  args.keys = static_cast<uint64_t*>(keys_->data());
  args.ids = ids;
  device_->Check(DrawTokens(device_->queue(), args), "drawing tokens");
}

}  // namespace nacre::kernels::cuda
