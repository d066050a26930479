// What a step begins with (kernels/step_inputs.h), on the device by one copy.
// Its parts lie one after the other, so that a part's address follows from the
// sizes of those before it: steps of equal launches find their parts where they
// were (step_graphs.h).
//
// Thread-compatible. `device` and `staging` outlive it.

#ifndef KERNELS_CUDA_STEP_UPLOAD_H_
#define KERNELS_CUDA_STEP_UPLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/staging.h"

namespace nacre::kernels::cuda {

// In this order: how long rows' tables are changes from step to step, and
// draws are in no graph.
enum class StepPart { kValues, kTokenIds, kTiles, kRows, kDraws };

class StepUpload {
 public:
  static constexpr size_t kAlignment = 64;  // of a part
  static constexpr size_t kParts = 5;
  static constexpr size_t kMostGaps = kParts * kAlignment;  // bytes

  StepUpload(Device* device, Staging* staging)
      : device_(device), staging_(staging) {}

  // Begins a step: what was sent before is not found any more.
  void Clear();
  // Copies the part. It takes `room`, where that is more than `bytes`.
  void Add(StepPart part, const void* host, size_t bytes, size_t room = 0);
  // Queues the copy, into memory of `least_bytes` or more. False after an
  // error.
  bool Send(size_t least_bytes);

  // Where the part lies; null where the step has none.
  const void* Find(StepPart part) const;
  // The same, null also where it holds other integers.
  const int32_t* Find(StepPart part, absl::Span<const int32_t> ints) const;

 private:
  struct Place {
    size_t begin = 0;
    size_t bytes = 0;
    bool is_there = false;
  };

  const Place& PlaceOf(StepPart part) const {
    return places_[static_cast<size_t>(part)];
  }

  Device* const device_;
  Staging* const staging_;
  std::array<Place, kParts> places_;
  std::vector<char> image_;  // what memory_ begins with
  bool is_sent_ = false;
  std::unique_ptr<Buffer> memory_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_STEP_UPLOAD_H_
