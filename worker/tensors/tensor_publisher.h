// Where a worker puts tensors that others may read. One implementation for each
// transport (transports.h).
//
// Thread-safe, but for Publish of a device's memory (tensor.h). Nothing waits
// for a reader: the caller is an engine between two steps.

#ifndef WORKER_TENSORS_TENSOR_PUBLISHER_H_
#define WORKER_TENSORS_TENSOR_PUBLISHER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "model/language_model.h"
#include "worker/tensors/tensor.h"

namespace nacre::worker {

class TensorPublisher {
 public:
  // Counts are of its life.
  struct Stats {
    int readers = 0;          // connections
    int subscriptions = 0;    // of all of them
    uint64_t sent = 0;        // tensors, to each reader
    uint64_t sent_bytes = 0;  // of values, as they are sent
    uint64_t replaced = 0;    // tensors that a newer one took the place of
    // Of links beside the connections; none where a transport has none.
    int links = 0;                 // that are up
    uint64_t link_failures = 0;    // whose tensors go the common way since
    uint64_t sent_over_links = 0;  // of `sent`
    uint64_t sent_bytes_over_links = 0;
    uint64_t rows_sent_again = 0;  // positions: their link has failed
  };

  virtual ~TensorPublisher() = default;

  // Whether a tensor of this channel would reach a reader. Where it would not,
  // the caller need not make it.
  virtual bool HasReaders(uint64_t channel) const = 0;

  // What a reader wants of a channel's rows: keys and values, or features.
  struct RowsWanted {
    model::TargetRowShape shape;
    std::string target_fingerprint;  // empty: the reader does not know
    int first = 0;                   // the next one that it gets
    int end = 0;                     // above `first`
    uint32_t epoch = 0;              // that the rows are to say
    // Of the draft whose features those are; empty: keys and values.
    std::string draft_fingerprint = {};
    bool operator==(const RowsWanted&) const = default;
  };
  // From now on called when a reader has come to want rows, or can take more of
  // them, on a transport's thread: must only wake its owner. Null: no more, and
  // no call is under way when this returns.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it.
  virtual void SetRowsWanted(std::function<void()> wake) {
    static_cast<void>(wake);
  }
  // Of one of those that could take some of the first `there` positions now;
  // nullopt: none could. A reader that has lost some wants them again.
  virtual absl::optional<RowsWanted> WantedRows(uint64_t channel,
                                                int there) const {
    static_cast<void>(channel);
    static_cast<void>(there);
    return absl::nullopt;
  }
  // Sends rows, which it owns or copies, to all readers whose next one is the
  // tensor's first, who expect that many numbers of each, and that epoch.
  virtual void PublishRows(const Tensor& tensor) { static_cast<void>(tensor); }
  // Whoever wants that gets none of the channel's, and learns why.
  virtual void RefuseRows(uint64_t channel, const RowsWanted& wanted,
                          const absl::Status& why) {
    static_cast<void>(channel);
    static_cast<void>(wanted);
    static_cast<void>(why);
  }
  // Those that want this get rows from `to` on, as many as they wanted; the
  // ones before are lost. Of features alone. An earlier position than their
  // next one changes nothing.
  virtual void SkipRows(uint64_t channel, const RowsWanted& wanted, int to) {
    static_cast<void>(channel);
    static_cast<void>(wanted);
    static_cast<void>(to);
  }

  // Sends the tensor to all readers of its channel. It replaces an earlier one
  // of this channel, layer and side of the norm that a reader has not begun to
  // get. Values that the tensor does not own are copied before this returns.
  virtual void Publish(const Tensor& tensor) = 0;

  // The worker stops: readers learn `reason`. Nothing is published afterwards.
  virtual void EndReaders(const absl::Status& reason) {
    static_cast<void>(reason);
  }

  // Any thread may ask. A transport that counts nothing leaves it out.
  virtual Stats stats() const { return {}; }
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_PUBLISHER_H_
