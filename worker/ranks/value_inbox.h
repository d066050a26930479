// Values that have come from another node, for the rank that waits for them.
//
// Thread-safe: gRPC's threads put pieces in, one thread takes them.

#ifndef WORKER_RANKS_VALUE_INBOX_H_
#define WORKER_RANKS_VALUE_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/node_link.h"

namespace nacre::worker {

// A part of a call's values.
struct ValuePiece {
  kernels::NodeCall call;
  uint64_t offset = 0;  // values before it
  std::string bytes;
};

class ValueInbox {
 public:
  // Nodes are at most a call ahead of each other, so little waits here.
  static constexpr size_t kMostBytes = size_t{1} << 30;
  // `from`: the node that sends, for messages.
  explicit ValueInbox(int from, size_t most_bytes = kMostBytes)
      : from_(from), most_bytes_(most_bytes) {}

  // RESOURCE_EXHAUSTED: a node that sends on and on.
  absl::Status Push(ValuePiece piece) ABSL_LOCKS_EXCLUDED(mu_);
  // What Receive returns from now on; the first counts.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

  // The values of a call, as NodeLink::Receive. DEADLINE_EXCEEDED: nothing has
  // come for so long. INTERNAL: pieces that do not fit.
  absl::Status Receive(const kernels::NodeCall& call, absl::Duration patience,
                       float* values) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status Place(const kernels::NodeCall& call, const ValuePiece& piece,
                     uint64_t there, float* values) const;
  bool HasSome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !pieces_.empty() || !reason_.ok();
  }

  const int from_;
  const size_t most_bytes_;
  absl::Mutex mu_;
  std::deque<ValuePiece> pieces_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_RANKS_VALUE_INBOX_H_
