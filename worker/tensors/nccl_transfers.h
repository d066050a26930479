// The device's half of a link between two workers: tensors that go through a
// two-rank communicator of NCCL, in the order in which they are posted, on a
// stream of their own. Each takes its number along, so that what came for
// another one is seen and not used.
//
// Thread-compatible: the links' thread (nccl_link.h), but for Abort. Nothing
// here waits for the peer. Owns the communicator.

#ifndef WORKER_TENSORS_NCCL_TRANSFERS_H_
#define WORKER_TENSORS_NCCL_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/nccl_api.h"
#include "worker/tensors/nccl_lanes.h"
#include "worker/tensors/side_link.h"

namespace nacre::worker {

class NcclTransfers {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 18;  // of one transfer
  static constexpr size_t kMostUnderWay = NcclLane::kSlots;

  // `api` and `lanes` outlive it. Rank 0 sends, rank 1 receives.
  NcclTransfers(kernels::NcclApi* api, NcclLanes* lanes, LinkEnd end)
      : api_(api), lanes_(lanes), end_(end) {}
  // Aborts, if that was not done. Gives the lane back.
  ~NcclTransfers();
  NcclTransfers(const NcclTransfers&) = delete;
  NcclTransfers& operator=(const NcclTransfers&) = delete;

  // Of a slot of `lanes`.
  static size_t SlotBytes() { return sizeof(Header) + kMaxBytes; }

  // Begins to join the peer. `lane`: of `lanes`. `id`: of GetUniqueId, the same
  // at both ends.
  absl::Status Open(std::unique_ptr<NcclLane> lane, const std::string& id);

  // Ends what is under way; the last call but for the destructor. On any
  // thread. May wait until all that the device has been told to do has ended,
  // as NCCL frees its memory there.
  void Abort();

  // Whether another transfer may be posted; to be asked before each.
  absl::StatusOr<bool> CanPost();
  // Of at most kMaxBytes; a receiver says how many it expects.
  absl::Status PostSend(uint64_t number, absl::string_view bytes);
  absl::Status PostReceive(uint64_t number, size_t num_bytes);

  // The one that was posted first, if it is through. A receiver's has its
  // bytes, which are valid until the next post. INTERNAL: another one came in
  // its place.
  struct Done {
    bool any = false;
    uint64_t number = 0;
    size_t num_bytes = 0;
    absl::string_view bytes;
  };
  absl::StatusOr<Done> TakeDone();

 private:
  // What goes before the values.
  struct Header {
    uint64_t number = 0;
    uint64_t num_words = 0;  // of 32 bits, the last one in part
  };
  using Slot = NcclLane::Slot;  // header and bytes
  struct Posted {
    uint64_t number = 0;
    size_t num_bytes = 0;
    Slot* slot = nullptr;
  };

  static Header HeaderOf(uint64_t number, size_t num_bytes);
  absl::Status Post(uint64_t number, size_t num_bytes);
  Slot* NextSlot() { return &lane_->slots[num_posted_ % kMostUnderWay]; }

  kernels::NcclApi* const api_;
  NcclLanes* const lanes_;
  const LinkEnd end_;
  kernels::NcclApi::Comm comm_ = nullptr;
  std::unique_ptr<NcclLane> lane_;
  std::deque<Posted> under_way_;  // in order
  uint64_t num_posted_ = 0;
  bool is_marked_ = true;  // the last one's event has been recorded
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_NCCL_TRANSFERS_H_
