#include "kernels/cuda/cuda_token_drawer.h"

#include "common/check.h"

namespace nacre::kernels::cuda {

void CudaTokenDrawer::AddToStep(absl::Span<const RowDraw> draws) {
  step_draws_.clear();
  for (const RowDraw& draw : draws) {
    step_draws_.push_back({draw.draw, draw.row});
  }
  step_->Add(StepPart::kDraws, step_draws_.data(),
             step_draws_.size() * sizeof(DeviceDraw));
}

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
  if (!device_->Grow(num_keys * sizeof(uint64_t), &keys_)) return;
  const void* sent = nullptr;
  if (host_draws_ == step_draws_) sent = step_->Find(StepPart::kDraws);
  if (sent == nullptr) {
    if (!device_->Grow(bytes, &draws_)) return;
    staging_->Upload(host_draws_.data(), bytes, draws_->data());
    sent = draws_->data();
  }
  DrawArgs args;
  args.logits = logits;
  args.cols = cols;
  args.draws = static_cast<const DeviceDraw*>(sent);
  args.count = static_cast<int>(draws.size());
  args.keys = static_cast<uint64_t*>(keys_->data());
  args.ids = ids;
  device_->Check(DrawTokens(device_->queue(), args), "drawing tokens");
}

}  // namespace nacre::kernels::cuda
