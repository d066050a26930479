// The reader's end of the link beside one stream (proto/tensors.proto). It asks
// for the link and joins. It puts values that come over the link together with
// headers that came over the stream. If the link fails, it gives up the link
// and tells the publisher, whose tensors then come over the stream. It tells so
// once, after the last tensor of the link was delivered: also where it has it
// from the publisher, who then hears what has come of rows.
//
// Thread-safe. `tell` and `deliver` are called on the links' thread, or by
// OnMessage.

#ifndef WORKER_TENSORS_LINK_RECEIVER_H_
#define WORKER_TENSORS_LINK_RECEIVER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/tensors.pb.h"
#include "worker/tensors/side_link.h"
#include "worker/tensors/tensor.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

// Of all receivers of a reader.
struct LinkReceiverCounts {
  std::atomic<int> up{0};  // links
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> received{0};  // tensors
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<uint64_t> lost{0};  // under way when their link failed
};

class LinkReceiver final : public LinkListener {
 public:
  struct Parts {
    SideLinks* links = nullptr;  // outlives it
    LinkReceiverCounts* counts = nullptr;
    std::string publisher;  // its address, for the log
    std::function<void(v1::TensorLink)> tell;
    std::function<void(Tensor)> deliver;
  };
  explicit LinkReceiver(Parts parts) : parts_(std::move(parts)) {}
  // After Close.
  ~LinkReceiver() override = default;

  // To be told first of all.
  v1::TensorLink Question() const;

  void OnMessage(const v1::TensorLink& message) ABSL_LOCKS_EXCLUDED(mu_);
  // A tensor whose values come over the link, as the transfer of that number.
  // False: it makes no sense; the link is then given up.
  bool OnHeader(const TensorChunk& header, uint64_t number)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A tensor came over the stream: after the first header, the publisher has
  // given the link up. What is delivered next is newer than all before.
  void OnStreamTensor() ABSL_LOCKS_EXCLUDED(mu_);
  // Nothing is called any more when this returns. Not from calls of this.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class State { kAsked, kOpening, kUp, kOver };

  void OnUp() override ABSL_LOCKS_EXCLUDED(mu_);
  void OnReceived(absl::string_view bytes) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnFailed(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);
  // Gives it up for a reason of this end; not from the link's calls.
  void GiveUp(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it was not over.
  bool End(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Parts parts_;
  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kAsked;
  std::shared_ptr<SideLink> link_ ABSL_GUARDED_BY(mu_);  // since the offer
  std::deque<Tensor> expected_ ABSL_GUARDED_BY(mu_);     // without values
  uint64_t num_headers_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_LINK_RECEIVER_H_
