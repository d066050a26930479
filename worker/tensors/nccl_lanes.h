// Streams and memory that links between GPUs send by. A lane whose link is over
// goes to the next link. Nothing is freed while there are links, and nothing is
// taken of the device on their thread (nccl_link.h): either may wait for the
// whole device, and so for a transfer of another link whose peer is gone, which
// only that thread can give up.
//
// Thread-safe, of threads that have called BindThread. Owns all lanes that no
// link has.

#ifndef WORKER_TENSORS_NCCL_LANES_H_
#define WORKER_TENSORS_NCCL_LANES_H_

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
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

  // One on whose stream nothing is left. May wait for the device, if it is a
  // new one. The errors are the API's.
  absl::StatusOr<std::unique_ptr<NcclLane>> Take() ABSL_LOCKS_EXCLUDED(mu_);
  // Once the link's communicator was aborted. Waits for nothing.
  void GiveBack(std::unique_ptr<NcclLane> lane) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::unique_ptr<NcclLane> TakeIdle() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Complete(NcclLane* lane);

  kernels::NcclApi* const api_;
  const size_t slot_bytes_;
  absl::Mutex mu_;
  // The event of slot 0 is the last thing on the stream of one that has ended.
  std::vector<std::unique_ptr<NcclLane>> ended_ ABSL_GUARDED_BY(mu_);
  // No link has had them.
  std::vector<std::unique_ptr<NcclLane>> incomplete_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<NcclLane>> unusable_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_NCCL_LANES_H_
