// How a worker gets tensors that another one publishes. One implementation for
// each transport (transports.h).
//
// Thread-safe; nothing here blocks.

#ifndef WORKER_TENSORS_TENSOR_READER_H_
#define WORKER_TENSORS_TENSOR_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "model/language_model.h"
#include "worker/tensors/tensor.h"

namespace nacre::worker {

struct ReceivedTensor {
  Tensor tensor;            // owns its values
  int64_t received_ns = 0;  // MonotonicNowNs, when its last byte was there
};

// What became of those that a draft received.
struct TensorUse {
  // Hidden states that its length policies were given, and runs of rows that
  // brought its sessions new ones.
  uint64_t used = 0;
  uint64_t stale = 0;  // late, of another epoch, or of a closed session
  int64_t lag_ns = 0;  // for which the used hidden states were missing
  // Rows of positions, of sessions that read some: those that came, the commits
  // that were applied meanwhile, and the positions that had none yet at each.
  uint64_t rows = 0;
  uint64_t row_commits = 0;
  uint64_t missing_rows = 0;
  // Runs of rows that could be none of their session's: it takes no more.
  uint64_t malformed_rows = 0;
  // Positions before a run of rows of which the target had none to send.
  uint64_t lost_rows = 0;
  // Sessions that take no more rows, for what came or did not come.
  uint64_t given_up = 0;
};

// A reader. Called on the transport's threads, one channel's calls in order:
// must only enqueue.
class TensorSink {
 public:
  virtual ~TensorSink() = default;

  virtual void OnTensor(ReceivedTensor received) = 0;
  // Nothing more comes of that channel: its subscription is over.
  virtual void OnLost(uint64_t channel, const absl::Status& status) = 0;
};

class TensorReader {
 public:
  // Keys and values, or features, of positions from the first one on.
  struct Rows {
    model::TargetRowShape shape;
    std::string target_fingerprint;  // that it was made for; empty: not known
    int end = 0;                     // the first that is not wanted yet
    uint32_t epoch = 0;              // that the rows will say
    // Of the draft whose features those are; empty: keys and values.
    std::string draft_fingerprint = {};
  };
  struct Subscription {
    std::string address;    // of the worker that publishes
    uint64_t channel = 0;   // subscribed to once at a time
    size_t num_values = 0;  // of each tensor, or row; others end the channel
    std::shared_ptr<TensorSink> sink;
    absl::optional<Rows> rows = {};  // absent: hidden states
  };
  // Most rows that come in one tensor.
  static constexpr int kMaxRows = 4096;

  // Counts are of its life.
  struct Stats {
    uint64_t received = 0;        // tensors that sinks were given
    uint64_t received_bytes = 0;  // of their values, as they came
    uint64_t malformed = 0;       // pieces that made no sense: dropped
    uint64_t lost_channels = 0;   // that sinks were told of
    // Of links beside the connections; none where a transport has none.
    int links = 0;               // that are up
    uint64_t link_failures = 0;  // whose tensors come the common way
    // Of `received`, and of other channels.
    uint64_t received_over_links = 0;
    uint64_t received_bytes_over_links = 0;
    // Under way when their link failed. Rows among them come again.
    uint64_t lost_with_links = 0;
  };

  virtual ~TensorReader() = default;

  // The sink hears of everything that goes wrong, also of an address that
  // cannot be reached.
  virtual void Subscribe(Subscription subscription) = 0;
  // More rows of a channel that is subscribed to with some. Unknown ones are
  // ignored.
  virtual void WantRows(uint64_t channel, int end) {
    static_cast<void>(channel);
    static_cast<void>(end);
  }
  // Calls to the sink that have begun may end later. Unknown ones are ignored.
  virtual void Unsubscribe(uint64_t channel) = 0;

  // Any thread may ask. A transport that counts nothing leaves it out.
  virtual Stats stats() const { return {}; }
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_READER_H_
