// The publisher's end of the link beside one stream. It holds what publisher
// and reader tell each other about the link (TensorLink of
// proto/tensors.proto). It decides which way the next tensor goes: over the
// stream until the link is up, and again once the link has failed. What becomes
// of rows that were under way is the stream's affair (publisher_service.cc).
//
// Thread-safe. `changed` is called on the links' thread.

#ifndef WORKER_TENSORS_LINK_SENDER_H_
#define WORKER_TENSORS_LINK_SENDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/tensors.pb.h"
#include "worker/tensors/side_link.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

// Of all senders of a publisher.
struct LinkSenderCounts {
  std::atomic<int> up{0};  // links
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> sent{0};  // tensors
  std::atomic<uint64_t> sent_bytes{0};
};

class LinkSender final : public LinkListener {
 public:
  // All outlive it. Null `links`: readers that ask are told that there is none.
  // `changed`: there is something to say, or room for a tensor.
  LinkSender(SideLinks* links, LinkSenderCounts* counts,
             std::function<void()> changed);
  // After Close.
  ~LinkSender() override = default;

  // From the reader. `reader` is its name, for the log.
  void OnMessage(const v1::TensorLink& message, const std::string& reader)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What is to be said next; false: nothing.
  bool TakeMessage(v1::TensorLink* message) ABSL_LOCKS_EXCLUDED(mu_);

  enum class Way {
    kStream,
    kLink,
    kLater,  // the link's, which has no room
  };
  // Of a hidden state.
  Way NextWay() const ABSL_LOCKS_EXCLUDED(mu_);
  // After kLink. The transfer's number; 0: over the stream after all.
  uint64_t Send(const std::shared_ptr<const WireTensor>& tensor)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Of rows, which go over the stream where the reader wants it so, or where
  // they are larger than a transfer.
  Way RowsWay(size_t num_bytes) const ABSL_LOCKS_EXCLUDED(mu_);
  // Likewise; 0: not now, `changed` is called.
  uint64_t SendRows(const std::shared_ptr<const WireTensor>& rows)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What a transfer holds; 0: rows go over the stream.
  size_t max_row_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  // Nothing is called any more when this returns. Not from `changed`, nor with
  // a lock that it takes.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class State { kNotAsked, kOpening, kUp, kOver };

  void OnId(const std::string& id) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnSent(size_t num_bytes) override;
  void OnFailed(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);
  void Say(v1::LinkStep step, const std::string& id, const std::string& text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether it was not over.
  bool End(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  SideLinks* const links_;
  LinkSenderCounts* const counts_;
  const std::function<void()> changed_;
  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kNotAsked;
  std::string reader_ ABSL_GUARDED_BY(mu_);
  bool takes_rows_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<SideLink> link_ ABSL_GUARDED_BY(mu_);  // since it was asked
  uint64_t num_sent_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<v1::TensorLink> messages_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_LINK_SENDER_H_
