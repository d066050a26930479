// Streams and memory that links between GPUs send by. A lane whose link is over
// goes to the next link. Nothing is freed while there are links: to free memory
// waits for the whole device, and so for a transfer of another link whose peer
// is gone, which only the thread that would wait can give up.
//
// Thread-compatible: the links' thread (nccl_link.h). Owns all lanes that no
// link has.

#ifndef WORKER_TENSORS_NCCL_LANES_H_
#define WORKER_TENSORS_NCCL_LANES_H_

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/nccl_api.h"

namespace nacre::worker {

struct NcclLane {
  // Of one transfer at a time.
  struct Slot {
    void* device = nullptr;
    void* host = nullptr;  // as many bytes, pinned
    kernels::NcclApi::Event event = nullptr;
  };
  static constexpr size_t kSlots = 4;

  kernels::NcclApi::Stream stream = nullptr;
  std::array<Slot, kSlots> slots;
};

class NcclLanes {
 public:
  // Slots of `slot_bytes` bytes. `api` outlives it.
  NcclLanes(kernels::NcclApi* api, size_t slot_bytes)
      : api_(api), slot_bytes_(slot_bytes) {}
  // After all lanes have come back.
  ~NcclLanes();
  NcclLanes(const NcclLanes&) = delete;
  NcclLanes& operator=(const NcclLanes&) = delete;

  // One on whose stream nothing is left. The errors are the API's.
  absl::StatusOr<std::unique_ptr<NcclLane>> Take();
  // Once the link's communicator was aborted.
  void GiveBack(std::unique_ptr<NcclLane> lane);

 private:
  std::unique_ptr<NcclLane> TakeIdle();
  absl::Status Complete(NcclLane* lane);

  kernels::NcclApi* const api_;
  const size_t slot_bytes_;
  // The event of slot 0 is the last thing on the stream of one that has ended.
  std::vector<std::unique_ptr<NcclLane>> ended_;
  std::vector<std::unique_ptr<NcclLane>> incomplete_;  // no link has had them
  std::vector<std::unique_ptr<NcclLane>> unusable_;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_NCCL_LANES_H_
